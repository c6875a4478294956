"""What is made when it is first used: modules of a package, regular expressions.

A command that answers at once needs few of them, and loading all would take most of its time.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any, cast


def late(package: str, **modules: str) -> Callable[[str], object]:
    """A package's ``__getattr__`` that loads a module when one of its names is first used.

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


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """``re.compile``, done when the first of its methods is used."""
    return cast("re.Pattern[str]", _Pattern(text, flags))


class _Pattern:
    def __init__(self, text: str, flags: int) -> None:
        self.pattern, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self.pattern, self._flags), name)  # which re keeps: done once
        setattr(self, name, value)
        return value
