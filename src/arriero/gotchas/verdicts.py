"""Verdicts: what reproductions showed, by build. They decide status, builds and confidence.

Only ``arriero gotchas verify`` writes them, one file for each gotcha. Verdicts that come with
Arriero are in the directory ``verdicts`` beside this file. A user's own are in the data directory
and take precedence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from arriero.base.errors import RecordError
from arriero.record import GotchaVerdict, Verdicts, decode, read_document, write_document
from arriero.store import default_directory

Status = Literal["draft", "reproduced", "not reproduced", "refuted"]
Confidence = Literal["high", "medium", "low"]
REPRODUCED: Final = "reproduced"
NOT_REPRODUCED: Final = "not reproduced"
COULD_NOT_RUN: Final = "could not run"
_SHIPPED: Final = Path(__file__).with_name("verdicts")


class Standing(msgspec.Struct, frozen=True):
    """The sum of all verdicts on one gotcha."""

    verdicts: tuple[GotchaVerdict, ...]

    @property
    def builds(self) -> tuple[int, ...]:
        """Builds on which it was reproduced."""
        return self._builds(REPRODUCED)

    @property
    def not_builds(self) -> tuple[int, ...]:
        """Builds on which its reproductions ran and none showed it."""
        return tuple(b for b in self._builds(NOT_REPRODUCED) if b not in self.builds)

    def _builds(self, verdict: str) -> tuple[int, ...]:
        found = {v.build for v in self.verdicts if v.verdict == verdict and v.build is not None}
        return tuple(sorted(found))

    @property
    def status(self) -> Status:
        """``refuted`` if its reproductions ran on at least two builds and none showed it."""
        if any(v.verdict == REPRODUCED for v in self.verdicts):
            return "reproduced"
        if len(self.not_builds) > 1:
            return "refuted"
        return "not reproduced" if self.not_builds else "draft"

    def status_on(self, build: int | None) -> Literal["draft", "reproduced", "refuted"]:
        """The status on one build: by its own verdict if there is one, else the overall status."""
        if build in self.builds:
            return "reproduced"
        if build in self.not_builds:
            return "refuted"
        status = self.status
        return "draft" if status == "not reproduced" else status

    @property
    def confidence(self) -> Confidence:
        """High when two builds showed it, each with a control that did not."""
        shown = {v.build for v in self.verdicts if v.verdict == REPRODUCED}
        return "high" if len(shown) > 1 else "medium" if shown else "low"


def check_verdict(verdict: GotchaVerdict) -> None:
    """Refuse a verdict that its own evidence does not support.

    Raises:
        RecordError: ``reproduced`` without both runs, without a line that shows it, or with a
            control that shows it too.
    """
    wrong = None
    if verdict.verdict == REPRODUCED:
        if verdict.run is None or verdict.control is None:
            wrong = "it lacks the evidence of both runs"
        elif not verdict.run.shows or not verdict.run.text:
            wrong = "its run does not show the failure"
        elif verdict.control.shows:
            wrong = "its workaround does not change the outcome"
    elif not verdict.reason:
        wrong = "it gives no reason"
    if wrong:
        raise RecordError(
            f"the verdict {verdict.verdict!r} on {verdict.gotcha}/{verdict.reproduction} does not"
            f" hold: {wrong}"
        )


def shipped(gotcha: str = "*") -> tuple[GotchaVerdict, ...]:
    """The verdicts that come with Arriero, for one gotcha or for all."""
    found: list[GotchaVerdict] = []
    for path in sorted(_SHIPPED.glob(f"{gotcha}.json")):
        found += _checked(decode(path.read_bytes(), path.name), path.name)
    return tuple(found)


def own_directory() -> Path:
    """The directory of a user's own verdicts."""
    return default_directory() / "verdicts"


def own(directory: Path | None = None, gotcha: str = "*") -> tuple[GotchaVerdict, ...]:
    """A user's own verdicts, for one gotcha or for all; unreadable files are skipped."""
    found: list[GotchaVerdict] = []
    directory = directory or own_directory()
    for path in sorted(directory.glob(f"{gotcha}.json")) if directory.is_dir() else ():
        try:
            found += _checked(read_document(path), str(path))
        except RecordError:
            continue
    return tuple(found)


def _checked(document: msgspec.Struct, where: str) -> Iterable[GotchaVerdict]:
    if not isinstance(document, Verdicts):
        raise RecordError(f"{where} holds no verdicts")
    for verdict in document.verdicts:
        check_verdict(verdict)
    return document.verdicts


def on(gotcha: str) -> tuple[GotchaVerdict, ...]:
    """All verdicts on one gotcha: those that come with Arriero and the user's own."""
    return merged(shipped(gotcha), own(gotcha=gotcha))


def merged(*groups: Sequence[GotchaVerdict]) -> tuple[GotchaVerdict, ...]:
    """One verdict for each reproduction and build; a later group wins if its run was possible."""
    newest: dict[tuple[str, str, int | None], GotchaVerdict] = {}
    for verdict in (one for group in groups for one in group):
        key = (verdict.gotcha, verdict.reproduction, verdict.build)
        if verdict.verdict != COULD_NOT_RUN or key not in newest:
            newest[key] = verdict
    return tuple(newest.values())


def write(directory: Path, verdicts: Sequence[GotchaVerdict]) -> tuple[Path, ...]:
    """Add verdicts to the file of each gotcha, replacing those on the same reproduction and build.

    Raises:
        RecordError: Its evidence does not support a verdict, or a file cannot be written.
    """
    for verdict in verdicts:
        check_verdict(verdict)
    try:
        # The parent directory may also hold the history, which only its user may read.
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot create the directory {directory}: {error.strerror}") from None
    before = own(directory)
    written = []
    for name in dict.fromkeys(verdict.gotcha for verdict in verdicts):
        kept = [v for v in merged(before, verdicts) if v.gotcha == name]
        kept.sort(key=lambda v: (v.reproduction, v.build or 0))
        path = directory / f"{name}.json"
        write_document(path, Verdicts(build=None, verdicts=tuple(kept)))
        written.append(path)
    return tuple(written)
