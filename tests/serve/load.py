"""Clients of all kinds at once, and what each of them saw."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

STREAMS: Final = ("chat", "text", "native", "messages", "responses")
PATHS: Final = {
    "chat": "/v1/chat/completions",
    "text": "/v1/completions",
    "native": "/completion",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "embedding": "/v1/embeddings",
    "tokenize": "/tokenize",
    "props": "/props",
}


@dataclass(frozen=True)
class Ask:
    """One request: greedy where nothing else is said."""

    number: int
    kind: str
    prompt: str
    stream: bool = False
    most: int = 40
    extra: tuple[tuple[str, Any], ...] = ()

    @property
    def path(self) -> str:
        return PATHS[self.kind]

    def body(self) -> dict[str, Any] | None:
        """The JSON body; None for a GET."""
        said = [{"role": "user", "content": self.prompt}]
        plain: dict[str, Any] = {"temperature": 0, "stream": self.stream, **dict(self.extra)}
        match self.kind:
            case "chat":
                return {"model": "m", "messages": said, "max_tokens": self.most, **plain}
            case "text":
                return {"model": "m", "prompt": self.prompt, "max_tokens": self.most, **plain}
            case "native":
                return {"prompt": self.prompt, "n_predict": self.most, **plain}
            case "messages":
                return {"model": "m", "messages": said, "max_tokens": self.most, **plain}
            case "responses":
                return {"model": "m", "input": self.prompt, "max_output_tokens": self.most, **plain}
            case "embedding":
                return {"model": "m", "input": self.prompt}
            case "tokenize":
                return {"content": self.prompt}
        return None


@dataclass
class Seen:
    """What a client saw of one answer.

    Attributes:
        outcome: ``answered``, ``error_event``, ``refused`` (an HTTP status of 400 and more),
            ``lost`` (neither a whole answer nor an error that its API has).
        cuts: How many characters had come at each ``: arriero continued``.
        wrong: What no client may ever see.
    """

    ask: Ask
    outcome: str = "lost"
    status: int = 0
    text: str = ""
    raw: bytes = b""
    value: Any = None
    cuts: list[int] = field(default_factory=list)
    waits: int = 0
    replayed: int = 0
    continued: int = 0
    finish: str = ""
    tokens: int | None = None
    wrong: list[str] = field(default_factory=list)
    why: str = ""
    began: float = 0.0
    first: float = 0.0
    ended: float = 0.0


async def one(
    session: aiohttp.ClientSession, base: str, ask: Ask, headers: dict[str, str] | None = None
) -> Seen:
    """Ask once and read all of the answer."""
    seen = Seen(ask, began=time.monotonic())
    body = ask.body()
    method = "GET" if body is None else "POST"
    try:
        async with session.request(
            method, base + ask.path, json=body, headers=headers or {}
        ) as answer:
            seen.status = answer.status
            seen.replayed = int(answer.headers.get("X-Arriero-Replayed", "0"))
            seen.continued = int(answer.headers.get("X-Arriero-Continued", "0"))
            pieces = bytearray()
            async for piece in answer.content.iter_any():
                seen.first = seen.first or time.monotonic()
                pieces += piece
            seen.raw = bytes(pieces)
            streamed = answer.content_type == "text/event-stream"
    except (aiohttp.ClientError, TimeoutError) as error:
        seen.why = f"{type(error).__name__}: {error}"
        return seen
    finally:
        seen.ended = time.monotonic()
    if seen.status >= 400:
        seen.outcome = "refused"
        seen.why = seen.raw[:300].decode("utf-8", "replace")
    elif streamed:
        read_stream(seen)
    else:
        read_whole(seen)
    return seen


def read_whole(seen: Seen) -> None:
    """Read an answer that came in one piece."""
    try:
        seen.value = value = json.loads(seen.raw)
    except ValueError as error:
        seen.wrong.append(f"not JSON: {error}")
        return
    seen.outcome = "answered"
    match seen.ask.kind:
        case "chat":
            seen.text = value["choices"][0]["message"]["content"]
            seen.finish = value["choices"][0]["finish_reason"]
            seen.tokens = value["usage"]["completion_tokens"]
        case "text":
            seen.text = value["choices"][0]["text"]
            seen.finish = value["choices"][0]["finish_reason"]
            seen.tokens = value["usage"]["completion_tokens"]
        case "native":
            seen.text = value["content"]
            seen.finish = value["stop_type"]
            seen.tokens = value["tokens_predicted"]
        case "messages":
            seen.text = "".join(block.get("text", "") for block in value["content"])
            seen.finish = value["stop_reason"]
            seen.tokens = value["usage"]["output_tokens"]
        case "responses":
            seen.text = "".join(
                part.get("text", "")
                for item in value["output"]
                if item["type"] == "message"
                for part in item["content"]
            )
            seen.finish = value["status"]
            seen.tokens = value["usage"]["output_tokens"]


def events_of(raw: bytes) -> tuple[list[tuple[str, str]], list[str]]:
    """Events of a stream as (name, data), comments among them as (``:``, text); what is wrong."""
    wrong = []
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong.append(f"a character is cut: {error}")
        text = raw.decode("utf-8", "replace")
    if text and not text.endswith("\n\n"):
        wrong.append(f"an event is cut: {text[-60:]!r}")
    found = []
    for block in text.split("\n\n"):
        name, data = "", []
        for line in filter(None, block.split("\n")):
            key, _, value = line.partition(":")
            if not key:
                found.append((":", value.strip()))
            elif key == "event":
                name = value.strip()
            elif key == "data":
                data.append(value.removeprefix(" "))
            else:
                wrong.append(f"no line of an event: {line[:60]!r}")
        if data:
            found.append((name, "\n".join(data)))
    return found, wrong


def read_stream(seen: Seen) -> None:
    """Read a stream as a strict client of its API does."""
    events, seen.wrong = events_of(seen.raw)
    ends = 0
    ids: set[str] = set()
    roles = 0
    named: Counter[str] = Counter()
    for name, data in events:
        if name == ":":
            seen.waits += data == "arriero waiting"
            if data == "arriero continued":
                seen.cuts.append(len(seen.text))
            continue
        if ends:
            seen.wrong.append(f"after the end: {data[:80]}")
        if data == "[DONE]":
            ends += 1
            continue
        try:
            value = json.loads(data)
        except ValueError:
            seen.wrong.append(f"not JSON: {data[:80]!r}")
            continue
        if name == "error" or "error" in value or value.get("type") in ("error", "response.failed"):
            seen.outcome = "error_event"
            seen.why = data[:300]
            return
        named[value.get("type", "")] += 1
        match seen.ask.kind:
            case "chat" | "text":
                ids.add(value["id"])
                for choice in value["choices"]:
                    delta = choice.get("delta", {})
                    roles += "role" in delta
                    seen.text += delta.get("content") or choice.get("text") or ""
                    if choice.get("finish_reason"):
                        if seen.finish:
                            seen.wrong.append("finished twice")
                        seen.finish = choice["finish_reason"]
                if value.get("usage"):
                    seen.tokens = value["usage"]["completion_tokens"]
            case "native":
                seen.text += value["content"]
                if value["stop"]:
                    ends += 1
                    seen.finish, seen.tokens = value["stop_type"], value["tokens_predicted"]
            case "messages":
                if name != value["type"]:
                    seen.wrong.append(f"event {name!r} has data of {value['type']!r}")
                if value["type"] == "content_block_delta":
                    seen.text += value["delta"].get("text", "")
                elif value["type"] == "message_delta":
                    seen.finish = value["delta"]["stop_reason"]
                    seen.tokens = value["usage"]["output_tokens"]
                elif value["type"] == "message_start":
                    ids.add(value["message"]["id"])
                ends += value["type"] == "message_stop"
            case "responses":
                if value["type"] == "response.output_text.delta":
                    seen.text += value["delta"]
                elif value["type"] == "response.completed":
                    ends += 1
                    seen.finish = value["response"]["status"]
                    seen.tokens = value["response"]["usage"]["output_tokens"]
                elif value["type"] == "response.created":
                    ids.add(value["response"]["id"])
    if len(ids) > 1:
        seen.wrong.append(f"ids of several answers: {sorted(ids)}")
    if roles > 1:
        seen.wrong.append(f"{roles} roles")
    for once in ("message_start", "content_block_start", "message_delta", "response.created"):
        if named[once] > 1:
            seen.wrong.append(f"{once} {named[once]} times")
    if seen.text.count("\ufffd"):
        seen.wrong.append("a character is cut")
    if ends:
        seen.outcome = "answered"
        if not seen.finish:
            seen.wrong.append("no reason for its end")
    else:
        seen.wrong.append("a stream without an end")


async def all_of(
    base: str,
    asks: Iterable[Ask],
    clients: int,
    headers: dict[str, str] | None = None,
    on_seen: Callable[[Seen], None] = lambda seen: None,
    timeout: float = 900.0,
    keep: bool = True,
) -> list[Seen]:
    """Ask everything, so many clients at once; each has connections of its own.

    ``keep`` is False for the engine itself: it announces that a connection stays open after a
    stream, and closes it.
    """
    left = iter(asks)
    done: list[Seen] = []

    async def client() -> None:
        limit = aiohttp.ClientTimeout(total=timeout)
        connector = aiohttp.TCPConnector(force_close=not keep)
        async with aiohttp.ClientSession(timeout=limit, connector=connector) as session:
            for ask in left:
                seen = await one(session, base, ask, headers)
                done.append(seen)
                on_seen(seen)

    await asyncio.gather(*(client() for _ in range(clients)))
    return sorted(done, key=lambda seen: seen.ask.number)


SUBJECTS: Final = (
    "a fox", "the sea", "an old clock", "winter", "a small village", "bread", "the moon",
    "a violin", "rain in spring", "a lighthouse", "two brothers", "the desert", "a garden", "tea",
    "a train at night", "the first snow", "a lost letter", "mountains", "a cat", "an island",
)  # fmt: skip
FORMS: Final = (
    "Write about {}.", "Tell me three facts about {}.", "What is {}?", "A poem on {}:",
    "Describe {} in one sentence.", "Why do people like {}?", "List words for {}.",
    "Translate '{}' into French, German and Japanese.",
)  # fmt: skip


def mixed(
    count: int, kinds: Sequence[str] = ("chat", "text", "native", "messages"), seed: int = 1
) -> list[Ask]:
    """Requests of all kinds, streamed and whole, no two with the same prompt."""
    chance = random.Random(seed)
    made = []
    for n in range(count):
        prompt = chance.choice(FORMS).format(chance.choice(SUBJECTS))
        kind = kinds[n % len(kinds)]
        most = chance.choice((8, 16, 24, 40))
        made.append(Ask(n, kind, f"({n}) {prompt}", (n // len(kinds)) % 2 == 0, most))
    return made
