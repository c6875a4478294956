"""Packages that load a module when one of its names is first used, not with the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable


def late(package: str, **modules: str) -> Callable[[str], object]:
    """A package's ``__getattr__``.

    A type checker does not see through it: the package also imports the names, for it alone.

    Args:
        package: The package's own name.
        modules: Module → the names that the package takes from it, parted by spaces. None may be
            a module's name: once loaded, that is what the package has under it.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
