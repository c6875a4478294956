"""How fast a long log is read, and in how much memory, beside ``grep`` and a plain loop of Python.

Each reader runs in a process of its own on the same file: a start and hours of serving, made of
lines that an engine printed, and a death at the end. ``python bench/explain.py [MEGABYTES]``.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

HERE = Path(__file__).resolve().parent
START = HERE.parent / "tests" / "logs" / "data" / "captured" / "ready.txt"
WORDS = (
    "failed to allocate",
    "out of memory",
    "insufficient memory",
    "GGML_ASSERT",
    "buffer size =",
    "exiting due to",
    "failed to create",
    "RPC server",
)
"""What somebody would look for by hand."""
SERVING = b"""\
%(t)s I slot get_availabl: id  3 | task -1 | selected slot by LRU, t_last = %(n)d
%(t)s I slot launch_slot_: id  3 | task %(n)d | processing task, is_child = 0
%(t)s I slot update_slots: id  3 | task %(n)d | prompt processing progress, n_tokens = %(n)d
%(t)s I slot update_slots: id  3 | task %(n)d | created context checkpoint 1 of 32 (pos_min = 0, \
pos_max = %(n)d, n_tokens = %(n)d, size = 62.813 MiB)
%(t)s I slot print_timing: id  3 | task %(n)d | prompt eval time = %(n)d.72 ms / %(n)d tokens
%(t)s I slot print_timing: id  3 | task %(n)d |        eval time =     157.84 ms /     4 tokens
%(t)s I slot      release: id  3 | task %(n)d | stop processing: n_tokens = %(n)d, truncated = 0
%(t)s I srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200
%(t)s I srv  update_slots: all slots are idle
"""
END = b"""\
CUDA error: out of memory
  current device: 0, in function alloc at /src/ggml-cuda/ggml-cuda.cu:529
  cuMemCreate(&handle, reserve_size, &prop, 0)
"""


def lines(megabytes: int) -> Iterator[bytes]:
    """A log of about that size, in pieces."""
    yield START.read_bytes().rsplit(b"\n", 4)[0] + b"\n"
    size = 0
    task = 0
    while size < megabytes * 1_000_000:
        stamp = b"%d.%02d.%03d.%03d" % (task // 60, task % 60, task % 1000, task * 7 % 1000)
        piece = SERVING % {b"t": stamp, b"n": task}
        size += len(piece)
        task += 1
        yield piece
    yield END


def by_arriero(path: Path) -> object:
    from arriero.logs import read_log

    def chunks(file: BinaryIO) -> Iterator[bytes]:
        while chunk := file.read(1 << 20):
            yield chunk

    with path.open("rb") as file:
        failure = read_log(chunks(file))[0].failure
    return failure and (failure.kind.value, failure.line)


def by_loop(path: Path) -> object:
    wanted = re.compile("|".join(map(re.escape, WORDS)))
    with path.open(encoding="utf-8", errors="replace") as file:
        return sum(1 for line in file if wanted.search(line))


def by_grep(path: Path) -> object:
    argv = ["grep", "-c", *(part for word in WORDS for part in ("-e", word)), str(path)]
    return int(subprocess.run(argv, capture_output=True, check=True).stdout)


READERS = {"arriero": by_arriero, "loop": by_loop, "grep": by_grep}


def child(name: str, path: Path) -> None:
    """Read once; print seconds, peak memory in KiB, and what was found."""
    began = time.perf_counter()
    found = READERS[name](path)
    seconds = time.perf_counter() - began
    who = resource.RUSAGE_CHILDREN if name == "grep" else resource.RUSAGE_SELF
    print(seconds, resource.getrusage(who).ru_maxrss, found, sep="\t")


def main() -> None:
    if len(sys.argv) == 3:
        child(sys.argv[1], Path(sys.argv[2]))
        return
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "server.log"
        with path.open("wb") as file:
            file.writelines(lines(megabytes))
        size = path.stat().st_size / 1e6
        rows: dict[str, tuple[float, float, str]] = {}
        for name in READERS:
            argv = [sys.executable, __file__, name, str(path)]
            out = subprocess.run(argv, capture_output=True, check=True, text=True).stdout
            seconds, peak, found = out.rstrip("\n").split("\t")
            rows[name] = (size / float(seconds), int(peak) / 1024, found)
    print(f"{size:.0f} MB")
    print(f"{'reader':10}{'MB/s':>8}{'of arriero':>12}{'peak MiB':>10}  found")
    for name, (speed, memory, found) in rows.items():
        ratio = speed / rows["arriero"][0]
        print(f"{name:10}{speed:8.0f}{ratio:11.2f}x{memory:10.0f}  {found}")


if __name__ == "__main__":
    main()
