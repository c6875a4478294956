"""The real server's own account of its memory, to hold the dry run against."""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from arriero.process import Running, start

_SIZE = re.compile(r":\s+(\S+)\s+(output|KV|RS|compute|model) buffer size =\s*([\d.]+) MiB")
_SETTING = re.compile(r"llama_context: (n_\w+)\s+= (\d+)")
_READY = "all slots are idle"
_UNASKED = re.compile(r"couldn't bind|GGML_ASSERT|terminate called")
"""An end that has nothing to do with what the server was asked for."""
_SECONDS = 60.0
ANY_PORT = ("--port", "0")
"""The server takes a free port itself. One that is looked for before may be gone when it starts."""

Sizes = dict[tuple[str, str], float]
"""MiB with two digits by kind and buffer; two caches of one kind are added."""


def environment(server: Path, extra: Mapping[str, str] = {}) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(server.parent), **extra}


@contextmanager
def running(
    server: Path, args: Sequence[str], extra: Mapping[str, str] = {}
) -> Iterator[tuple[Running, list[str]]]:
    """The server once it is ready or has refused to run, with what it logged up to there."""
    arriving: queue.SimpleQueue[str] = queue.SimpleQueue()
    argv = [str(server), *args, "-lv", "4", "-fit", "off", "--no-warmup", *ANY_PORT]
    with start(argv, env=environment(server, extra), on_line=arriving.put) as process:
        lines: list[str] = []
        deadline = time.monotonic() + _SECONDS
        while not (lines and _READY in lines[-1]):
            try:
                lines.append(arriving.get(timeout=0.1))
            except queue.Empty:
                assert time.monotonic() < deadline, lines[-5:]
                ended = process.poll()
                if ended is not None and arriving.empty():
                    assert ended.status == 1, (ended, lines[-5:])
                    assert not any(_UNASKED.search(line) for line in lines), lines[-5:]
                    break
        yield process, lines


def account(
    server: Path, args: Sequence[str], extra: Mapping[str, str] = {}
) -> tuple[Sizes, dict[str, int]]:
    """Size lines and effective values of one start of the server."""
    sizes: Sizes = {}
    settings: dict[str, int] = {}
    with running(server, args, extra) as (_, lines):
        for line in lines:
            if match := _SIZE.search(line):
                device, kind, mib = match.groups()
                sizes[kind, device] = sizes.get((kind, device), 0.0) + float(mib)
            if match := _SETTING.search(line):
                settings[match[1]] = int(match[2])
    return sizes, settings
