"""Events of a stream, as bytes: whole ones only, so that no event or character is ever cut."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from arriero.base import limits

_END: Final = b"\n\n"


class Splitter:
    """Cuts a stream of bytes between its events.

    The engine ends lines by a line feed alone, and none stands inside its JSON.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The events that are whole now, each with the empty line that ends it."""
        data = self._rest + data if self._rest else data
        *events, self._rest = data.split(_END)
        if len(self._rest) > limits.DOCUMENT:  # no event of an engine: let it go as it is
            events, self._rest = [*events, self._rest], b""
        return [event + _END for event in events]


def data_of(event: bytes) -> dict[str, Any] | None:
    """What an event says, if it is a JSON object; None for ``[DONE]``, comments and the like."""
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            return decoded(line[5:])
    return None


def decoded(text: bytes) -> dict[str, Any] | None:
    """A JSON object; None if it is not one."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def event_of(data: dict[str, Any], name: str = "") -> bytes:
    """An event that says this; APIs that name their events do it in a line of its own."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + msgspec.json.encode(data) + _END


def is_error(event: bytes) -> bool:
    """Whether the engine ends a stream by this event because it failed.

    Text of an answer cannot look like it: its quotes are escaped, and it begins in another way.
    """
    return event.startswith((b'data: {"error"', b"event: error", b"error:"))
