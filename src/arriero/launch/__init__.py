"""What a command means to llama-server: the only reader and editor of that meaning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
