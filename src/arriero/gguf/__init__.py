"""GGUF files: read a header without loading it, and write small or weightless models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
