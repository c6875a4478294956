"""A llama-server that does no work and dies when it is told to: a program, not a mock.

It answers ``--version``, ``--help``, ``--list-devices``, listens as the real one does (a UNIX
socket, a port, a prefix, a key) and writes each request to a ledger (``fsync``) before it does
anything with it. What it answers follows from the prompt alone, so that every answer, undisturbed
or continued, has one right text:

    ``job:NAME:N`` in the prompt asks for N words, ``NAME-0 ``, ``NAME-1 ``, ...

Text that comes after that marker is taken for what has been answered already. ``Home`` is how a
test tells it what to do: an order is a file, and is used up by the start that follows it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.serve.fake_engine.answers import (
    MARK,
    STREAMED,
    Shape,
    Vocabulary,
    compact,
    rest_of,
    template,
)
from tests.serve.fake_engine.home import Home, Order

VERSION: Final = "version: 0.1.0-dev (build 10434, commit 7e4c0a9)"
DEATHS: Final = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "abort": signal.SIGABRT}
DIES_OF_ORDER: Final = 7
N_CTX: Final = 4096
VECTORS: Final = ("/v1/embeddings", "/embeddings")


@dataclass
class Asked:
    """One request as it was read."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any] = field(default_factory=dict)
    job: str = ""


class Refused(Exception):  # noqa: N818  not an error of this program
    """An answer that is not 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """The engine once it has loaded."""

    def __init__(self, home: Home, options: argparse.Namespace) -> None:
        self.home = home
        self.options = options
        self.settings = home.settings()
        self.vocabulary = Vocabulary(home.path / "vocabulary")
        self.rate = float(self.settings.get("rate", 0))
        self.slots = asyncio.Semaphore(max(options.parallel, 1))
        self.sick = False
        self.busy = 0

    async def run(self) -> None:
        for order in iter(lambda: self.home.take("load", "", 0), None):
            self.obey(order)
        await asyncio.sleep(float(self.settings.get("load_s", 0)))
        if self.options.host.endswith(".sock"):
            server = await asyncio.start_unix_server(self.serve, self.options.host)
            where = f"unix://{self.options.host}"
        else:
            server = await asyncio.start_server(self.serve, self.options.host, self.options.port)
            where = f"http://{self.options.host}:{server.sockets[0].getsockname()[1]}"
        self.home.note(what="start", argv=sys.argv[1:])
        slots = f"n_slots = {self.options.parallel}, n_ctx_slot = {N_CTX}"
        log(f"srv    load_model: initializing, {slots}, kv_unified = 'false'")
        log("srv  llama_server: model loaded")
        log(f"srv  llama_server: listening on {where}")
        log("srv  update_slots: all slots are idle")
        async with server:
            await server.serve_forever()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            for left in range(99, -1, -1):
                asked = await self.read(reader)
                if asked is None:
                    break
                answer = asyncio.create_task(self.answer(asked, writer, left))
                while not answer.done() and not reader.at_eof():
                    await asyncio.wait({answer}, timeout=0.02)
                if not answer.done():
                    answer.cancel()
                    self.home.note(what="cancelled", job=asked.job)
                    break
                if answer.result():
                    break
        writer.close()

    async def read(self, reader: asyncio.StreamReader) -> Asked | None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        except (TimeoutError, asyncio.IncompleteReadError):
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        method, path, _ = first.split(" ")
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path.partition("?")[0], headers, raw)
        if raw:
            with contextlib.suppress(ValueError):
                asked.body = json.loads(raw)
        marks = MARK.findall(json.dumps(asked.body, ensure_ascii=False))
        asked.job = marks[-1][0] if marks else ""
        return asked

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter, left: int) -> bool:
        """Whether the connection ends with it."""
        out = Out(writer, left, asked.headers.get("connection", "").lower() == "close")
        try:
            await self.route(asked, out)
        except Refused as refused:
            kind = {500: "server_error", 401: "authentication_error"}.get(
                refused.status, "invalid_request_error"
            )
            error = {"code": refused.status, "message": str(refused), "type": kind}
            await out.whole({"error": error}, refused.status)
        return out.ends

    async def route(self, asked: Asked, out: Out) -> None:
        path = asked.path.removeprefix(self.options.api_prefix)
        if path in ("/health", "/v1/health"):
            return await out.whole({"status": "ok"})
        if path in ("/models", "/v1/models"):
            model = {"id": self.name, "object": "model", "owned_by": "llamacpp"}
            return await out.whole({"object": "list", "data": [model]})
        keys = self.options.api_key.split(",") if self.options.api_key else []
        given = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if keys and given not in keys and asked.headers.get("x-api-key") not in keys:
            raise Refused(401, "Invalid API Key")
        found = self.plain().get(path)
        if found is not None:
            return await out.whole(found(asked.body))
        if path in STREAMED:
            return await self.complete(asked, path, out)
        if path in VECTORS:
            return await self.embed(asked, path, out)
        raise Refused(404, "File Not Found")

    @property
    def name(self) -> str:
        return str(self.options.alias or self.options.model)

    def plain(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Answers that need no slot."""
        return {
            "/props": lambda body: {
                "total_slots": self.options.parallel,
                "model_path": self.options.model,
                "model_alias": self.name,
                "build_info": "b10434-7e4c0a9",
                "chat_template": "",
                "is_sleeping": False,
                "default_generation_settings": {
                    "n_ctx": N_CTX,
                    "params": {"temperature": self.options.temp, "top_k": 40},
                },
            },
            "/slots": lambda body: [
                {"id": n, "n_ctx": N_CTX, "is_processing": n < self.busy}
                for n in range(self.options.parallel)
            ],
            "/tokenize": lambda body: {"tokens": self.vocabulary.tokens(body.get("content", ""))},
            "/detokenize": lambda body: {"content": self.vocabulary.text(body.get("tokens", []))},
            "/apply-template": lambda body: {"prompt": template(body)},
            "/metrics": lambda body: "llamacpp:requests_processing 0\n",
        }

    async def complete(self, asked: Asked, path: str, out: Out) -> None:
        body = asked.body
        keys = ("n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens")
        limit = next((int(body[key]) for key in keys if body.get(key) is not None), -1)
        prompt = (
            template(body) if "messages" in body else self.vocabulary.text(body.get("prompt", ""))
        )
        streams = bool(body.get("stream"))
        self.home.note(
            what="accepted", job=asked.job, path=path, stream=streams, prompt=prompt,
            headers=asked.headers,
        )  # fmt: skip
        self.phase("accepted", asked.job, out)
        async with self.slots:
            self.busy += 1
            try:
                await self.prompt(asked, out)
                read = len(self.vocabulary.tokens(prompt))
                shape = Shape(path, self.name, read, *rest_of(prompt, limit)[1:], self.vocabulary)
                if body.get("stream"):
                    await self.stream(asked, shape, out)
                else:
                    await self.paced(asked, shape, out)
                    await out.whole(shape.whole(bool(body.get("return_tokens"))))
            finally:
                self.busy -= 1
        self.home.note(what="done", job=asked.job)
        await out.drain()
        self.phase("done", asked.job, out)

    async def embed(self, asked: Asked, path: str, out: Out) -> None:
        self.home.note(what="accepted", job=asked.job, path=path, stream=False, prompt="")
        self.phase("accepted", asked.job, out)
        async with self.slots:
            one = {"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            await out.whole({"object": "list", "model": self.name, "data": [one], "usage": usage})
        self.home.note(what="done", job=asked.job)
        await out.drain()
        self.phase("done", asked.job, out)

    async def prompt(self, asked: Asked, out: Out) -> None:
        """Read the prompt, with a line of progress as the real one has."""
        log("slot launch_slot_: id  0 | task 0 | processing task, is_child = 0")
        self.phase("prompt", asked.job, out)
        order = self.home.take("reading", asked.job, 0)
        for n in range(int(float(order.act) / 0.2) if order else 0):
            log(
                f"slot update_slots: id  0 | task 0 | prompt processing progress, n_tokens = {n}, "
                f"batch.n_tokens = 1, progress = {n / 100:.2f}"
            )
            await asyncio.sleep(0.2)

    async def paced(self, asked: Asked, shape: Shape, out: Out) -> None:
        for n in range(len(shape.words)):
            if self.rate:
                await asyncio.sleep(1 / self.rate)
            self.phase("words", asked.job, out, n)
        self.phase("last", asked.job, out)

    async def stream(self, asked: Asked, shape: Shape, out: Out) -> None:
        out.begin(200, "text/event-stream")
        out.ends = True  # as the real one does, though it has announced to stay
        self.phase("head", asked.job, out)
        for event in shape.first():
            out.piece(event)
        for n, word in enumerate(shape.words):
            if self.rate:
                await asyncio.sleep(1 / self.rate)
            self.phase("words", asked.job, out, n)
            event = shape.delta(n, word)
            if self.home.take("inside", asked.job, 0) is not None:
                out.piece(event[: len(event) // 2])
                await out.drain()
                self.end("kill")
            out.piece(event)
            await out.drain()
        self.phase("last", asked.job, out)
        for event in shape.last():
            out.piece(event)
        out.finish()

    def phase(self, phase: str, job: str, out: Out, words: int = 0) -> None:
        """Do what there is an order for."""
        if self.sick and phase == "accepted":
            raise Refused(500, "Compute error.")
        order = self.home.take(phase, job, words)
        if order is None:
            return
        if order.act == "drop":
            out.writer.transport.abort()
            raise ConnectionResetError
        self.obey(order)
        if order.act in ("sick", "500"):
            self.sick = order.act == "sick"
            raise Refused(500, "Compute error.")

    def obey(self, order: Order) -> None:
        for line in order.log:
            log(line)
        if order.act not in ("sick", "500", "drop"):
            self.end(order.act)

    @staticmethod
    def end(act: str) -> None:
        if act == "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif act == "exit":
            os._exit(DIES_OF_ORDER)
        else:
            os.kill(os.getpid(), DEATHS[act])


class Out:
    """An answer as it is written."""

    def __init__(self, writer: asyncio.StreamWriter, left: int, close: bool) -> None:
        self.writer = writer
        self.left = left
        self.ends = close or not left
        self.begun = False

    def begin(self, status: int, kind: str, length: int | None = None) -> None:
        framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        alive = "Connection: close" if self.ends else f"Keep-Alive: timeout=5, max={self.left}"
        self.begun = True
        self.writer.write(
            f"HTTP/1.1 {status} X\r\nServer: llama.cpp\r\nContent-Type: {kind}\r\n"
            f"{framing}\r\n{alive}\r\n\r\n".encode()
        )

    async def whole(self, value: Any, status: int = 200) -> None:
        if self.begun:
            raise ConnectionResetError
        text = isinstance(value, str)
        body = value.encode() if text else compact(value).encode()
        self.begin(status, "text/plain" if text else "application/json; charset=utf-8", len(body))
        self.writer.write(body)
        await self.drain()

    def piece(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self) -> None:
        self.writer.write(b"0\r\n\r\n")

    async def drain(self) -> None:
        await self.writer.drain()
        await asyncio.sleep(0)


def log(line: str) -> None:
    print(f"0.00.000.000 I {line}", file=sys.stderr, flush=True)


def help_text() -> str:
    lines = ["----- common params -----", ""]
    for line in Path(__file__).with_name("flags.txt").read_text().splitlines():
        flags, _, about = line.partition(" :: ")
        about, _, variable = about.partition(" (env: ")
        if len(flags) > 39:  # its text begins on a line of its own
            lines.append(flags)
            flags = ""
        lines.append(f"{flags:<39} {about.strip()}")
        if variable:
            lines.append(f"{'':<40}(env: {variable}")
    return "\n".join(lines)


def options_of(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-m", "--model", default="model.gguf")
    parser.add_argument("-a", "--alias", default="")
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("--host", default=os.environ.get("LLAMA_ARG_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(os.environ.get("LLAMA_ARG_PORT", "8080")))
    parser.add_argument("--api-key", default=os.environ.get("LLAMA_API_KEY", ""))
    parser.add_argument("--api-prefix", default=os.environ.get("LLAMA_ARG_API_PREFIX", ""))
    parser.add_argument("--temp", "--temperature", type=float, default=0.8)
    return parser.parse_known_args(words)[0]


def main(home: str, words: list[str]) -> None:
    """The program: ``words`` are those after its name."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if "--version" in words:
        print(VERSION, file=sys.stderr)
    elif "--help" in words or "-h" in words:
        print(help_text())
    elif "--list-devices" in words:
        print("Available devices:")
    else:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(Server(Home(Path(home)), options_of(words)).run())
