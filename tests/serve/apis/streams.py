"""Streams as builds 10068 and 10434 send them, and an engine that goes on from what it is given."""

from __future__ import annotations

import json
from typing import Any

from arriero.serve.apis import registry
from arriero.serve.apis.interface import Asked, Continue, Defaults
from arriero.serve.http.interface import Request

WORDS = [
    "Größe",
    " is",
    "\n\n",
    "data: [DONE]",
    " 漢字",
    ' "stop":true',
    " event: message_stop",
    "!",
]
"""What an answer says: several bytes a character, and words that look like ends of streams."""
USER = {"role": "user", "content": "Tell me"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER], "stream_options": {"include_usage": True}},
    "/v1/completions": {"prompt": "Tell me"},
    "/completion": {"prompt": "Tell me"},
    "/v1/messages": {"messages": [USER], "max_tokens": 100},
    "/v1/responses": {"input": "Tell me"},
}
PROMPT = 7


def request(path: str, **more: Any) -> Request:
    """A greedy request for a stream."""
    body = {**BODIES.get(path, {}), "temperature": 0, "stream": True, **more}
    return Request("POST", path.encode(), path, (), json.dumps(body).encode(), "client")


def asked(path: str, allowed: Continue = Continue.GREEDY, **more: Any) -> Asked:
    """What it asks for."""
    return registry.asked_of(request(path, **more), Defaults(), allowed)


def events(path: str, words: list[str], prompt: int = PROMPT, name: str = "1") -> bytes:
    """The stream of an answer with a token a word."""
    told = {
        "/v1/chat/completions": _chat,
        "/v1/completions": _completions,
        "/completion": _native,
        "/v1/messages": _messages,
        "/v1/responses": _responses,
    }[path](words, prompt, name)
    return b"".join(
        (f"event: {one['type']}\n" if "type" in one else "").encode()
        + b"data: "
        + json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()
        + b"\n\n"
        for one in told
    ) + (b"data: [DONE]\n\n" if "completions" in path else b"")


def said(path: str, stream: bytes) -> list[Any]:
    """What the events of a stream say, read as strictly as it can be."""
    found = []
    assert stream.endswith(b"\n\n")
    for event in stream.decode().removesuffix("\n\n").split("\n\n"):
        *names, data = event.split("\n")
        assert data.startswith("data: "), event
        if data == "data: [DONE]":
            found.append("[DONE]")
            continue
        one = json.loads(data[6:])
        assert names == ([f"event: {one['type']}"] if "type" in one else [])
        found.append(one)
    return found


class Engine:
    """Answers with what is missing of ``WORDS``, as a continuation asks for it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def ask(self, path: str, body: bytes) -> bytes:
        told = json.loads(body)
        self.asked.append((path, told))
        if path == "/apply-template":
            return json.dumps({"prompt": "*" * PROMPT}).encode()
        text = told["content"]
        count = PROMPT if text == "*" * PROMPT else self.words_in(text)
        return json.dumps({"tokens": [0] * count}).encode()

    @staticmethod
    def words_in(text: str) -> int:
        """How many of the words a text has; it must end with a whole one."""
        for count in range(len(WORDS) + 1):
            if "".join(WORDS[:count]) == text:
                return count
        raise AssertionError(text)

    def rest(self, asked: Request) -> bytes:
        """The stream of what is missing."""
        body = json.loads(asked.body)
        self.asked.append((asked.path, body))
        text = self.begun(body)
        count = self.words_in(text)
        return events(asked.path, WORDS[count:], PROMPT + count, "2")

    @staticmethod
    def begun(body: dict[str, Any]) -> str:
        """The beginning of the answer that a continuation gives."""
        assert body["stream"] is True
        if "prompt" in body:
            return str(body["prompt"]).removeprefix("Tell me")
        last = (body.get("messages") or body["input"])[-1]
        if isinstance(last, str) or last["role"] != "assistant":
            return ""
        assert body["continue_final_message"]
        assert not body["add_generation_prompt"]
        content = last["content"]
        return str(content if isinstance(content, str) else content[0]["text"])


def _usage(words: list[str], prompt: int) -> dict[str, Any]:
    return {
        "completion_tokens": len(words),
        "prompt_tokens": prompt,
        "total_tokens": prompt + len(words),
        "prompt_tokens_details": {"cached_tokens": prompt - 1},
    }


def _chunk(choices: list[Any], name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"choices": choices, "created": 100, "id": name, "model": "m", "object": kind, **more}


def _chat(words: list[str], prompt: int, name: str) -> list[Any]:
    kind = "chat.completion.chunk"

    def one(delta: Any, finish: str | None = None) -> dict[str, Any]:
        return _chunk([{"finish_reason": finish, "index": 0, "delta": delta}], name, kind)

    return [
        one({"role": "assistant", "content": None}),
        *(one({"content": word}) for word in words),
        one({}, "stop"),
        _chunk([], name, kind, usage=_usage(words, prompt), timings={"predicted_n": len(words)}),
    ]


def _completions(words: list[str], prompt: int, name: str) -> list[Any]:
    def one(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        return _chunk([choice], name, "text_completion", **more)

    return [*(one(word) for word in words), one("", "stop", usage=_usage(words, prompt))]


def _native(words: list[str], prompt: int, name: str) -> list[Any]:
    counts = [{"tokens_predicted": n + 1, "tokens_evaluated": prompt} for n in range(len(words))]
    found: list[Any] = [
        {"index": 0, "content": word, "tokens": [5], "stop": False, "id_slot": -1, **count}
        for word, count in zip(words, counts, strict=True)
    ]
    begun = "".join(WORDS[: len(WORDS) - len(words)])
    last = {"index": 0, "content": "", "tokens": [], "stop": True, "model": "m"}
    last |= {"tokens_predicted": len(words), "tokens_evaluated": prompt, "stop_type": "eos"}
    last |= {"prompt": "<bos>Tell me" + begun, "has_new_line": "\n" in "".join(words)}
    last |= {"generation_settings": {"n_predict": -1, "max_tokens": -1, "stream": True}}
    return [*found, last]


def _messages(words: list[str], prompt: int, name: str) -> list[Any]:
    usage = {"cache_read_input_tokens": prompt - 1, "input_tokens": 1, "output_tokens": 0}
    message: dict[str, Any] = {
        "id": name,
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    block = {"type": "text", "text": ""}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
            for word in words
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": len(words)}},
        {"type": "message_stop"},
    ]


def _responses(words: list[str], prompt: int, name: str) -> list[Any]:
    text = "".join(words)
    begun = {"id": "resp" + name, "object": "response", "status": "in_progress"}
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    item = {"type": "message", "status": "completed", "id": "msg" + name, "content": [part]}
    usage = {"input_tokens": prompt, "output_tokens": len(words)}
    usage |= {"total_tokens": prompt + len(words)}
    details = {"input_tokens_details": {"cached_tokens": prompt - 1}}
    done = {**begun, "created_at": 100, "status": "completed", "model": "m", "output": [item]}
    of = {"item_id": "msg" + name}
    empty = {"type": "output_text", "text": ""}
    new = {"content": [], "id": "msg" + name, "role": "assistant", "type": "message"}
    return [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "item": new},
        {"type": "response.content_part.added", **of, "part": empty},
        *({"type": "response.output_text.delta", **of, "delta": word} for word in words),
        {"type": "response.output_text.done", **of, "text": text},
        {"type": "response.content_part.done", **of, "part": part},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {**done, "usage": {**usage, **details}}},
    ]
