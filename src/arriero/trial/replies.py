"""Replies of a server, and what the ones of a whole load come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from arriero.base.words import Kind
from arriero.record import Requests, Speed, Step


@dataclass(frozen=True)
class Reply:
    """One answered, refused or broken request."""

    ok: bool
    status: int | None
    seconds: float
    tokens: int
    slot: int | None = None
    prompt_tps: float | None = None
    predict_tps: float | None = None
    error: str = ""
    timed_out: bool = False


def kind_of(broken: Reply) -> Kind:
    """Why a request failed: no answer in time, no memory, a bad request (4xx), or the server."""
    if broken.timed_out:
        return Kind.HANG
    if "alloc" in broken.error or "memory" in broken.error:
        return Kind.RUNTIME_ALLOCATION
    refused = broken.status is not None and 400 <= broken.status < 500
    return Kind.CONFIG if refused else Kind.BACKEND


@dataclass
class LoadResult:
    """The result of a load. ``broken`` is the first request that failed, if any."""

    steps: list[Step] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)

    @property
    def requests(self) -> Requests:
        ok = sum(reply.ok for reply in self.replies)
        return Requests(sent=len(self.replies), ok=ok, failed=len(self.replies) - ok)

    @property
    def broken(self) -> Reply | None:
        return next((reply for reply in self.replies if not reply.ok), None)

    @property
    def speed(self) -> Speed:
        def best(values: list[float]) -> float | None:
            return round(max(values), 2) if values else None

        return Speed(
            prompt_tps=best([r.prompt_tps for r in self.replies if r.prompt_tps]),
            predict_tps=best([r.predict_tps for r in self.replies if r.predict_tps]),
        )


def read_reply(status: int, answer: Any, seconds: float, sent: int) -> Reply:
    if status != 200 or not isinstance(answer, dict | list):
        return Reply(
            ok=False, status=status, seconds=seconds, tokens=0, error=_error_text(status, answer)
        )
    answer = answer if isinstance(answer, dict) else {}
    timings = answer.get("timings")
    timings = timings if isinstance(timings, dict) else {}

    def rate(key: str) -> float | None:
        value = timings.get(key)
        return float(value) if isinstance(value, int | float) and 0 < value < 1e9 else None

    tokens = timings.get("prompt_n")
    slot = answer.get("id_slot")
    return Reply(
        ok=True,
        status=status,
        seconds=seconds,
        tokens=tokens if isinstance(tokens, int) else sent,
        slot=slot if isinstance(slot, int) else None,
        prompt_tps=rate("prompt_per_second"),
        predict_tps=rate("predicted_per_second"),
    )


def _error_text(status: int, answer: Any) -> str:
    message = answer
    if isinstance(answer, dict):
        error = answer.get("error", answer)
        message = error.get("message", error) if isinstance(error, dict) else error
    return f"HTTP {status}: {' '.join(str(message).split())[:200]}"
