"""Answers of a real engine, cut anywhere and continued by the functions of ``arriero serve``.

The prompt cache is off in every request: an engine that was started again has none, and the same
question then has the same answer each time.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from arriero.serve.apis import registry
from arriero.serve.apis.interface import Answer, ApiError, Asked, Continue, Defaults
from arriero.serve.http.interface import Request
from tests.serve.load import Ask, Seen, read_stream, read_whole

COLD: Final = ("cache_prompt", False)
_HALF: Final = "\ufffd".encode()
"""Ends a whole answer of the engine whose limit was inside a character. No stream brings it."""
_NUMBERS: Final = (2, 818, 4988, 563)
APIS: Final[Mapping[str, Ask]] = {
    "/v1/chat/completions": Ask(0, "chat", "", True),
    "the same, with usage": Ask(
        0, "chat", "", True, extra=(("stream_options", {"include_usage": True}),)
    ),
    "/v1/completions": Ask(0, "text", "", True),
    "/completion": Ask(0, "native", "", True),
    "/completion of tokens": Ask(0, "native", "", True, extra=(("prompt", _NUMBERS),)),
    "/v1/messages": Ask(0, "messages", "", True),
    "/v1/responses": Ask(0, "responses", "", True),
}
"""A way of asking each; the prompt is still empty."""
TIE: Final = 0.2
"""Two tokens whose likelihoods' logarithms are no further apart are as likely: the engine rounds
otherwise where it reads a prompt in other batches. Build 10434 does so for the same tokens: it
ends a batch where a message of a chat ends, which moved a difference by 0.16."""
_OF_ONE_RUN: Final = {
    "id", "item_id", "created", "created_at", "completed_at", "timings"
}  # fmt: skip


def question(api: str, prompt: str, most: int) -> Ask:
    """This prompt at one of ``APIS``, greedy, as a stream."""
    ask = APIS[api]
    return replace(ask, prompt=prompt, most=most, extra=(*ask.extra, COLD))


@dataclass(frozen=True)
class Cut:
    """What became of an answer that was cut once.

    Attributes:
        sent: The text that had come.
        after: The text that came after it.
        same: All that was told equals the undisturbed answer, field by field.
        ties: How often the text that came after it parts from what the engine says to the prompt
            and exactly what had been sent, at two tokens that are as likely; None if it parts at
            others. Not looked for where the answer is the same.
        wrong: What no client may ever see.
    """

    ask: Ask
    sent: str
    after: str
    same: bool
    ties: int | None
    wrong: list[str]

    @property
    def right(self) -> bool:
        """Equal to the undisturbed answer, or going on as the engine does by itself."""
        return not self.wrong and (self.same or self.ties is not None)


@dataclass(frozen=True)
class Token:
    """One that the engine chose, and the next likeliest."""

    said: bytes
    second: bytes
    gap: float
    """Between the logarithms of how likely they are."""


class Cutter:
    """One question at one engine: its undisturbed answer, cut again and again."""

    def __init__(self, url: str, ask: Ask) -> None:
        self.url = url
        self.ask = ask
        self.inside = self._asked().inside
        self.stream = post(url, self.inside.path, self.inside.body)
        self.undisturbed = self.stream
        if not ask.stream:
            self.undisturbed = post(url, ask.path, _body(ask)).replace(_HALF, b"")
        self.events = self.stream.split(b"\n\n")[:-1]
        told = replace(ask, stream=True)
        self.texts = [_read(told, self._first(n)).text for n in range(len(self.events) + 1)]
        """The text that has come with so many events."""
        texts = self.texts
        self.pieces = [n for n in range(len(self.events)) if texts[n] != texts[n + 1]]
        """The events that bring text."""

    def whole(self) -> tuple[Any, Any]:
        """The answer that was streamed inside, and the engine's own."""
        answer = self._answer()
        answer.feed(self.stream)
        return shared(answer.result()[1]), shared(self.undisturbed)

    def cut(self, at: int) -> Cut:
        """Cut it after so many pieces of text, inside a character if the next piece has one."""
        answer = self._answer()
        event = self.pieces[at]
        got = answer.feed(self._first(event) + _part(self.events[event]))
        sent = self.texts[event]
        assert answer.continuable, self.ask
        rest = asyncio.run(answer.rest(self._ask))
        stream = post(self.url, rest.path, rest.body)
        for begin in range(0, len(stream), 777):
            got += answer.feed(stream[begin : begin + 777])
        if not answer.whole:
            return Cut(self.ask, sent, "", False, None, [f"no end: {answer.failure!r}"])
        told = got if self.ask.stream else answer.result()[1]
        seen = _read(self.ask, told)
        same = shared(told) == shared(self.undisturbed)
        wrong = list(seen.wrong)
        if not seen.text.startswith(sent):
            wrong.append(f"what was sent changed: {seen.text!r}")
        if seen.tokens is not None and seen.tokens > self.ask.most:
            wrong.append(f"{seen.tokens} tokens, though {self.ask.most} were allowed")
        after = seen.text[len(sent) :]
        ties = 0 if same else self._ties(sent.encode(), after.encode())
        return Cut(self.ask, sent, after, same, ties, wrong)

    def _ties(self, sent: bytes, after: bytes) -> int | None:
        """See :class:`Cut`. The way of the answer is followed at each tie."""
        for ties in range(4):
            told = self.own(sent.decode())
            said = b"".join(token.said for token in told)
            if after == said.decode(errors="ignore").encode():  # the limit may cut a character
                return ties
            done = 0
            for token in told:
                if not after.startswith(token.said, done):
                    break
                done += len(token.said)
            else:
                return None
            if token.gap > TIE or not after.startswith(token.second, done):
                return None
            done += len(token.second)
            sent, after = sent + after[:done], after[done:]
        return None

    def own(self, sent: str) -> list[Token]:
        """What the engine says to the prompt and what was sent, without any of our code."""
        prompt: Any = self.ask.prompt
        given = dict(self.ask.extra).get("prompt")
        if self.ask.kind not in ("text", "native"):
            said = {"messages": [{"role": "user", "content": prompt}]}
            prompt = self._told("/apply-template", said)["prompt"]
        count = len(self._told("/tokenize", {"content": sent})["tokens"])
        body = {
            "prompt": prompt + sent if given is None else [*given, sent],
            "n_predict": self.ask.most - count,
            "temperature": 0,
            "n_probs": 2,
            **dict([COLD]),
        }
        return [
            Token(bytes(one["bytes"]), bytes(two["bytes"]), one["logprob"] - two["logprob"])
            for told in self._told("/completion", body)["completion_probabilities"]
            for one, two in [told["top_logprobs"]]
        ]

    def _told(self, path: str, body: Any) -> Any:
        return json.loads(post(self.url, path, json.dumps(body).encode()))

    async def _ask(self, path: str, body: bytes) -> bytes:
        try:
            return post(self.url, path, body)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(f"{path}: {error.code} {error.read(300)!r}") from None

    def _asked(self) -> Asked:
        path = self.ask.path
        headers = ((b"content-type", b"application/json"),)
        request = Request("POST", path.encode(), path, headers, _body(self.ask), "client")
        return registry.asked_of(request, Defaults(), Continue.GREEDY)

    def _answer(self) -> Answer:
        answer = self._asked().answer
        assert answer is not None, self.ask
        return answer

    def _first(self, count: int) -> bytes:
        return b"".join(event + b"\n\n" for event in self.events[:count])


