"""Which CPU an engine was compiled for."""

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
"""What llama.cpp names in its ``system_info`` line, of x86."""
_SECONDS: Final = 20.0


def compiled_for(engine: Engine, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The features of x86 that an engine's CPU library was compiled for, as ``system_info`` names
    them; None where it cannot be asked.

    That is so for a static build, outside Linux, for a script that starts something, and where
    several libraries lie beside each other: such an engine takes what suits the CPU at its start.
    """
    library = cpu_library(engine.path.resolve().parent) if sys.platform == "linux" else None
    if library is None or not is_binary(engine):
        return None
    return asked(library, engine.environment(environ))


def is_binary(engine: Engine) -> bool:
    """Whether it is the program itself: what a script starts, and where, nobody knows."""
    try:
        with engine.path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def cpu_library(directory: Path) -> Path | None:
    """The one CPU library of the engine whose program is in ``directory``, beside it or in
    ``../lib``; None where there is none, or one for each kind of CPU."""
    for place in (directory, directory.parent / "lib"):
        if any(place.glob("libggml-cpu-*")):
            return None
        for found in (place / "libggml-cpu.so", *sorted(place.glob("libggml-cpu.so.*"))):
            if found.is_file():
                return found.absolute()
    return None


def asked(library: Path, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """What a ``libggml-cpu`` says it was compiled for; None where it does not load or answer."""
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
