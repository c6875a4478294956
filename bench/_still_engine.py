"""An engine that does no work: it answers at once, or streams at a rate, as fast as Python can.

It closes a connection after a stream, as llama-server does. A request says what it wants:
``{"stream": true, "n_predict": 100, "rate": 200}``.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from itertools import pairwise
from typing import Any

import httptools
import uvloop

from tests.serve.fake_engine.program import VERSION, help_text

_TEXT = "The quick brown fox jumps over the lazy dog. "
_PROPS = {
    "total_slots": 64,
    "build_info": "b10434-7e4c0a9",
    "default_generation_settings": {"n_ctx": 4096, "params": {"temperature": 0.8, "top_k": 40}},
}
_VECTOR = {
    "object": "list",
    "model": "m",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25] * 64}],
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
_TIMINGS = {"prompt_n": 1, "prompt_ms": 1.0, "predicted_n": 1, "predicted_ms": 1.0}


def _whole(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return (
        b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: application/json; charset=utf-8\r\n"
        b"Content-Length: %d\r\nKeep-Alive: timeout=5, max=100\r\n\r\n%b" % (len(body), body)
    )


_HEAD = (
    b"HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Type: text/event-stream\r\n"
    b"Transfer-Encoding: chunked\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"
)


def _event(value: Any) -> bytes:
    data = b"data: %b\n\n" % (value if isinstance(value, bytes) else json.dumps(value).encode())
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chat(delta: dict[str, Any], end: str | None) -> dict[str, Any]:
    choice = {"finish_reason": end, "index": 0, "delta": delta}
    return {
        "choices": [choice], "created": 1, "id": "chatcmpl-x", "model": "m",
        "system_fingerprint": "b10434", "object": "chat.completion.chunk",
    }  # fmt: skip


_NATIVE = {"index": 0, "content": "fox ", "tokens": [5], "stop": False, "id_slot": -1,
           "tokens_predicted": 1, "tokens_evaluated": 4}  # fmt: skip
_NATIVE_END = {**_NATIVE, "content": "", "stop": True, "model": "m", "stop_type": "limit",
               "timings": _TIMINGS, "tokens_cached": 4, "truncated": False}  # fmt: skip
_STREAMS = {
    b"/completion": (b"", _event(_NATIVE), _event(_NATIVE_END)),
    b"/v1/chat/completions": (
        _event(_chat({"role": "assistant", "content": None}, None)),
        _event(_chat({"content": "fox "}, None)),
        _event({**_chat({}, "stop"), "timings": _TIMINGS}) + _event(b"[DONE]"),
    ),
}
_WHOLE = {
    b"/health": _whole({"status": "ok"}),
    b"/v1/models": _whole({"object": "list", "data": [{"id": "m", "object": "model"}]}),
    b"/props": _whole(_PROPS),
    b"/v1/embeddings": _whole(_VECTOR),
    b"/completion": _whole({**_NATIVE_END, "content": "fox "}),
    b"/v1/chat/completions": _whole(
        {
            "choices": [
                {
                    "finish_reason": "stop",
                    "index": 0,
                    "message": {"role": "assistant", "content": "fox "},
                }
            ],
            "created": 1,
            "id": "chatcmpl-x",
            "model": "m",
            "object": "chat.completion",
        }
    ),
}


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.parser = httptools.HttpRequestParser(self)
        self.clear()

    def clear(self) -> None:
        self.url, self.body = b"", b""

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, data: bytes) -> None:
        self.url += data

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        url, body = self.url, self.body
        self.clear()
        if b'"stream"' in body:
            asked = json.loads(body)
            if asked.get("stream"):
                self.stream(_STREAMS[url], asked)
                return
        self.transport.write(_WHOLE.get(url) or _whole({}))

    def stream(self, events: tuple[bytes, bytes, bytes], asked: dict[str, Any]) -> None:
        count = int(asked.get("n_predict") or asked.get("max_tokens") or 1)
        rate = float(asked.get("rate") or 0)
        if not rate:
            self.transport.write(_HEAD + events[0] + events[1] * count + events[2] + b"0\r\n\r\n")
            self.transport.close()
            return
        self.transport.write(_HEAD + events[0])
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def next_event(number: int) -> None:
            if self.transport.is_closing():
                return
            if number == count:
                self.transport.write(events[2] + b"0\r\n\r\n")
                self.transport.close()
                return
            self.transport.write(events[1])
            loop.call_at(begun + (number + 1) / rate, next_event, number + 1)

        next_event(0)


async def _serve(host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    if host.endswith(".sock"):
        await loop.create_unix_server(_Connection, host)
    else:
        await loop.create_server(_Connection, host, port)
    await stopped.wait()


def main(words: list[str]) -> None:
    """The program: ``words`` are those after its name."""
    if "--version" in words:
        print(VERSION, file=sys.stderr)
    elif "--help" in words or "-h" in words:
        print(help_text())
    elif "--list-devices" in words:
        print("Available devices:")
    else:
        named = dict(pairwise(words))
        uvloop.run(_serve(named.get("--host", "127.0.0.1"), int(named.get("--port", "8080"))))
