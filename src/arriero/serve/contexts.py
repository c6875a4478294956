"""What the engine has read survives its restart: slots are saved when idle and restored.

A save is a file that the engine writes and that lies in a private directory for as long as Arriero
runs. It is given back only if it is as long as the engine said: a file that was cut off ends the
engine where the model has recurrent state (builds 10068, 10434, 11549). That the engine says
"restored" proves nothing; the ``cache_n`` of the next answer does.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from arriero.base import limits
from arriero.base.sizes import GIB, MIB, human
from arriero.serve.http.interface import UpstreamLostError

Call = Callable[[str, str, bytes], Awaitable[tuple[int, bytes]]]
"""Method, path of the engine (without prefix) and JSON body → status and body of its answer.

Raises ``UpstreamLostError`` or ``TimeoutError``."""

LEAST: Final = 64
"""Tokens of context that are worth a file; fewer are read again in no time."""
MOST: Final = 8 * GIB
"""Bytes of all saved slots together, however much room the disk has."""
_DISK_SHARE: Final = 0.5
"""Of what is free on the disk, at most so much is taken."""
_UNKNOWN: Final = MIB
"""Bytes of a token until something better is known: three times that of a dense model of 70 B."""
_DISPROOFS: Final = 3
"""Restores in a row after which no request used what was restored: then it is not done again."""
_HEARD: Final = re.compile(rb'"cache_n":\s*(\d{1,10}),\s*"prompt_n":\s*(\d{1,10})')


class Proof(StrEnum):
    """What an answer after a restore said of it."""

    NONE = "none"
    """Nothing has been restored, or nothing has been asked since."""
    SHOWN = "shown"
    """A request did not have to read what was restored."""
    REFUTED = "refuted"
    """A request read everything again."""


@dataclass(frozen=True, slots=True)
class Saved:
    """The context of one slot in a file."""

    slot: int
    task: int | None
    """What the slot worked on last: another number says that the file is out of date."""
    tokens: int
    bytes: int
    path: Path


@dataclass(frozen=True, slots=True)
class Restored:
    """What one restart got back, by the engine's own word."""

    slots: int = 0
    tokens: int = 0
    bytes: int = 0


