"""Tens of thousands of requests: memory and descriptors of Arriero and of the engine.

A tiny model answers, so that what is measured is what stays behind after a request. One stream in
a hundred is given up by its client half-way.

    python bench/soak.py [--build 10434] [--requests 30000] [--clients 16]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arriero.base.sizes import MIB
from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from tests.serve.direct import engine_of
from tests.serve.front import Front
from tests.serve.load import Ask, Seen, all_of, mixed

STEP: Final = 1000
KINDS: Final = ("chat", "text", "native", "messages", "tokenize", "props")


@dataclass(frozen=True)
class Mark:
    """After so many requests: resident MiB, descriptors and threads of both."""

    requests: int
    arriero_mib: float
    arriero_files: int
    engine_mib: float
    engine_files: int
    rate: float


def mark(requests: int, arriero: psutil.Process, engine: psutil.Process, rate: float) -> Mark:
    return Mark(
        requests,
        arriero.memory_info().rss / MIB,
        arriero.num_fds(),
        engine.memory_info().rss / MIB,
        engine.num_fds(),
        rate,
    )


async def give_up(url: str) -> None:
    """Begin a stream and go away."""
    body = Ask(0, "chat", "Tell me a long story.", True, 400).body()
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/v1/chat/completions", json=body) as answer,
        ):
            await answer.content.readany()


async def thousand(url: str, asks: list[Ask], clients: int) -> list[Seen]:
    gone = [asyncio.create_task(give_up(url)) for _ in range(len(asks) // 100)]
    saw = await all_of(url, asks, clients)
    await asyncio.gather(*gone)
    return saw


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--build", type=int, default=10434)
    arguments.add_argument("--requests", type=int, default=30000)
    arguments.add_argument("--clients", type=int, default=16)
    options = arguments.parse_args()
    ends: Counter[str] = Counter()
    marks: list[Mark] = []
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        model = write_model(root / "tiny.gguf", tiny("llama"))
        command: list[str | Path] = [engine_of(options.build), "-m", model, "-c", "4096"]
        command += ["-np", "2", "-cram", "64", "--port", "0"]
        with Front(root, command) as front:
            arriero, engine = psutil.Process(front.pid), psutil.Process(front.engine_pid())
            for n in range(options.requests // STEP):
                asks = [
                    Ask(ask.number, ask.kind, ask.prompt, ask.stream, 2 + ask.number % 5)
                    for ask in mixed(STEP, KINDS, seed=n)
                ]
                begin = time.monotonic()
                for seen in asyncio.run(thousand(front.url, asks, options.clients)):
                    ends["not well-formed" if seen.wrong else seen.outcome] += 1
                front.settled()
                rate = STEP / (time.monotonic() - begin)
                marks.append(mark((n + 1) * STEP, arriero, engine, rate))
                print(marks[-1], file=sys.stderr, flush=True)
            status = front.settled()
    print(f"\n{dict(ends)}; Arriero counts {status['requests']}\n")
    print("| requests | Arriero MiB | files | engine MiB | files | requests/s |")
    print("|" + "---|" * 6)
    for one in marks:
        if one.requests in (STEP, 5 * STEP) or one.requests % (10 * STEP) == 0:
            print(
                f"| {one.requests} | {one.arriero_mib:.1f} | {one.arriero_files} "
                f"| {one.engine_mib:.1f} | {one.engine_files} | {one.rate:.0f} |"
            )
    half = marks[len(marks) // 2]
    thousands = (marks[-1].requests - half.requests) / STEP or 1
    grown = (marks[-1].arriero_mib - half.arriero_mib) / thousands
    beside = (marks[-1].engine_mib - half.engine_mib) / thousands
    print(f"\nSecond half, per 1,000 requests: Arriero {grown:+.3f} MiB, engine {beside:+.3f} MiB.")


if __name__ == "__main__":
    main()
