"""Speculative decoding: what is loaded and what drafts."""
