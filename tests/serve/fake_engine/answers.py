"""What the engine that does no work answers: words that follow from the prompt alone."""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MARK: Final = re.compile(r"job:([\w.]+):(\d+)")
_ODD: Final = ("", "é", "日本", "🦙", "ß→")
"""Ends of words: characters of one to four bytes, so that a cut inside one is seen."""


def words_of(name: str, count: int) -> list[str]:
    """The words that answer ``job:NAME:COUNT``, each with its space."""
    return [f"{name}-{n}{_ODD[n % len(_ODD)]} " for n in range(count)]


def text_of(name: str, count: int) -> str:
    return "".join(words_of(name, count))


def rest_of(prompt: str, limit: int) -> tuple[str, list[str], bool]:
    """The job, the words that are still missing, and whether the limit ends them."""
    marks = list(MARK.finditer(prompt))
    if not marks:
        return "", ["ok "][: max(limit, 0)] if limit >= 0 else ["ok "], False
    mark = marks[-1]
    name, words = mark[1], words_of(mark[1], int(mark[2]))
    after = prompt[mark.end() :]
    at = after.find(f"{name}-0")
    said = after[at:] if at >= 0 else ""
    left: list[str] = []
    for word in words:
        if said.startswith(word):
            said = said[len(word) :]
        else:
            left.append(word.removeprefix(said))
            said = ""
    left = [word for word in left if word]
    cut = 0 <= limit < len(left)
    return name, left[:limit] if cut else left, cut


def compact(value: object) -> str:
    """JSON as the real engine writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Vocabulary:
    """Words as tokens, one for each; a later start knows those of an earlier one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        lines = file.read_text().splitlines() if file.exists() else []
        words: list[str] = [*map(json.loads, lines)]
        self._words = {_number(word): word for word in words}

    def tokens(self, text: str) -> list[int]:
        words = re.findall(r"\S+\s?|\s", text)
        for word in words:
            if _number(word) not in self._words:
                self._words[_number(word)] = word
                with self._file.open("a") as out:
                    out.write(f"{json.dumps(word)}\n")
        return [*map(_number, words)]

    def text(self, prompt: Any) -> str:
        """A prompt as text: text, tokens, or both in turn."""
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, int):
            return self._words.get(prompt, "")
        return "".join(map(self.text, prompt))


def _number(word: str) -> int:
    return zlib.crc32(word.encode()) & 0x7FFFFFFF


def content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def template(body: dict[str, Any]) -> str:
    """Messages as one prompt; the last one of the assistant is left open."""
    said = "".join(
        f"<{m['role']}>{content_text(m.get('content', ''))}\n" for m in body.get("messages", ())
    )
    last = body["messages"][-1]["role"] if body.get("messages") else ""
    return said.removesuffix("\n") if last == "assistant" else said + "<assistant>"


