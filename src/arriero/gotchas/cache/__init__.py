"""Prompts and contexts that the server keeps, and where it cannot use them again."""
