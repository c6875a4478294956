"""Errors in the form of each API, so that its clients raise them."""

from __future__ import annotations

from typing import Final

import msgspec

from arriero.serve.apis.events import decoded, event_of
from arriero.serve.apis.growing import JSON
from arriero.serve.http.interface import Headers

_MESSAGES: Final = "/v1/messages"
_RESPONSES: Final = "/v1/responses", "/responses"


def error_body(path: str, status: int, message: str, kind: str) -> tuple[Headers, bytes]:
    """A JSON error as the API at this path (without prefix) gives it."""
    error = {"code": status, "message": message, "type": kind or "server_error"}
    if path.startswith(_MESSAGES):
        error["type"] = _anthropic_kind(status)
        return JSON, msgspec.json.encode({"type": "error", "error": error})
    return JSON, msgspec.json.encode({"error": error})


def error_events(path: str, message: str) -> bytes:
    """A stream that consists of an error alone, in the form of the API at this path."""
    error = {"code": 500, "message": message, "type": "server_error"}
    if path.startswith(_MESSAGES):
        error["type"] = _anthropic_kind(500)
        return event_of({"type": "error", "error": error}, "error")
    if path in _RESPONSES:
        # its clients raise only for a field of this name; the others are those of its events
        said = {"type": "error", "code": "server_error", "message": message, "param": None}
        return event_of({**said, "error": error}, "error")
    return event_of({"error": error})


def message_of(body: bytes) -> str:
    """What an error of the engine says; empty where it says nothing."""
    error = (decoded(body) or {}).get("error")
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _anthropic_kind(status: int) -> str:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
    kinds |= {404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error"}
    return kinds.get(status, "overloaded_error" if status == 503 else "api_error")
