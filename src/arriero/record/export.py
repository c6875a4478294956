"""A file with which something else starts a supervised server."""

from __future__ import annotations

from typing import Literal

import msgspec


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """A file with which something else starts a supervised server, or stands before it."""

    schema: Literal["arriero.export/1"] = "arriero.export/1"
    target: Literal["systemd", "compose", "llama-swap", "caddy"]
    name: str
    """Of the file, as it is usually called."""
    text: str
    notes: tuple[str, ...] = ()
    """What is left to do by hand, one line each."""
