"""The documents of the contract: one schema for each, and how they are written and read."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
