"""From a kill to the first answer, against the engine's own cold start.

In turn: the engine alone, from its start to its first answer; and the engine under ``arriero
serve``, from SIGKILL to the answer to a request that was sent right after it.

    python bench/recovery.py [--build 10434] [--rounds 15]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.serve.direct import direct, engine_of
from tests.serve.front import Front
from tests.serve.load import Ask, all_of
from tests.serve.model import small_model

ASK = Ask(0, "native", "Once upon a time", most=1)
AIM = 1.15


def answer(url: str) -> float:
    """When the answer to one request was whole."""
    (seen,) = asyncio.run(all_of(url, [ASK], 1, keep=False))
    assert seen.outcome == "answered", seen
    return seen.ended


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--build", type=int, default=10434)
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()
    engine = engine_of(options.build)
    words: list[str | Path] = ["-m", small_model(), "-c", "4096", "-np", "1"]
    cold: list[float] = []
    again: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        command: list[str | Path] = [engine, *words, "--port", "0"]
        with Front(root, command, ["--restarts", "10000/600"]) as front:
            for _ in range(options.rounds + 1):
                begin = time.monotonic()
                with direct(engine, words, root / "log") as (url, _pid):
                    cold.append(answer(url) - begin)
                pid = front.engine_pid()
                begin = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                again.append(answer(front.url) - begin)
    print(f"| build {options.build}, {options.rounds} rounds | median s | least | most |")
    print("|---|---|---|---|")
    for name, times in (("cold start to first answer", cold), ("kill to first answer", again)):
        kept = times[1:]  # the first one reads the files into memory
        print(f"| {name} | {statistics.median(kept):.3f} | {min(kept):.3f} | {max(kept):.3f} |")
    ratio = statistics.median(again[1:]) / statistics.median(cold[1:])
    print(f"\nRatio of the medians: {ratio:.2f} (aim: at most {AIM}).")
    sys.exit(ratio > AIM)


if __name__ == "__main__":
    main()
