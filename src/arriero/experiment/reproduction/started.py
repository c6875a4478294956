"""What reproductions start besides trials: workers, and engines whose peak becomes a limit."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from arriero.base.words import LimitKind
from arriero.engine import Engine
from arriero.process import Limit, Running, clean_environment, free_port, start

HIDDEN: Final = {
    "GGML_VK_VISIBLE_DEVICES": "99",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HIP_VISIBLE_DEVICES": "-1",
}
"""No device of that number: everything is on the CPU unless a run shows one."""
_GIVE_UP: Final = 60.0
"""Seconds that a start may take."""


class CannotRunError(Exception):
    """This machine or engine lacks what a reproduction needs."""


@contextmanager
def worker(
    engine: Engine, env: Mapping[str, str], limit: int | None
) -> Iterator[tuple[str, Running]]:
    """A worker on the loopback. Its banner is buffered: that it listens, connecting shows."""
    if engine.rpc_server is None:
        raise CannotRunError("there is no ggml-rpc-server beside the engine")
    port = free_port()
    words = [str(engine.rpc_server), "-H", "127.0.0.1", "-p", str(port)]
    environ = engine.environment({**clean_environment(), **HIDDEN, **env})
    bound = Limit(limit, LimitKind.ADDRESS_SPACE) if limit else None
    with start(words, env=environ, on_line=lambda _: None, limit=bound) as running:
        deadline = time.monotonic() + _GIVE_UP
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if running.poll() is not None or time.monotonic() > deadline:
                    raise CannotRunError("the worker does not start") from None
                time.sleep(0.05)
        yield f"127.0.0.1:{port}", running


def ready_peak(engine: Engine, model: str, flags: list[str], env: Mapping[str, str]) -> int:
    """The most address space that it has taken when it is ready, in bytes."""
    told = threading.Event()

    def on_line(line: str) -> None:
        if "model loaded" in line:
            told.set()

    words = [str(engine.path), "-m", model, "--port", str(free_port()), *flags]
    environ = engine.environment({**clean_environment(), **HIDDEN, **env})
    with start(words, env=environ, on_line=on_line) as running:
        deadline = time.monotonic() + _GIVE_UP
        while not told.wait(0.05):
            if running.poll() is not None or time.monotonic() > deadline:
                raise CannotRunError("what its limit is measured by does not start")
        peak = running.memory().address_space_peak
    if peak is None:
        raise CannotRunError("address space cannot be measured here")
    return peak
