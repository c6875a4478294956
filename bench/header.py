"""How fast a header is read, against the ``gguf`` package, and in how much memory.

A vocabulary of 248,320 tokens with merges and scores, and 1,024 tensors. Run it with ``gguf``
installed to get the ratio: ``pip install gguf && python bench/header.py``.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

TOKENS = 248_320
TENSORS = 1_024

ARRIERO = "from arriero.gguf.reader import read_header as read"
PACKAGE = "from gguf import GGUFReader as read"
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
    start = time.process_time()
    read(Path(sys.argv[1]))
    times.append(time.process_time() - start)
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


def measure(imports: str, path: Path, repeats: int) -> tuple[float, float] | None:
    """CPU seconds (best of the repeats) and MiB of memory that reading added."""
    code = MEASURE.format(imports=imports, repeats=repeats)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stderr.strip().splitlines()[-1], file=sys.stderr)
        return None
    seconds, kib = done.stdout.split()
    return float(seconds), int(kib) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "m.gguf"
        path.write_bytes(model())
        ours = measure(ARRIERO, path, repeats=7)
        theirs = measure(PACKAGE, path, repeats=1)
    assert ours is not None
    print(f"arriero  {ours[0] * 1000:8.1f} ms  {ours[1]:6.1f} MiB")
    if theirs:
        print(f"gguf     {theirs[0] * 1000:8.1f} ms  {theirs[1]:6.1f} MiB")
        print(f"ratio    {theirs[0] / ours[0]:8.1f}")


if __name__ == "__main__":
    main()
