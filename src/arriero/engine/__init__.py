"""One llama.cpp installation: find, identify, flags it accepts, devices, dry run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
