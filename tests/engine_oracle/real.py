"""The real server's own account of its memory, to hold the dry run against."""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from arriero.process import Running, free_port, start

_SIZE = re.compile(r":\s+(\S+)\s+(output|KV|RS|compute|model) buffer size =\s*([\d.]+) MiB")
_SETTING = re.compile(r"llama_context: (n_\w+)\s+= (\d+)")
_READY = "all slots are idle"
_SECONDS = 60.0

Sizes = dict[tuple[str, str], float]
"""MiB with two digits by kind and buffer; two caches of one kind are added."""


def environment(server: Path, extra: Mapping[str, str] = {}) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(server.parent), **extra}


@contextmanager
def running(
    server: Path, args: Sequence[str], extra: Mapping[str, str] = {}
) -> Iterator[tuple[Running, list[str]]]:
    """The server once it is ready or has ended, with what it logged up to there."""
    arriving: queue.SimpleQueue[str] = queue.SimpleQueue()
    fixed = ["-lv", "4", "-fit", "off", "--no-warmup", "--port", str(free_port())]
    argv = [str(server), *args, *fixed]
    with start(argv, env=environment(server, extra), on_line=arriving.put) as process:
        lines: list[str] = []
        deadline = time.monotonic() + _SECONDS
        while not (lines and _READY in lines[-1]):
            try:
                lines.append(arriving.get(timeout=0.1))
            except queue.Empty:
                assert time.monotonic() < deadline, lines[-5:]
                if process.poll() is not None and arriving.empty():
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
