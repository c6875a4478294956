"""The one entry: what a request asks for, and errors in the form that its clients know."""

from __future__ import annotations

from typing import Final

from arriero.serve.apis.chat import Chat, Completions
from arriero.serve.apis.errors import error_body, error_events, message_of
from arriero.serve.apis.events import decoded
from arriero.serve.apis.growing import Growing
from arriero.serve.apis.interface import Asked, Continue, Defaults
from arriero.serve.apis.messages import Messages
from arriero.serve.apis.native import Native
from arriero.serve.apis.reading import Body, Wish, is_prefilled, most_of, wish_of
from arriero.serve.apis.responses import Responses
from arriero.serve.http.interface import Request

__all__ = ["asked_of", "error_body", "error_events", "message_of"]

_WORKS: Final = {
    "/completion": "completion",
    "/completions": "completion",
    "/v1/completions": "completion",
    "/chat/completions": "chat",
    "/v1/chat/completions": "chat",
    "/api/chat": "chat",
    "/infill": "infill",
    "/v1/messages": "messages",
    "/responses": "responses",
    "/v1/responses": "responses",
    "/embedding": "embedding",
    "/embeddings": "embedding",
    "/v1/embeddings": "embedding",
    "/rerank": "rerank",
    "/reranking": "rerank",
    "/v1/rerank": "rerank",
    "/v1/reranking": "rerank",
    "/v1/audio/transcriptions": "transcription",
    "/audio/transcriptions": "transcription",
}
_ANSWERS: Final[dict[str, type[Growing]]] = {
    "/completion": Native,
    "/completions": Native,
    "/v1/completions": Completions,
    "/chat/completions": Chat,
    "/v1/chat/completions": Chat,
    "/infill": Native,
    "/v1/messages": Messages,
    "/responses": Responses,
    "/v1/responses": Responses,
}
_WHOLE_ONLY: Final = ("verbose", "echo", "return_progress", "timings_per_token")
"""With one of these a whole answer is not what its stream says."""


def asked_of(request: Request, defaults: Defaults, allowed: Continue) -> Asked:
    """Read what a request asks for."""
    path = request.path.removeprefix(defaults.prefix)
    kind = _WORKS.get(path, "other") if request.method == "POST" else "other"
    works = kind != "other"
    answer = _ANSWERS.get(path) if works else None
    body = decoded(request.body) if answer is not None else None
    if answer is None or body is None:
        return Asked(kind, works, streams=False, inside=request, answer=None)
    wish = wish_of(kind, path, request, body, defaults, allowed)
    if wish.streams:
        return Asked(kind, works, True, request, answer(wish, request, body), wish.why_not)
    if wish.why_not or not _streams_inside(wish):
        return Asked(kind, works, False, request, None, wish.why_not)
    body = _streamed(wish)
    inside = wish.asking(body)
    return Asked(kind, works, False, inside, answer(wish, inside, body))


def _streams_inside(wish: Wish) -> bool:
    """Whether a whole answer can be put together from its stream."""
    if any(wish.body.get(name) for name in _WHOLE_ONLY) or is_prefilled(wish.body):
        return False
    return most_of(wish.body) != 0


def _streamed(wish: Wish) -> Body:
    body = {**wish.body, "stream": True}
    if wish.kind == "chat":
        body["stream_options"] = {"include_usage": True}
    return body
