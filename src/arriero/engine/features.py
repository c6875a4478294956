"""The CPU for which an engine was compiled."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from arriero.base.errors import ArrieroError
from arriero.engine import _features_child
from arriero.engine.installation import Engine
from arriero.process import run

X86: Final = (
    *("SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2"),
    *("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI", "AMX_INT8"),
)
"""Features of x86 in llama.cpp's ``system_info`` line."""
_SECONDS: Final = 20.0


def compiled_for(engine: Engine, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The x86 features for which an engine's CPU library was compiled, by their names in
    ``system_info``; None if the library cannot be asked.

    It cannot for a static build, outside Linux, for a script that starts the engine, or if there
    are several CPU libraries: such an engine chooses one for the CPU when it starts.
    """
    library = cpu_library(engine.path.resolve().parent) if sys.platform == "linux" else None
    if library is None or not is_binary(engine):
        return None
    return asked(library, engine.environment(environ))


def is_binary(engine: Engine) -> bool:
    """Whether it is the program itself and not a script, which may start anything."""
    try:
        with engine.path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def cpu_library(directory: Path) -> Path | None:
    """The CPU library of the engine whose program is in ``directory``: there or in ``../lib``. None
    if there is none, or one for each kind of CPU."""
    for place in (directory, directory.parent / "lib"):
        if any(place.glob("libggml-cpu-*")):
            return None
        for found in (place / "libggml-cpu.so", *sorted(place.glob("libggml-cpu.so.*"))):
            if found.is_file():
                return found.absolute()
    return None


def asked(library: Path, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The features for which a ``libggml-cpu`` was compiled; None if it does not load or answer."""
    argv = [sys.executable, "-I", "-S", _features_child.__file__, str(library), *X86]
    path = f"{library.parent}:{environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    try:
        answer = run(argv, env={**environ, "LD_LIBRARY_PATH": path}, timeout=_SECONDS)
        found = msgspec.json.decode(answer.stdout, type=dict[str, bool])
    except (ArrieroError, OSError, msgspec.MsgspecError):
        return None
    # every one since 2023 knows these two; one that does not is something else
    if answer.status != 0 or not {"AVX", "AVX2"} <= found.keys():
        return None
    return tuple(name for name in X86 if found.get(name))
