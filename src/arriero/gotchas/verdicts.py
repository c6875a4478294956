"""Verdicts: what reproductions showed, by build. Status, builds and confidence come from here.

They are written by ``arriero gotchas verify`` and by nothing else, a file for each gotcha. Those of
the builds that Arriero was made with lie beside this file; a user's own lie in the data directory
and come on top.
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
    """What all verdicts on one gotcha come to."""

    verdicts: tuple[GotchaVerdict, ...]

    @property
    def builds(self) -> tuple[int, ...]:
        """Builds that it was reproduced on."""
        return self._builds(REPRODUCED)

    @property
    def not_builds(self) -> tuple[int, ...]:
        """Builds that its reproductions ran on and none showed it."""
        return tuple(b for b in self._builds(NOT_REPRODUCED) if b not in self.builds)

    def _builds(self, verdict: str) -> tuple[int, ...]:
        found = {v.build for v in self.verdicts if v.verdict == verdict and v.build is not None}
        return tuple(sorted(found))

    @property
    def status(self) -> Status:
        """``refuted`` if it ran on two builds or more and showed nowhere."""
        if any(v.verdict == REPRODUCED for v in self.verdicts):
            return "reproduced"
        if len(self.not_builds) > 1:
            return "refuted"
        return "not reproduced" if self.not_builds else "draft"

    def status_on(self, build: int | None) -> Literal["draft", "reproduced", "refuted"]:
        """As it bears on one build: its own verdict where there is one, else that of all."""
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
    """Refuse a verdict that its own evidence does not bear out.

    Raises:
        RecordError: ``reproduced`` without both runs, without a line that shows it, or with a
            control that shows it too.
    """
    wrong = None
    if verdict.verdict == REPRODUCED:
        if verdict.run is None or verdict.control is None:
            wrong = "is reproduced without the evidence of both runs"
        elif not verdict.run.shows or not verdict.run.text:
            wrong = "is reproduced and its run does not show it"
        elif verdict.control.shows:
            wrong = "is reproduced and its workaround does not change the outcome"
    elif not verdict.reason:
        wrong = f"is {verdict.verdict} without a reason"
    if wrong:
        raise RecordError(f"verdict on {verdict.gotcha}/{verdict.reproduction} {wrong}")


def shipped(gotcha: str = "*") -> tuple[GotchaVerdict, ...]:
    """The verdicts that come with Arriero, on one gotcha or on all."""
    found: list[GotchaVerdict] = []
    for path in sorted(_SHIPPED.glob(f"{gotcha}.json")):
        found += _checked(decode(path.read_bytes(), path.name), path.name)
    return tuple(found)


def own_directory() -> Path:
    """Where a user's own verdicts are kept."""
    return default_directory() / "verdicts"


def own(directory: Path | None = None, gotcha: str = "*") -> tuple[GotchaVerdict, ...]:
    """A user's own verdicts, on one gotcha or on all; files that cannot be read count as none."""
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
    """What is known of one gotcha: the verdicts that come with Arriero and the user's own."""
    return merged(shipped(gotcha), own(gotcha=gotcha))


def merged(*groups: Sequence[GotchaVerdict]) -> tuple[GotchaVerdict, ...]:
    """One verdict for each reproduction and build: a later group's wins if it could run."""
    newest: dict[tuple[str, str, int | None], GotchaVerdict] = {}
    for verdict in (one for group in groups for one in group):
        key = (verdict.gotcha, verdict.reproduction, verdict.build)
        if verdict.verdict != COULD_NOT_RUN or key not in newest:
            newest[key] = verdict
    return tuple(newest.values())


def write(directory: Path, verdicts: Sequence[GotchaVerdict]) -> tuple[Path, ...]:
    """Add verdicts to the file of each gotcha; earlier ones on reproduction and build go.

    Raises:
        RecordError: One is not borne out by its evidence, or a file cannot be written.
    """
    for verdict in verdicts:
        check_verdict(verdict)
    try:
        # The directory around it may hold the history too, which is for its user alone.
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make {directory}: {error.strerror}") from None
    before = own(directory)
    written = []
    for name in dict.fromkeys(verdict.gotcha for verdict in verdicts):
        kept = [v for v in merged(before, verdicts) if v.gotcha == name]
        kept.sort(key=lambda v: (v.reproduction, v.build or 0))
        path = directory / f"{name}.json"
        write_document(path, Verdicts(build=None, verdicts=tuple(kept)))
        written.append(path)
    return tuple(written)
