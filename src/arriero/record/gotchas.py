"""Known failures, and what reproductions of them showed."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from arriero.base.words import Component, Kind, TrialOutcome
from arriero.record.trial import Requests


class RunEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a reproduction showed."""

    flags: str
    env: dict[str, str]
    limit: int | None = None
    """Address space in bytes."""
    worker_limits: tuple[int | None, ...] = ()
    """The same of each worker."""
    outcome: TrialOutcome
    exit_status: int | None = None
    kind: Kind | None = None
    component: Component | None = None
    text: str = ""
    """The line of the log that shows it."""
    requests: Requests = Requests()
    shows: bool
    """Whether it shows the signature."""


class GotchaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a reproduction showed on one build. Only ``arriero gotchas verify`` writes one."""

    gotcha: str
    reproduction: str
    build: int | None
    verdict: Literal["reproduced", "not reproduced", "could not run"]
    reason: str = ""
    """Why it is not reproduced, or could not run."""
    run: RunEvidence | None = None
    control: RunEvidence | None = None
    machine: str
    """System, processor and the devices that took part."""
    at: str
    """Day, ISO 8601."""
    seconds: float


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of one run of ``gotchas verify``, or all on one gotcha."""

    schema: Literal["arriero.verdicts/1"] = "arriero.verdicts/1"
    build: int | None
    """The build of all of them; null where there are several."""
    verdicts: tuple[GotchaVerdict, ...]
    without: tuple[str, ...] = ()
    """Gotchas that were asked for and have no reproduction."""
    complete: bool = True
    """False when ``gotchas verify`` was interrupted: it holds what was known by then."""


class GotchaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One gotcha with what verdicts say about it."""

    schema: Literal["arriero.gotcha/1"] = "arriero.gotcha/1"
    id: str
    title: str
    bundle: str
    kind: str
    severity: Literal["error", "warning", "info"]
    status: Literal["draft", "reproduced", "not reproduced", "refuted"]
    confidence: Literal["high", "medium", "low"]
    builds: tuple[int, ...]
    """Builds that it was reproduced on."""
    not_builds: tuple[int, ...]
    """Builds that its reproductions ran on without showing it."""
    updated: str
    concepts: tuple[str, ...]
    affects: dict[str, tuple[str, ...]]
    log: tuple[str, ...]
    reporters: int
    provenance: dict[str, Any]
    related: tuple[str, ...]
    reproductions: tuple[str, ...]
    sections: dict[str, str]
    """Heading → text, in their fixed order."""
    verdicts: tuple[GotchaVerdict, ...] = ()


class Gotchas(msgspec.Struct, frozen=True, kw_only=True):
    """All gotchas."""

    schema: Literal["arriero.gotchas/1"] = "arriero.gotchas/1"
    gotchas: tuple[GotchaEntry, ...]
