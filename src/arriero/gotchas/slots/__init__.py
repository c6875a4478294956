"""Slots, and how they share the context."""
