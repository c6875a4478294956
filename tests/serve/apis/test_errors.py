"""Errors in the form of each API: the official clients raise them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai
import pytest

from arriero.serve.apis import registry
from tests.serve.apis.streams import WORDS, asked, events

SAYING = "the engine was lost while it answered"


class _Broken(BaseHTTPRequestHandler):
    """Begins each answer and ends it by an error; a request without a stream is refused."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("stream"):
            answer = asked(self.path).answer
            assert answer is not None
            begun = answer.feed(events(self.path, WORDS[:3])[:-200])
            self._send(200, b"text/event-stream", begun + answer.interrupted(SAYING))
        else:
            headers, told = registry.error_body(self.path, 503, SAYING, "")
            self._send(503, dict(headers)[b"content-type"], told)

    def _send(self, status: int, kind: bytes, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind.decode())
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Broken) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


USER: Any = {"role": "user", "content": "Tell me"}


def test_the_openai_client_raises(url: str) -> None:
    with openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0) as client:
        chat = client.chat.completions.create(model="m", messages=[USER], stream=True)
        with pytest.raises(openai.APIError, match=SAYING), chat:
            list(chat)
        text = client.completions.create(model="m", prompt="Tell me", stream=True)
        with pytest.raises(openai.APIError, match=SAYING), text:
            list(text)
        response = client.responses.create(model="m", input="Tell me", stream=True)
        with pytest.raises(openai.APIError, match=SAYING), response:
            list(response)
        with pytest.raises(openai.InternalServerError, match=SAYING):
            client.chat.completions.create(model="m", messages=[USER])


def test_the_anthropic_client_raises(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="x", max_retries=0) as client:
        message = client.messages.create(model="m", max_tokens=9, messages=[USER], stream=True)
        with pytest.raises(anthropic.APIError, match=SAYING), message:
            list(message)
        with pytest.raises(anthropic.InternalServerError, match=SAYING):
            client.messages.create(model="m", max_tokens=9, messages=[USER])


@pytest.mark.parametrize("path", ["/completion", "/v1/messages", "/v1/responses", "/other"])
def test_what_an_error_says_can_be_read_back(path: str) -> None:
    _, body = registry.error_body(path, 500, SAYING, "server_error")
    assert registry.message_of(body) == SAYING
    assert SAYING.encode() in registry.error_events(path, SAYING)
    assert registry.message_of(b"[]") == registry.message_of(b"{") == ""
