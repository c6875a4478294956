"""Bytes to a port and what comes back, for what no client library would send."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Back:
    """What came back: whole bytes, and whether the other side closed the connection."""

    data: bytes
    closed: bool

    @property
    def statuses(self) -> list[int]:
        """The status of each answer in it."""
        return [int(found) for found in re.findall(rb"HTTP/1\.[01] (\d{3}) ", self.data)]


def send(port: int, *pieces: bytes, quiet: float = 0.7, most: float = 15.0) -> Back:
    """Send the pieces and read until nothing has come for ``quiet`` seconds after the first byte.

    Without any answer it waits ``most`` seconds.
    """
    data = b""
    with socket.create_connection(("127.0.0.1", port), timeout=most) as made:
        with contextlib.suppress(OSError):  # it may have closed already
            for piece in pieces:
                made.sendall(piece)
        deadline = time.monotonic() + most
        while time.monotonic() < deadline:
            made.settimeout(quiet if data else deadline - time.monotonic())
            try:
                more = made.recv(1 << 16)
            except TimeoutError:
                return Back(data, False)
            except ConnectionError:
                return Back(data, True)
            if not more:
                return Back(data, True)
            data += more
    return Back(data, False)
