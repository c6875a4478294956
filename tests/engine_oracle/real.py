"""The real server's own account of its memory, to hold the dry run against."""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from arriero.process import Running, start

_SIZE = re.compile(r":\s+(\S+)\s+(output|KV|RS|compute|model) buffer size =\s*([\d.]+) MiB")
_SETTING = re.compile(r"llama_context: (n_\w+)\s+= (\d+)")
_READY = "all slots are idle"
_REFUSED: Final = 1
_WRONG_PROCESSOR: Final = -4
"""SIGILL. The wheels of 10092 and 10434 have AVX-VNNI in their dot product of Q8_0: with quantized
keys they die of the first decode on a processor without it, right after their size lines."""
_LATE_DEATH: Final = -11
"""SIGSEGV. Build 10068 dies of it, mostly, after it has refused to make a context."""
_REFUSAL: Final = "failed to create context"
_STARTS: Final = 20
_SECONDS: Final = 60.0
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
                    known = (_REFUSED, _WRONG_PROCESSOR, _LATE_DEATH)
                    assert ended.status in known, (ended, lines[-5:])
                    break
        yield process, lines


def account(
    server: Path, args: Sequence[str], extra: Mapping[str, str] = {}
) -> tuple[Sizes, dict[str, int]]:
    """Size lines and effective values of one start of the server.

    A server that dies may take the last lines of its log along; then the next start tells.
    """
    for _ in range(_STARTS):
        with running(server, args, extra) as (process, lines):
            ended = process.poll()
        sizes: Sizes = {}
        for device, kind, mib in (m.groups() for line in lines if (m := _SIZE.search(line))):
            sizes[kind, device] = sizes.get((kind, device), 0.0) + float(mib)
        found = (_SETTING.search(line) for line in lines)
        settings = {match[1]: int(match[2]) for match in found if match}
        whole = any(kind == "compute" for kind, _ in sizes)
        refused = ended is not None and (
            ended.status == _REFUSED or any(_REFUSAL in line for line in lines)
        )
        if whole or ended is None or refused:
            return sizes, settings
    raise AssertionError(f"no log of {_STARTS} starts is whole: {lines[-5:]}")
