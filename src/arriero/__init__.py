"""Arriero: make llama.cpp's ``llama-server`` fit in memory and stay up.

The names in ``__init__.pyi`` are the Python API (``docs/python-api.md``): a function or two for
each command, from :mod:`arriero.jobs`, each loaded when it is first used. Values flow through the
rooms in one direction (see ``docs/decisions/0001-rooms.md``); nothing imports to its right.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
