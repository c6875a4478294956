"""The only maker of changes: what to change in a command, what it costs, what it is good for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