def post(url: str, path: str, body: bytes) -> bytes:
    """The body of the answer to a request at the engine itself."""
    request = urllib.request.Request(  # noqa: S310
        url + path, body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return bytes(answer.read())


def shared(raw: bytes) -> list[Any]:
    """What every run of an answer says, event by event: without names, times and the like."""
    lines = raw.decode().split("\n")
    told = [line[6:] for line in lines if line.startswith("data: {")] or [raw.decode()]
    return [json.loads(one, object_hook=_of_every_run) for one in told]


def _of_every_run(fields: dict[str, Any]) -> dict[str, Any]:
    if "cache_read_input_tokens" in fields:  # this API keeps its cache: both together are read
        fields["input_tokens"] += fields.pop("cache_read_input_tokens")
    return {name: value for name, value in fields.items() if name not in _OF_ONE_RUN}


def _body(ask: Ask) -> bytes:
    return json.dumps(ask.body()).encode()


def _part(event: bytes) -> bytes:
    """The beginning of an event, inside of its first character of several bytes if it has one."""
    at = next((at for at, byte in enumerate(event) if byte >= 0x80), min(20, len(event) - 1))
    return event[: at + 1]


def _read(ask: Ask, raw: bytes) -> Seen:
    """What a strict client reads."""
    seen = Seen(ask, raw=raw)
    (read_stream if ask.stream else read_whole)(seen)
    return seen
