"""GGUF files: read a header without loading it, and write small or weightless models."""
