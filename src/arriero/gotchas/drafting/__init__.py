"""Speculative decoding: which draft model is loaded, and whether it drafts."""
