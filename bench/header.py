"""How fast a header is read, against the ``gguf`` package, and in how much memory; and by range.

A vocabulary of 248,320 tokens with merges and scores, and 1,024 tensors. Run it with ``gguf``
installed to get the ratio: ``pip install gguf && python bench/header.py``. The remote reading is
from a server here that answers every request after 50 ms and sends 100 Mbit/s, beside one request
for exactly the header's bytes, whose number nobody knows beforehand.
"""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import ClassVar

TOKENS = 248_320
TENSORS = 1_024
LATENCY = 0.05
BYTES_PER_SECOND = 12_500_000

ARRIERO = "from arriero.gguf.reader import read_header as read"
PACKAGE = "from gguf import GGUFReader as read"
REMOTE = """
from arriero.gguf import open_model, ranges, read_source
def read(address):
    source = open_model(str(address).replace(":/", "://"))
    try:
        return read_source(source)
    finally:
        source.close()
"""
ONE_GET = """
from urllib.request import Request, urlopen
def read(address):
    address, _, end = str(address).replace(":/", "://").partition("#")
    with urlopen(Request(address, headers={"Range": f"bytes=0-{end}"})) as answer:
        assert len(answer.read()) == int(end) + 1
"""
MEASURE = """
import sys, time
from pathlib import Path
{imports}
def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
before = status("VmRSS")
times = []
for _ in range({repeats}):
    start = time.{clock}()
    read(Path(sys.argv[1]))
    times.append(time.{clock}() - start)
print(min(times), status("VmHWM") - before)
"""


def text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def array(key: bytes, kind: int, count: int, body: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", 9, kind, count) + body


def model() -> bytes:
    source = random.Random(1)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    words = [
        bytes(source.choices(letters, k=min(30, max(1, int(source.gauss(6, 3))))))
        for _ in range(TOKENS)
    ]
    merges = [a + b" " + b for a, b in pairwise(words)]
    parts = [
        b"GGUF" + struct.pack("<IQQ", 3, TENSORS, 4),
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
        array(b"tokenizer.ggml.tokens", 8, len(words), b"".join(map(text, words))),
        array(b"tokenizer.ggml.merges", 8, len(merges), b"".join(map(text, merges))),
        array(b"tokenizer.ggml.scores", 6, len(words), bytes(4 * len(words))),
    ]
    for i in range(TENSORS):
        name = text(b"blk.%d.attn_q.weight" % i)
        parts.append(name + struct.pack("<IQQIQ", 2, 256, 16, 1, i * 8192))
    head = b"".join(parts)
    return head + bytes(-len(head) % 32 + TENSORS * 8192)


class Ranges(BaseHTTPRequestHandler):
    """Sends ranges of one file, late and not faster than a line would."""

    protocol_version = "HTTP/1.1"
    data: ClassVar[bytes]
    sent: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        wanted = re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        assert wanted
        first, last = int(wanted[1]), min(int(wanted[2]), len(self.data) - 1)
        time.sleep(LATENCY)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        for at in range(first, last + 1, 1 << 16):
            piece = self.data[at : min(at + (1 << 16), last + 1)]
            time.sleep(len(piece) / BYTES_PER_SECOND)
            self.wfile.write(piece)
        self.sent.append(last - first + 1)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(data: bytes) -> Iterator[str]:
    Ranges.data = data
    with ThreadingHTTPServer(("127.0.0.1", 0), Ranges) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/m.gguf"
        finally:
            server.shutdown()


def measure(
    imports: str, place: str, repeats: int, clock: str = "process_time"
) -> tuple[float, float] | None:
    """Seconds (best of the repeats) and MiB of memory that reading added."""
    code = MEASURE.replace("{imports}", imports).replace("{repeats}", str(repeats))
    done = subprocess.run(
        [sys.executable, "-c", code.replace("{clock}", clock), place],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1], file=sys.stderr)
        return None
    seconds, kib = done.stdout.split()
    return float(seconds), int(kib) / 1024


def local(path: Path) -> None:
    ours = measure(ARRIERO, str(path), repeats=7)
    theirs = measure(PACKAGE, str(path), repeats=1)
    assert ours is not None
    print(f"arriero  {ours[0] * 1000:8.1f} ms  {ours[1]:6.1f} MiB of memory")
    if theirs:
        print(f"gguf     {theirs[0] * 1000:8.1f} ms  {theirs[1]:6.1f} MiB of memory")
        print(f"ratio    {theirs[0] / ours[0]:8.1f}")


def remote(data: bytes, header: int) -> None:
    with served(data) as address:
        for name, code, place in (
            ("by range", REMOTE, address),
            ("one GET", ONE_GET, f"{address}#{header - 1}"),
        ):
            Ranges.sent.clear()
            taken = measure(code, place, repeats=1, clock="perf_counter")
            assert taken is not None
            print(
                f"{name}  {taken[0] * 1000:8.1f} ms  {taken[1]:6.1f} MiB of memory  "
                f"{len(Ranges.sent)} requests  {sum(Ranges.sent)} bytes of a header of {header}"
            )


def main() -> None:
    data = model()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m.gguf"
        path.write_bytes(data)
        local(path)
    remote(data, len(data) - TENSORS * 8192)


if __name__ == "__main__":
    main()
