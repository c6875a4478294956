"""Which gotchas a log shows signs of, without knowing the command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from arriero.gotchas.model import Sign
from arriero.gotchas.registry import Entry, Registry
from arriero.logs.model import Failure, Notice
from arriero.record import Explanation, KnownFailure


def known_in(log: Explanation, rules: Registry) -> tuple[KnownFailure, ...]:
    """The gotchas whose signs a log shows, the sure ones first."""
    found = [hit for entry in rules.entries if (hit := _first(log, entry)) is not None]
    return tuple(sorted(found, key=lambda hit: (hit.applies != "yes", hit.line)))


def _first(log: Explanation, entry: Entry) -> KnownFailure | None:
    for sign in entry.head.signs:
        line = next(_lines(log, sign), None)
        if line is None or not _of_builds(log.engine.build, sign):
            continue
        return KnownFailure(
            id=entry.id,
            title=entry.title,
            applies="yes" if sign.sure else "maybe",
            line=line,
            workaround=entry.sections["Workaround"],
        )
    return None


def _lines(log: Explanation, sign: Sign) -> Iterator[int]:
    if sign.notice is not None:
        yield from (n.line for n in log.notices if n.id == sign.notice and _says(n, sign))
        return
    failures: Iterable[Failure] = () if log.failure is None else (log.failure,)
    if sign.text is not None:
        failures = (*failures, *log.secondary)
    yield from (f.line for f in failures if _fits(f, sign))


def _fits(failure: Failure, sign: Sign) -> bool:
    device = failure.device or ""
    return (
        (not sign.kinds or failure.kind in sign.kinds)
        and (not sign.components or failure.component in sign.components)
        and (not sign.phases or failure.phase in sign.phases)
        and (sign.device is None or device.startswith(sign.device))
        and (not sign.cpu or failure.cpu is not None)
        and (failure.bytes or 0) >= sign.least
        and _says(failure, sign)
    )


def _says(what: Failure | Notice, sign: Sign) -> bool:
    return sign.text is None or re.search(sign.text, what.text) is not None


def _of_builds(build: int | None, sign: Sign) -> bool:
    return build is None or sign.builds is None or sign.builds[0] <= build <= sign.builds[1]
