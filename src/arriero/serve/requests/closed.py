"""What is answered without the engine: what its command has closed, and its health meanwhile.

The engine behind the front door runs with ``--metrics``, and may save slots, whatever the command
says; clients find these closed as they would without Arriero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from arriero.launch import Serving
from arriero.serve.http.interface import Headers, Request
from arriero.serve.requests.ledger import Outcome
from arriero.serve.supervisor.interface import State

_JSON: Final[Headers] = ((b"content-type", b"application/json; charset=utf-8"),)
_HEALTH: Final = frozenset({"/health", "/v1/health"})
_MORE: Final[Headers] = ((b"retry-after", b"1"),)
_AWAY: Final = {
    State.STARTING: "Loading model",
    State.RECOVERING: "Loading model",
    State.DRAINING: "The server is stopping",
    State.FAILED: "The engine was given up: see /arriero/status",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Headers
    body: bytes
    outcome: Outcome


def closed(
    request: Request, serving: Serving, state: State, *, saves: bool = False
) -> Reply | None:
    """The answer to what the engine is not asked; None for all that it is.

    Args:
        serving: As clients know the server from its command.
        saves: The command itself lets clients save slots.
    """
    path = request.path.removeprefix(serving.prefix)
    if request.method == "GET" and path == "/metrics" and not serving.metrics:
        return _not_supported("metrics endpoint", "--metrics")
    if request.method == "POST" and path.startswith("/slots/") and not saves:
        return _not_supported("slots action", "--slot-save-path")
    if path in _HEALTH and state in _AWAY:
        body = _error(503, _AWAY[state], "unavailable_error")
        return Reply(503, (*_JSON, *_MORE), body, Outcome.REFUSED)
    return None


def _not_supported(what: str, flag: str) -> Reply:
    """In the engine's own words (builds 10068 to 10434)."""
    message = f"This server does not support {what}. Start it with `{flag}`"
    body = _error(501, message, "not_supported_error")
    return Reply(501, _JSON, body, Outcome.ANSWERED)


def _error(code: int, message: str, kind: str) -> bytes:
    return msgspec.json.encode({"error": {"code": code, "message": message, "type": kind}})
