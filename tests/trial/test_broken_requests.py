"""Of what kind a request's failure is: one answer for every command that sends requests."""

from __future__ import annotations

import pytest

from arriero.base.words import Kind
from arriero.trial.replies import Reply, kind_of


@pytest.mark.parametrize(
    ("status", "error", "timed_out", "kind"),
    [
        (None, "no answer within 60 s", True, Kind.HANG),
        (None, "connection broken: ServerDisconnectedError", False, Kind.BACKEND),
        (500, "500: failed to allocate buffer", False, Kind.RUNTIME_ALLOCATION),
        (500, "500: out of memory", False, Kind.RUNTIME_ALLOCATION),
        (500, "500: Compute error.", False, Kind.BACKEND),
        (401, "401: Invalid API Key", False, Kind.CONFIG),
        (400, "400: the request exceeds the available context size", False, Kind.CONFIG),
    ],
)
def test_kind(status: int | None, error: str, timed_out: bool, kind: Kind) -> None:
    reply = Reply(ok=False, status=status, seconds=1.0, tokens=0, error=error, timed_out=timed_out)
    assert kind_of(reply) is kind
