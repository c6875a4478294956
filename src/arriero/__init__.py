"""Arriero: make llama.cpp's ``llama-server`` fit in memory and stay up.

The Python API is :mod:`arriero.jobs`, one module per command. Values flow through the rooms in one
direction (see ``docs/decisions/0001-rooms.md``); nothing imports to its right.
"""

__version__ = "0.1.0"
