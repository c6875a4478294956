"""What the engine refuses for lack of context: whose fault it is, and what the client is told.

Seen on builds 10068, 10092 and 10434:

- A prompt longer than its slot: 400 ``exceed_context_size_error`` with both numbers, on every
  endpoint that generates, streamed or not. Nothing is left to do.
- An input of an embedding or a rerank longer than the physical batch: **500** ``server_error``,
  which official clients send again. It is the request's own fault, so the client gets the 400.
- Slots that share one KV cache (``--kv-unified``, the default for automatic slots) and together
  need more than it holds: **every** request in work ends with 500 "Context size has been
  exceeded.", whole answers and streams alike, though each alone would fit. It is nobody's fault:
  such a request is sent again, or continued, when fewer are in work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

_TOO_LARGE: Final = re.compile(
    rb"input \((\d{1,10}) tokens\) is (?:too large to process|larger than the max context size)"
    rb"[^\"]{0,200}?size(?: of)?:? \(?(?:current batch size: )?(\d{1,10})"
)
_CROWDED: Final = b"Context size has been exceeded"
_NO_MEMORY: Final = b"std::bad_alloc"
_LONGEST: Final = 1 << 16
"""Bytes of an error that are looked at for that."""
_EVENT: Final = 1024
"""An event that only says that much is short; text that quotes it is an event of another kind."""


class Fault(StrEnum):
    """Why the engine refused."""

    TOO_LONG = "too long"
    """The request alone needs more than one slot has."""
    CROWDED = "crowded"
    """All requests in work together need more than the cache has."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal for lack of context.

    Attributes:
        tokens: What the request has, where the engine says so.
        most: What there is room for, likewise.
    """

    fault: Fault
    tokens: int | None = None
    most: int | None = None

    @property
    def status(self) -> int:
        """What the client is told: its own request is refused as such, never as a failure."""
        return 400 if self.fault is Fault.TOO_LONG else 503

    @property
    def message(self) -> str:
        """One line with the numbers."""
        if self.fault is Fault.CROWDED:
            return "requests in work together need more context than the server has; ask again"
        return (
            f"the input has {self.tokens} tokens and the server takes {self.most} at once (-ub): "
            "shorten it, or start the server with a larger -ub"
        )

    def body(self) -> bytes:
        """The engine's own form of this refusal, as it gives it for a prompt that is too long."""
        error = {
            "code": 400,
            "message": self.message,
            "type": "exceed_context_size_error",
            "n_prompt_tokens": self.tokens,
            "n_ctx": self.most,
        }
        return msgspec.json.encode({"error": error})


def refusal_of(status: int, body: bytes) -> Refusal | None:
    """What an answer with status 5xx says of context; None if it is about something else.

    Ask before the engine is suspected: none of these is a sick engine.
    """
    if status < 500:
        return None
    found = _TOO_LARGE.search(body[:4096])
    if found is not None:
        return Refusal(Fault.TOO_LONG, int(found[1]), int(found[2]))
    return Refusal(Fault.CROWDED) if _CROWDED in body[:4096] else None


def is_crowded(event: bytes) -> bool:
    """Whether one event of a stream ends it because the shared cache is full.

    The event is one of errors: text of an answer that quotes the message is none.
    """
    if _CROWDED not in event or len(event) > _EVENT:
        return False
    return _message(event).startswith(_CROWDED.decode())


def is_out_of_memory(error: bytes) -> bool:
    """Whether an error, as a body or as an event, says that the engine could not allocate.

    Build 10434 answers 400 then ("Unable to generate parser for this template … Error:
    std::bad_alloc"): it lives on, says that it is healthy, and refuses one request after the other.
    Only a message that ends so counts: one that quotes a client goes on behind the quotation.
    """
    if _NO_MEMORY not in error or len(error) > _LONGEST:
        return False
    return _message(error).rstrip().endswith(_NO_MEMORY.decode())


def _message(error: bytes) -> str:
    """What an error says, given as a body or as an event; empty where it is something else."""
    _, found, data = error.partition(b"data:")
    try:
        said = msgspec.json.decode(data if found else error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    told = said.get("error", said) if isinstance(said, dict) else None
    return str(told.get("message", "")) if isinstance(told, dict) else ""