@dataclass
class Shape:
    """An answer in the form of one API."""

    path: str
    model: str
    read: int
    words: list[str]
    cut: bool
    vocabulary: Vocabulary
    id: str = field(default_factory=lambda: f"chatcmpl-{os.urandom(8).hex()}")
    made: int = field(default_factory=lambda: int(time.time()))

    @property
    def kind(self) -> str:
        return STREAMED[self.path]

    def head(self, object: str) -> dict[str, Any]:
        return {"id": self.id, "object": object, "created": self.made, "model": self.model}

    def usage(self) -> dict[str, int]:
        made = len(self.words)
        total = self.read + made
        return {"prompt_tokens": self.read, "completion_tokens": made, "total_tokens": total}

    def first(self) -> Iterator[bytes]:
        if self.kind == "chat":
            delta = {"role": "assistant", "content": None}
            yield event({**self.head("chat.completion.chunk"), "choices": [choice(delta)]})
        if self.kind == "messages":
            message = {**self.message(), "content": [], "stop_reason": None}
            yield event({"type": "message_start", "message": message}, "message_start")
            block = {"type": "text", "text": ""}
            start = {"type": "content_block_start", "index": 0, "content_block": block}
            yield event(start, "content_block_start")

    def delta(self, n: int, word: str) -> bytes:
        if self.kind == "chat":
            delta = {"content": word}
            return event({**self.head("chat.completion.chunk"), "choices": [choice(delta)]})
        if self.kind == "text":
            one = {"text": word, "index": 0, "logprobs": None, "finish_reason": None}
            return event({**self.head("text_completion"), "choices": [one]})
        if self.kind == "messages":
            delta = {"type": "text_delta", "text": word}
            block = {"type": "content_block_delta", "index": 0, "delta": delta}
            return event(block, "content_block_delta")
        return event(
            {
                "index": 0, "content": word, "tokens": self.vocabulary.tokens(word), "stop": False,
                "id_slot": -1, "tokens_predicted": n + 1, "tokens_evaluated": self.read,
            }
        )  # fmt: skip

    def last(self) -> Iterator[bytes]:
        why = "length" if self.cut else "stop"
        if self.kind == "chat":
            end = {**self.head("chat.completion.chunk"), "choices": [choice({}, why)]}
            yield event({**end, "usage": self.usage()})
            yield b"data: [DONE]\n\n"
        elif self.kind == "text":
            one = {"text": "", "index": 0, "logprobs": None, "finish_reason": why}
            yield event({**self.head("text_completion"), "choices": [one], "usage": self.usage()})
            yield b"data: [DONE]\n\n"
        elif self.kind == "messages":
            yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
            ended = {"stop_reason": "max_tokens" if self.cut else "end_turn", "stop_sequence": None}
            usage = {"output_tokens": len(self.words)}
            end = {"type": "message_delta", "delta": ended, "usage": usage}
            yield event(end, "message_delta")
            yield event({"type": "message_stop"}, "message_stop")
        else:
            yield event({**self.native(), "content": "", "tokens": []})

    def message(self) -> dict[str, Any]:
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": [{"type": "text", "text": "".join(self.words)}],
            "stop_reason": "max_tokens" if self.cut else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": self.read, "output_tokens": len(self.words)},
        }  # fmt: skip

    def native(self) -> dict[str, Any]:
        return {
            "index": 0, "content": "".join(self.words), "tokens": [], "id_slot": 0, "stop": True,
            "model": self.model, "tokens_predicted": len(self.words), "tokens_evaluated": self.read,
            "truncated": False, "stop_type": "limit" if self.cut else "eos", "stopping_word": "",
            "has_new_line": False, "tokens_cached": self.read + len(self.words),
            "timings": {"cache_n": 0, "prompt_n": self.read, "predicted_n": len(self.words)},
        }  # fmt: skip

    def whole(self, tokens: bool = False) -> dict[str, Any]:
        why = "length" if self.cut else "stop"
        text = "".join(self.words)
        if self.kind == "chat":
            said = {"role": "assistant", "content": text}
            one = {"finish_reason": why, "index": 0, "message": said}
            return {**self.head("chat.completion"), "choices": [one], "usage": self.usage()}
        if self.kind == "text":
            one = {"text": text, "index": 0, "logprobs": None, "finish_reason": why}
            return {**self.head("text_completion"), "choices": [one], "usage": self.usage()}
        if self.kind == "messages":
            return self.message()
        if tokens:
            return {**self.native(), "tokens": self.vocabulary.tokens(text)}
        return self.native()


STREAMED = {
    "/completion": "native", "/completions": "native", "/infill": "native",
    "/v1/completions": "text", "/v1/chat/completions": "chat", "/chat/completions": "chat",
    "/v1/messages": "messages",
}  # fmt: skip


def event(value: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {compact(value)}\n\n".encode()


def choice(delta: object, why: str | None = None) -> dict[str, Any]:
    return {"finish_reason": why, "index": 0, "delta": delta}
