"""Slots, and how the context is shared among them."""