class Contexts:
    """The saved slots of one engine, over all its starts.

    Args:
        directory: Where the engine was told to keep slots (``--slot-save-path``); private.
        most: Bytes of all files together.
        each: The most bytes that one token takes in a file, if that is known.
    """

    def __init__(self, directory: Path, *, most: int = MOST, each: int | None = None) -> None:
        self.directory = directory
        self.proof = Proof.NONE
        self.off = ""
        """Why slots are not saved any more; empty while they are."""
        self._most = most
        self._sizes = _Sizes(each or _UNKNOWN)
        self._saved: dict[int, Saved] = {}
        self._busy = ""
        self._waits = False
        self._disproofs = 0

    @property
    def saved(self) -> tuple[Saved, ...]:
        """What would be restored now."""
        return tuple(self._saved[slot] for slot in sorted(self._saved))

    @property
    def waits_for_proof(self) -> bool:
        """Whether the next answer will show if a restore was worth anything."""
        return self._waits

    async def save(self, call: Call) -> int:
        """Save every slot that is idle and has changed; the number of tokens that are new in files.

        Never raises for what the engine does: contexts are a bonus. An engine that dies of it is
        never asked again (:meth:`lost`).
        """
        new = 0
        if self.off:
            return 0
        self._busy = "save"
        with contextlib.suppress(TimeoutError, OSError, UpstreamLostError):
            status, body = await call("GET", "/slots", b"")
            slots = _decoded(body) if status == 200 else None
            for slot in slots if isinstance(slots, list) else []:
                if not self.off and isinstance(slot, dict):
                    new += await self._save_slot(call, slot)
            self._busy = ""
        return new

    async def restore(self, call: Call, n_slots: int | None) -> Restored:
        """Give a fresh start of the engine back what its slots held; call it before any request.

        What cannot be restored is forgotten, file and all.
        """
        done = Restored()
        self._waits = False
        for one in self.saved if not self.off else ():
            if (n_slots is not None and one.slot >= n_slots) or not _is_whole(one):
                self._forget(one)
                continue
            self._busy = "restore"
            try:
                path = f"/slots/{one.slot}?action=restore"
                status, body = await call("POST", path, _named(one.path.name))
            except (TimeoutError, OSError, UpstreamLostError):
                return done
            self._busy = ""
            answer = _decoded(body)
            tokens = _number(answer, "n_restored")
            if status != 200 or tokens != one.tokens:
                self._forget(one)
                continue
            done = Restored(done.slots + 1, done.tokens + tokens, done.bytes + one.bytes)
        self._waits = done.slots > 0
        return done

    def lost(self, *, crashed: bool) -> None:
        """The engine is gone. If it crashed in the middle of a save or restore, there are no more.

        A kill from outside is not blamed on what it interrupted.
        """
        if self._busy and crashed:
            self._stop(f"the engine crashed in the middle of a {self._busy}")
        self._busy, self._waits = "", False

    def changed(self) -> None:
        """The next start has another command: what is in the files does not fit it."""
        self._clear()

    def heard(self, data: bytes) -> None:
        """Take the end of an answer after a restore: its ``cache_n`` is the proof.

        Only what tells of reading a prompt counts, and only while :attr:`waits_for_proof`.
        """
        found = _HEARD.search(data) if self._waits else None
        if found is None:
            return
        cached, read = int(found[1]), int(found[2])
        if not cached and read < LEAST:
            return  # too short to be a continuation of anything
        self._waits = False
        self.proof = Proof.SHOWN if cached else Proof.REFUTED
        self._disproofs = 0 if cached else self._disproofs + 1
        if self._disproofs >= _DISPROOFS:
            self._stop(f"after {_DISPROOFS} restores in a row every prompt was read again")

    def close(self) -> None:
        """Remove every file."""
        self._clear()

    async def _save_slot(self, call: Call, slot: dict[str, Any]) -> int:
        number, tokens = _number(slot, "id"), _number(slot, "n_prompt_tokens")
        task = slot.get("id_task")
        kept = self._saved.get(number)
        if slot.get("is_processing") is not False or not 0 <= number < limits.SLOTS:
            return 0
        if tokens < LEAST or (kept is not None and kept.task == task):
            return 0
        if (room := self._room(kept)) < self._sizes.of(tokens):
            return 0
        name = f"slot-{number}-{task}.new"
        target = self.directory / name
        try:
            status, body = await call("POST", f"/slots/{number}?action=save", _named(name))
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        answer = _decoded(body)
        written, held = _number(answer, "n_written"), _number(answer, "n_saved")
        path = self.directory / f"slot-{number}.bin"
        one = Saved(number, task if isinstance(task, int) else None, held, written, path)
        if status == 501:
            self._stop("the engine does not save slots of this model")
        if status != 200 or held < LEAST or _size(target) != written or written > room:
            target.unlink(missing_ok=True)
            return 0
        target.replace(path)
        self._sizes.learn(held, written)
        self._saved[number] = one
        return held - (kept.tokens if kept else 0)

    def _room(self, replaced: Saved | None) -> int:
        """Bytes that one more file may have. Until the new one is there the old one stays."""
        taken = sum(one.bytes for one in self._saved.values() if one is not replaced)
        disk = int(shutil.disk_usage(self.directory).free * _DISK_SHARE)
        return min(self._most - taken, disk)

    def _stop(self, why: str) -> None:
        self.off = why
        self._clear()

    def _clear(self) -> None:
        self._busy, self._waits = "", False
        for one in self.saved:
            self._forget(one)
        with contextlib.suppress(OSError):
            for left in self.directory.glob("slot-*.new"):
                left.unlink(missing_ok=True)

    def _forget(self, one: Saved) -> None:
        self._saved.pop(one.slot, None)
        with contextlib.suppress(OSError):
            one.path.unlink(missing_ok=True)

    def __str__(self) -> str:
        held = sum(one.tokens for one in self._saved.values())
        size = human(sum(one.bytes for one in self._saved.values()))
        return self.off or f"{held} tokens of context in {len(self._saved)} files ({size})"


class _Sizes:
    """How large the file of so many tokens will be, from those that were written.

    A file has a fixed part (recurrent state) and one that grows with its tokens.
    """

    def __init__(self, each: int) -> None:
        self._each = float(each)
        self._seen: dict[int, int] = {}

    def of(self, tokens: int) -> float:
        if not self._seen:
            return self._each * tokens
        least, most = min(self._seen), max(self._seen)
        size = self._seen[most]
        grown = (size - self._seen[least]) / (most - least) if most > least else size / most
        return size + max(0.0, grown) * max(0, tokens - most)

    def learn(self, tokens: int, size: int) -> None:
        """Only the smallest and the largest are kept."""
        self._seen[tokens] = size
        self._seen = {n: self._seen[n] for n in {min(self._seen), max(self._seen)}}


def _is_whole(one: Saved) -> bool:
    return _size(one.path) == one.bytes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _named(name: str) -> bytes:
    return msgspec.json.encode({"filename": name})


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body[: limits.REPLY])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _number(answer: Any, name: str) -> int:
    """A field that must be a whole number; -1 where it is none."""
    value = answer.get(name) if isinstance(answer, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
