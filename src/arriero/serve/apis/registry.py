"""The one entry: what a request asks for, and errors in the form that its clients know."""

from __future__ import annotations

import msgspec

from arriero.serve.apis.interface import Asked, Continue, Defaults
from arriero.serve.http.interface import Headers, Request

_JSON: Headers = ((b"content-type", b"application/json; charset=utf-8"),)
_WORKS = {
    "/completion": "completion",
    "/completions": "completion",
    "/v1/completions": "completion",
    "/chat/completions": "chat",
    "/v1/chat/completions": "chat",
    "/infill": "infill",
    "/v1/messages": "messages",
    "/v1/responses": "responses",
    "/embedding": "embedding",
    "/embeddings": "embedding",
    "/v1/embeddings": "embedding",
    "/rerank": "rerank",
    "/reranking": "rerank",
    "/v1/rerank": "rerank",
    "/v1/reranking": "rerank",
    "/v1/audio/transcriptions": "transcription",
}


def asked_of(request: Request, defaults: Defaults, allowed: Continue) -> Asked:
    """Read what a request asks for."""
    kind = _WORKS.get(request.path.removeprefix(defaults.prefix), "other")
    works = kind != "other" and request.method == "POST"
    return Asked(kind, works, streams=False, inside=request, answer=None)


def error_body(path: str, status: int, message: str, kind: str) -> tuple[Headers, bytes]:
    """A JSON error as the API at this path (without prefix) gives it."""
    error = {"code": status, "message": message, "type": kind or "server_error"}
    return _JSON, msgspec.json.encode({"error": error})


def error_events(path: str, message: str) -> bytes:
    """A stream that consists of an error alone."""
    return b"data: " + error_body(path, 500, message, "server_error")[1] + b"\n\n"


def message_of(body: bytes) -> str:
    """What an error of the engine says; empty where it says nothing."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    error = told.get("error") if isinstance(told, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""
