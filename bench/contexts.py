"""What a restart costs a conversation, with and without saved slots: ``cache_n`` tells.

A prompt is read, its slot saved, the engine killed and started again; then a prompt that goes on
where the first ended is asked, once after a restore and once without one. After a second restore
comes a prompt that goes another way after half of it.

    python bench/contexts.py [--tokens 1000] [--builds 10068 10434] [--xllamacpp PYTHON]

``--xllamacpp`` names a Python that has the package xllamacpp, whose server is a newer build than
those of the tests; ``pip install xllamacpp==2026.10.11549`` in a virtual environment makes one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.process import free_port
from arriero.serve.contexts import Contexts
from tests.gguf.serving import Served, serve
from tests.serve.direct import engine_of
from tests.serve.model import small_model

LAUNCHER = """
import sys, time, xllamacpp
model, port, slots, context = sys.argv[1:]
given = xllamacpp.CommonParams()
given.model.path, given.port, given.slot_save_path = model, int(port), slots
given.n_parallel, given.n_ctx, given.kv_unified = 1, int(context), False
server = xllamacpp.Server(given)
while True:
    time.sleep(1)
"""


@dataclass(frozen=True)
class Told:
    """What one answer says of reading its prompt."""

    reused: int
    read: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.reused} of {self.reused + self.read} | {self.seconds:.2f}"


class Place:
    """One engine that can be started again and again with one model."""

    def __init__(self, engine: Path | None, python: Path | None, model: Path, context: int) -> None:
        self.engine, self.python, self.model, self.context = engine, python, model, context

    @contextmanager
    def start(self, slots: Path) -> Iterator[Served]:
        if self.engine is not None:
            more = ("-np", "1", "-c", str(self.context), "--slot-save-path", str(slots))
            with serve(self.engine, self.model, *more) as server:
                yield server
            return
        log = slots.parent / "xllamacpp.log"
        port = free_port()
        words = [str(self.python), "-c", LAUNCHER, str(self.model), str(port), f"{slots}/"]
        with log.open("wb") as out:
            process = subprocess.Popen([*words, str(self.context)], stdout=out, stderr=out)
        server = Served(port, log, process.pid)
        try:
            deadline = time.monotonic() + 120
            while not healthy(server):
                assert process.poll() is None, server.log[-2000:]
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield server
        finally:
            process.kill()
            process.wait()


def healthy(server: Served) -> bool:
    try:
        return asked(server, "GET", "/health", b"")[0] == 200
    except OSError:
        return False


def asked(server: Served, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=300)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def complete(server: Served, prompt: list[int]) -> Told:
    body: dict[str, Any] = {"prompt": prompt, "n_predict": 1, "temperature": 0, "id_slot": 0}
    status, answer = asked(server, "POST", "/completion", json.dumps(body).encode())
    assert status == 200, answer
    timings = json.loads(answer)["timings"]
    return Told(timings["cache_n"], timings["prompt_n"], timings["prompt_ms"] / 1000)


def measured(place: Place, tokens: int) -> str:
    async def call(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return await asyncio.to_thread(asked, server, method, path, body)

    prompt = [(7919 * n) % 200 + 3 for n in range(tokens)]
    more = [*prompt, 5, 6, 7, 8]
    with tempfile.TemporaryDirectory() as directory:
        slots = Path(directory, "slots")
        slots.mkdir(mode=0o700)
        kept = Contexts(slots)
        with place.start(slots) as server:
            complete(server, prompt)
            began = time.monotonic()
            asyncio.run(kept.save(call))
            saving = time.monotonic() - began
        size = sum(one.bytes for one in kept.saved)
        with place.start(slots) as server:
            without = complete(server, more)
        with place.start(slots) as server:
            began = time.monotonic()
            asyncio.run(kept.restore(call, 1))
            restoring = time.monotonic() - began
            went_on = complete(server, more)
        with place.start(slots) as server:
            asyncio.run(kept.restore(call, 1))
            other = complete(server, [*prompt[: tokens // 2], 5, 6, 7, 8])
        kept.close()
    times = f"{saving:.2f} | {restoring:.2f}"
    return f"{size / 2**20:.1f} | {times} | {without} | {went_on} | {other}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--tokens", type=int, default=1000)
    arguments.add_argument("--builds", type=int, nargs="*", default=[10068, 10092, 10434])
    arguments.add_argument("--xllamacpp", type=Path)
    options = arguments.parse_args()
    places: dict[str, tuple[Path | None, Path | None]] = {
        str(build): (engine_of(build), None) for build in options.builds
    }
    if options.xllamacpp:
        places["xllamacpp"] = (None, options.xllamacpp)
    print("| engine | model | MiB | save s | restore s | without: reused | s | restored: reused | s"
          " | restored, other way: reused | s |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        models = {"gemma3 270M": small_model()}
        for arch in ("llama", "qwen35", "lfm2", "mamba2"):
            models[arch] = write_model(Path(directory, f"{arch}.gguf"), tiny(arch))
        for name, (engine, python) in places.items():
            for model, path in models.items():
                place = Place(engine, python, path, options.tokens + 1024)
                print(f"| {name} | {model} | {measured(place, options.tokens)} |", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    main()
