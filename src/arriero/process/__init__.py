"""Start, limit, drain, sample and surely end a process tree. No other room starts processes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
