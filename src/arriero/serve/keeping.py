"""Whether contexts can be kept over a restart: what the build, the model and the command allow.

Tried on builds 10068, 10434 and 11549 with a restart between save and restore:

============================  ===============================  ==============================
model                         a prompt that continues          one that goes another way
============================  ===============================  ==============================
KV cache alone                reused, all three                reused as far as it is the same
hybrid, recurrent             reused, all three                read again, all three
sliding window                read again; 11549 reused         read again, all three
sliding window, ``--swa-full``  reused, 10068 and 10434        reused as far as it is the same
============================  ===============================  ==============================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.base.words import MemoryClass
from arriero.command import Command
from arriero.launch.caches import prompt_cache

FLAG: Final = "--slot-save-path"
WINDOWS_SINCE: Final = 11435
"""From the first build after the last that was seen without checkpoints in the file of a slot."""


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
    memory_class: MemoryClass,
    windows: bool,
    text: bool = True,
    gated: str = "",
) -> Keeping:
    """Decide by the setting ``keep-context``.

    Args:
        asked: ``on``, ``off``, or ``auto``: where it was seen to work.
        windows: Whether layers of the model have a sliding window.
        text: Whether the server generates text; an embedding keeps nothing.
        gated: Why this engine must not be asked for the data of its devices; a save reads them
            just as the prompt cache does.
    """
    if asked == "off":
        return Keeping(False, "keep-context is off")
    if not command.flags.knows(FLAG):
        return Keeping(False, f"this build has no {FLAG}")
    if not text:
        return Keeping(False, "an embedding leaves no context")
    if asked == "on":
        return Keeping(True)
    why = gated or _why_not(command, build, memory_class, windows)
    return Keeping(not why, why)


def _why_not(command: Command, build: int | None, memory: MemoryClass, windows: bool) -> str:
    if command.has("--rpc"):
        return "a worker may abort when it is asked for the data of a slot"
    if command.has("--mmproj"):
        return "the engine does not save slots of a model with images"
    if prompt_cache(command) == 0:
        return "the command switches saved prompts off"
    if memory in (MemoryClass.NONE, MemoryClass.UNKNOWN):
        return "it is not known what a context of this model keeps"
    old = build is None or build < WINDOWS_SINCE
    if windows and not command.switch("--swa-full") and old:
        return "this build restores a model with sliding windows and then reads every prompt again"
    if memory is MemoryClass.RECURRENT and old:
        return "crashes after a restore are reported of this build with a recurrent model"
    return ""
