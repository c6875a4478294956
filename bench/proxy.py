"""What Arriero adds to a request: the engine alone, behind Arriero, behind Caddy, behind nginx.

All in one run, in turn, many short rounds each, so that a busy machine is as busy for all of them;
the median round counts. The engine does no work. Its answers are

* ``vector``: a whole answer that is passed on (embeddings),
* ``answer``: a whole chat answer, which Arriero has streamed inside so that it can continue it,
* ``stream``: chat streams at a rate.

    python bench/proxy.py [--rounds 20] [--seconds 0.5] [--streams 32] [--rate 200]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from tests.serve.direct import free_port
from tests.serve.front import Front

ROOT: Final = Path(__file__).resolve().parent.parent
CLIENTS: Final = (1, 8, 32)
PATHS: Final = {"vector": "/v1/embeddings", "answer": "/v1/chat/completions"}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "vector": {"input": "the quick brown fox " * 20, "model": "m"},
    "answer": {
        "messages": [{"role": "user", "content": "the quick brown fox " * 20}],
        "temperature": 0,
        "max_tokens": 1,
    },
}


def request(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


class Client(asyncio.Protocol):
    """Sends a request whenever the answer to the one before it is whole."""

    def __init__(self, sent: bytes, until: float, streams: bool) -> None:
        self.sent, self.until, self.streams = sent, until, streams
        self.times: list[float] = []
        self.events = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.buffer = b""
        self.failed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.send()

    def send(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(self.sent)

    def data_received(self, data: bytes) -> None:
        if self.streams:
            if not self.buffer and b" 200 " not in data[:16]:
                self.failed = True
                self.finish(None)
                return
            self.events += (self.buffer[-5:] + data).count(b"data: ")
            self.buffer = self.buffer[-7:] + data
            if self.buffer.endswith(b"\r\n0\r\n\r\n"):
                self.finish(None)
            return
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            whole = body.endswith(b"\r\n0\r\n\r\n")
        else:
            length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            whole = len(body) >= length
        if whole:
            if b" 200 " not in head[:16]:
                self.finish(RuntimeError(head.decode()))
                return
            self.times.append(time.perf_counter() - self.began)
            self.buffer = b""
            if time.perf_counter() < self.until:
                self.send()
            else:
                self.finish(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.finish(error or RuntimeError(f"connection ended: {self.buffer!r}"))

    def finish(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error) if error else self.done.set_result(None)
            self.transport.close()


async def load(port: int, sent: bytes, clients: int, seconds: float, streams: bool) -> list[Client]:
    """So many clients at once."""
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = [
        (await loop.create_connection(lambda: Client(sent, until, streams), "127.0.0.1", port))[1]
        for _ in range(clients)
    ]
    await asyncio.wait_for(asyncio.gather(*(one.done for one in made)), 60 + seconds)
    return made


@dataclass
class Way:
    """One way to the engine, and what was measured on it."""

    name: str
    port: int
    pid: int
    p50: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    p99: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    rate: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    cost: dict[tuple[str, int], list[float]] = field(default_factory=dict)
    events: list[float] = field(default_factory=list)
    flood: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    failed: int = 0
    """Streams that were answered with an error."""

    def cpu_seconds(self) -> float:
        total = 0.0
        process = psutil.Process(self.pid)
        workers = process.children(recursive=True) if self.name == "nginx" else []
        for one in (process, *workers):
            times = one.cpu_times()
            total += times.user + times.system
        return total


def measure_requests(way: Way, kind: str, clients: int, seconds: float) -> None:
    sent = request(PATHS[kind], BODIES[kind])
    before, began = way.cpu_seconds(), time.perf_counter()
    made = uvloop.run(load(way.port, sent, clients, seconds, False))
    taken, used = time.perf_counter() - began, way.cpu_seconds() - before
    times = sorted(one for client in made for one in client.times)
    key = kind, clients
    way.p50.setdefault(key, []).append(times[len(times) // 2] * 1000)
    way.p99.setdefault(key, []).append(times[int(len(times) * 0.99)] * 1000)
    way.rate.setdefault(key, []).append(len(times) / taken)
    way.cost.setdefault(key, []).append(used / len(times) * 1e6)


def measure_streams(way: Way, streams: int, rate: float, count: int) -> None:
    body = {**BODIES["answer"], "stream": True, "max_tokens": count, "rate": rate}
    before, began = way.cpu_seconds(), time.perf_counter()
    made = uvloop.run(load(way.port, request(PATHS["answer"], body), streams, 0, True))
    taken = time.perf_counter() - began
    events = sum(one.events for one in made)
    failed = sum(one.failed for one in made)
    way.failed += failed
    assert events >= (streams - failed) * count, (way.name, events)
    if rate:
        way.events.append(events / taken)
        way.cpu.append((way.cpu_seconds() - before) / events * 1e6)
    else:
        way.flood.append(events / taken)


@contextlib.contextmanager
def running(argv: Sequence[str | Path], port: int) -> Iterator[int]:
    """A program that listens on this port."""
    made = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                asyncio.run(_connect(port))
                break
            assert made.poll() is None, argv
            assert time.monotonic() < deadline, argv
            time.sleep(0.05)
        yield made.pid
    finally:
        made.terminate()
        made.wait(10)


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


def caddy_of(root: Path, engine: int, port: int) -> list[str | Path]:
    """Without logs, and passing events on at once."""
    config = root / "Caddyfile"
    config.write_text(
        "{\n admin off\n auto_https off\n persist_config off\n}\n"
        f"http://127.0.0.1:{port} {{\n reverse_proxy 127.0.0.1:{engine} {{\n"
        "  flush_interval -1\n }\n}\n"
    )
    program = Path(sys.executable).with_name("caddy")
    return [program, "run", "--config", config, "--adapter", "caddyfile"]


def nginx_of(root: Path, engine: int, port: int) -> list[str | Path]:
    """One worker, connections kept, no buffers."""
    config = root / "nginx.conf"
    config.write_text(
        f"daemon off; pid {root}/nginx.pid; error_log stderr crit; worker_processes 1;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n"
        f"fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n"
        f"upstream e {{ server 127.0.0.1:{engine}; keepalive 64; keepalive_requests 100000000; }}\n"
        "keepalive_requests 100000000;\n"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://e;\n"
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }\n'
    )
    return ["nginx", "-p", root, "-c", config]


@contextlib.contextmanager
def ways(root: Path) -> Iterator[list[Way]]:
    """All of them, running."""
    program = root / "llama-server"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'bench')!r}]\n"
        "from _still_engine import main\nmain(sys.argv[1:])\n"
    )
    program.chmod(0o700)
    model = write_model(root / "tiny.gguf", tiny("llama"))
    command: list[str | Path] = [program, "-m", model, "-c", "4096", "-np", "64", "--port"]
    with contextlib.ExitStack() as stack:
        port = free_port()
        pid = stack.enter_context(running([*command, str(port)], port))
        found = [Way("direct", port, pid)]
        front = stack.enter_context(Front(root / "front", [*command, "0"], ["--gates", "off"]))
        found.append(Way("arriero", front.port, front.pid))
        others: dict[str, Callable[[Path, int, int], list[str | Path]]] = {}
        if Path(sys.executable).with_name("caddy").exists():
            others["caddy"] = caddy_of
        if shutil.which("nginx"):
            others["nginx"] = nginx_of
        for name, argv in others.items():
            (root / name).mkdir()
            other = free_port()
            pid = stack.enter_context(running(argv(root / name, port, other), other))
            found.append(Way(name, other, pid))
        yield found


def show(found: list[Way], streams: int, rate: float) -> None:
    middle = statistics.median
    direct = found[0]
    for kind in PATHS:
        print(f"\n{kind:<8} clients      req/s     p50 ms   added ms     p99 ms   CPU µs")
        for clients in CLIENTS:
            for way in found:
                key = kind, clients
                pairs = zip(way.p50[key], direct.p50[key], strict=True)
                added = middle(a - b for a, b in pairs)
                print(
                    f"{way.name:<8} {clients:>7} {middle(way.rate[key]):>10.0f} "
                    f"{middle(way.p50[key]):>10.3f} {added:>10.3f} {middle(way.p99[key]):>10.3f} "
                    f"{middle(way.cost[key]):>8.0f}"
                )
    print(f"\n{streams} streams at {rate:g} events/s; as fast as they go; CPU of the process")
    for way in found:
        ratio = middle(a / b for a, b in zip(way.events, direct.events, strict=True))
        flood = middle(a / b for a, b in zip(way.flood, direct.flood, strict=True))
        print(
            f"{way.name:<8} {middle(way.events):>8.0f} events/s ({ratio:.3f} of direct)   "
            f"{middle(way.flood):>8.0f} events/s ({flood:.3f})   {middle(way.cpu):>6.1f} µs/event"
            f"   {way.failed} failed"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rate", type=float, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, ways(Path(directory)) as found:
        for _ in range(asked.rounds):
            for kind in PATHS:
                for clients in CLIENTS:
                    for way in found:
                        measure_requests(way, kind, clients, asked.seconds)
        for _ in range(max(asked.rounds // 4, 2)):
            for way in found:
                measure_streams(way, asked.streams, asked.rate, int(asked.rate * 2))
                measure_streams(way, asked.streams, 0, 2000)
        show(found, asked.streams, asked.rate)


if __name__ == "__main__":
    main()
