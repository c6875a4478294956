"""Whether contexts can be kept over a restart: what the build, the model and the command allow.

Tried on builds 10068, 10434 and 11549 with a restart between save and restore:

==============================  =========================  ====================================
model                           a prompt that continues    one that goes another way
==============================  =========================  ====================================
KV cache alone                  reused, all                reused as far as it is the same
hybrid, recurrent               reused, all                read again; 11549: from a checkpoint on
sliding window                  read again; 11549: reused  read again; 11549: from a checkpoint on
sliding window, ``--swa-full``  reused, 10068 and 10434    reused as far as it is the same
==============================  =========================  ====================================

``bench/contexts.py`` shows it. 10092 is as 10068.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.base.errors import ArrieroError
from arriero.base.words import MemoryClass
from arriero.command import Command
from arriero.gguf import describe, read_header
from arriero.launch.attention import swa_full
from arriero.launch.caches import prompt_cache
from arriero.launch.placement import workers
from arriero.launch.projector import projector_file
from arriero.machine import files
from arriero.machine.host import ROOT
from arriero.memory.hparams import read_hparams
from arriero.process import temporary_directory

FLAG: Final = "--slot-save-path"
WINDOWS_SINCE: Final = 11435
"""From the first build after the last that was seen without checkpoints in the file of a slot."""


_ROOMY: Final = Path("/var/tmp")  # noqa: S108 - a directory of its own is made in it
_IN_MEMORY: Final = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Kept:
    """What a context of the model keeps between tokens, and whether some of it is a window."""

    memory_class: MemoryClass = MemoryClass.UNKNOWN
    windows: bool = False


@dataclass(frozen=True, slots=True)
class Keeping:
    """Whether slots are saved, and why not."""

    on: bool
    why_not: str = ""


def keeping(
    asked: str,
    command: Command,
    *,
    build: int | None,
    kept: Kept,
    text: bool = True,
) -> Keeping:
    """Decide by the setting ``keep-context``.

    Args:
        asked: ``on``, ``off``, or ``auto``: where it was seen to work.
        text: Whether the server generates text; an embedding keeps nothing.
    """
    if asked == "off":
        return Keeping(False, "keep-context is off")
    if not command.flags.knows(FLAG):
        return Keeping(False, f"this build has no {FLAG}")
    if not text:
        return Keeping(False, "an embedding leaves no context")
    if command.has(FLAG):
        return Keeping(False, f"the command has a {FLAG} of its own: its clients save slots")
    if asked == "on":
        return Keeping(True)
    why = _why_not(command, build, kept)
    return Keeping(not why, why)


def kept_by(command: Command, cwd: Path, build: int | None) -> Kept:
    """What the model of a command keeps, by its header; unknown where that cannot be read."""
    path = command.model_path()
    if path is None:
        return Kept()
    try:
        header = read_header(cwd / path)
        return Kept(describe(header).memory_class, any(read_hparams(header, build).is_swa))
    except (ArrieroError, OSError):
        return Kept()


def place(root: Path = ROOT, temporary: Path | None = None, roomy: Path = _ROOMY) -> Path:
    """Where the directory for saved slots is made: on a disk, not in memory, if there is one."""
    temporary = temporary or temporary_directory()
    for path in (temporary, roomy):
        if path.is_dir() and os.access(path, os.W_OK | os.X_OK) and not _in_memory(path, root):
            return path
    return temporary


def _in_memory(path: Path, root: Path) -> bool:
    """Whether a file there takes RAM, by the kernel's list of mounts."""
    device = path.stat().st_dev
    number = f"{device >> 8 & 0xFFF}:{device & 0xFF | device >> 12 & 0xFFF00}"
    for line in files.text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return after.split()[:1] in [[kind] for kind in _IN_MEMORY]
    return False


def _why_not(command: Command, build: int | None, kept: Kept) -> str:
    if workers(command):
        return "a worker may abort when it is asked for the data of a slot"
    if projector_file(command):
        return "the engine does not save slots of a model with images"
    if prompt_cache(command) == 0:
        return "the command switches saved prompts off"
    if kept.memory_class in (MemoryClass.NONE, MemoryClass.UNKNOWN):
        return "it is not known what a context of this model keeps"
    old = build is None or build < WINDOWS_SINCE
    if kept.windows and not swa_full(command) and old:
        return "this build restores a model with sliding windows and then reads every prompt again"
    if kept.memory_class is MemoryClass.RECURRENT and old:
        return "crashes after a restore are reported of this build with a recurrent model"
    return ""
