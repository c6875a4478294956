"""The standard load: a few requests that show whether a server that is ready also serves.

Ready and served are different boundaries. Checkpoints, the prompt cache and memory for requests are
taken only when requests arrive, and several crashes happen at the second request or later. So every
server that becomes ready gets, in this order:

1. several different prompts in turn,
2. prompts long and different enough that the server saves a slot's prompt,
3. one request for every slot at once,
4. one prompt near the slot's context (shortened, with a note, if it would take too long).

Prompts are token arrays, so their length in tokens is exact for any tokenizer.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from arriero.launch import Mode, Serving
from arriero.logs import Sighting
from arriero.record import Step
from arriero.trial.client import Client
from arriero.trial.image import data_address
from arriero.trial.replies import LoadResult, Reply, read_reply

PREDICT: Final = 2
"""Tokens generated per request: enough for decode to run, few enough to be quick."""
SHORT: Final = 16
SAVED: Final = 64
"""Tokens of the prompts in step 2. The server saves the replaced prompt, whatever its length."""
MODEST: Final = 2048
"""Tokens of the longest prompt whose time is estimated from short ones."""

_TEXT: Final = (
    "The muleteer counted the packs at dawn, tied the second rope over the first and led the "
    "animals down to the ford, where the water was low and the far bank lay in the sun. "
)


@dataclass(frozen=True)
class Workload:
    """The requests for a server.

    ``min_requests`` repeats the third step until so many requests were sent. ``long_prompt_s`` is
    the intended time for one long prompt, which takes at most twice as long; ``timeout_s`` is the
    time for the answer to one request. ``shared`` is the number of tokens with which all prompts
    begin, before their own ones. ``image`` is the side in pixels of an image that is sent before
    all else; 0 sends none. Two loads with different ``seed`` have no prompt in common.
    """

    prompts: int = 4
    min_requests: int = 0
    shared: int = 0
    image: int = 0
    seed: int = 0
    long_prompt_s: float = 2.0
    timeout_s: float = 120.0


Signs = Callable[[], Mapping[str, Sighting]]
"""What the log has shown so far: the signs of :class:`arriero.logs.LogReader`."""


async def run_load(
    serving: Serving,
    workload: Workload,
    result: LoadResult,
    *,
    n_slots: int,
    n_ctx_slot: int,
    n_ubatch: int,
    signs: Signs,
    prompt_cache: bool | None,
    alive: Callable[[], bool],
    answered: Callable[[int], Awaitable[None]],
) -> None:
    """Put the standard load on a ready server and write the outcome into ``result``.

    It stops at the first step in which the server dies. After every reply, ``answered`` is awaited
    with the number of replies so far.

    Args:
        n_slots: Slots that can work at once.
        n_ctx_slot: Context of one slot, in tokens.
        n_ubatch: Longest input in embedding and rerank mode, in tokens.
        prompt_cache: Whether the server's prompt cache is on; None if its log cannot be seen.
        alive: Whether the server's process still runs (always true for a foreign server).
    """
    async with Client(serving, workload.timeout_s) as client:
        await _Load(
            client,
            serving,
            workload,
            result,
            n_slots,
            n_ctx_slot,
            n_ubatch,
            signs,
            prompt_cache,
            alive,
            answered,
        ).run()


@dataclass
class _Load:
    client: Client
    serving: Serving
    workload: Workload
    result: LoadResult
    n_slots: int
    n_ctx_slot: int
    n_ubatch: int
    signs: Signs
    prompt_cache: bool | None
    alive: Callable[[], bool]
    answered: Callable[[int], Awaitable[None]]
    vocabulary: list[int] = field(default_factory=list)
    sent: int = 0

    @property
    def _seed(self) -> str:
        return f"{self.workload.seed} {self.sent}"

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt that leaves room for the answer."""
        room = self.n_ctx_slot - PREDICT - 8
        if self.serving.mode is not Mode.TEXT:
            room = min(room, self.n_ubatch - 8)
        return max(room, 1)

    async def run(self) -> None:
        if self.workload.image:
            await self._about_an_image()
        if self._over():
            return
        await self._learn_tokens()
        steps: Sequence[Callable[[], Awaitable[None]]] = (
            self._in_turn,
            self._saving,
            self._all_slots,
        )
        for step in steps:
            if self._over():
                return
            await step()
        while (
            left := self.workload.min_requests - len(self.result.replies)
        ) > 0 and not self._over():
            await self._at_once("more requests", min(left, self.n_slots))
        if not self._over():
            await self._near_context()

    def _over(self) -> bool:
        """Whether the server is dead or stopped answering; then it gets no more requests."""
        broken = self.result.broken
        return not self.alive() or (broken is not None and broken.status is None)

    async def _learn_tokens(self) -> None:
        """Ordinary token ids of this model, from its own tokenizer."""
        try:
            status, body = await self.client.call("POST", "/tokenize", {"content": _TEXT})
        except (aiohttp.ClientError, TimeoutError, OSError):
            return
        if status == 200 and isinstance(body, dict) and isinstance(body.get("tokens"), list):
            self.vocabulary = [t for t in body["tokens"] if isinstance(t, int)]

    def _prompt(self, tokens: int) -> list[int] | str:
        """A prompt unlike the ones before; it has exactly ``tokens`` if the tokenizer is known."""
        self.sent += 1
        rng = random.Random(self._seed)
        if not self.vocabulary:
            words = _TEXT.split()
            return " ".join(rng.choice(words) for _ in range(max(1, tokens // 4)))
        shared = random.Random(0).choices(self.vocabulary, k=self.workload.shared)
        own = max(1, min(tokens, self.longest - len(shared)))
        return shared + rng.choices(self.vocabulary, k=own)

    async def _about_an_image(self) -> None:
        image = {"type": "image_url", "image_url": {"url": data_address(self.workload.image)}}
        content = [image, {"type": "text", "text": _TEXT}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": PREDICT}
        reply = await self._post("/v1/chat/completions", body, 0)
        self.result.replies.append(reply)
        await self.answered(len(self.result.replies))
        self._close_step("an image", 0, self._answered_by_tokens(0), "")

    async def _in_turn(self) -> None:
        before = len(self.result.replies)
        for _ in range(self.workload.prompts):
            if self._over():
                break
            await self._ask([SHORT])
        self._close_step("different prompts in turn", before, self._answered_by_tokens(before), "")

    async def _saving(self) -> None:
        if self.serving.mode is not Mode.TEXT:
            return
        name = "a slot's prompt is saved"
        if not self.prompt_cache:
            off = "the prompt cache is off in this command"
            unseen = "cannot be seen from outside"
            self._skip(f"{name}: {unseen if self.prompt_cache is None else off}")
            return
        before, saves = len(self.result.replies), self._saves()
        for _ in range(3):
            if self._over():
                break
            await self._ask([SAVED])
            if self._saves() > saves:
                break
        shown = None
        if self._saves() > saves:
            shown = f"log: {self.signs()['prompt_saved'].last_text.strip()}"
        self._close_step(name, before, shown, "")
        if shown is None:
            self._skip(f"{name}: no line of the log shows it")

    def _saves(self) -> int:
        sighting = self.signs().get("prompt_saved")
        return sighting.count if sighting else 0

    async def _all_slots(self) -> None:
        await self._at_once("all slots at once", self.n_slots)

    async def _at_once(self, name: str, requests: int) -> None:
        before = len(self.result.replies)
        await self._ask([SHORT] * requests)
        slots = {r.slot for r in self.result.replies[before:] if r.ok and r.slot is not None}
        shown = f"id_slot in the replies: {len(slots)} of {self.n_slots} slots" if slots else None
        if self.serving.mode is not Mode.TEXT:
            shown = self._answered_by_tokens(before)
        self._close_step(name, before, shown, "")

    async def _near_context(self) -> None:
        """A prompt as long as a slot's context, approached in steps of predictable time.

        Attention takes up to the square of the length, so short prompts do not predict it.
        """
        want, before = self.longest, len(self.result.replies)
        bearable = min(2 * self.workload.long_prompt_s, self.workload.timeout_s / 2)
        fits = int((self.result.speed.prompt_tps or 256.0) * self.workload.long_prompt_s)
        tokens = min(want, max(SAVED, min(fits, MODEST)))
        while True:
            await self._ask([tokens])
            last = self.result.replies[-1]
            factor = min(4.0, math.sqrt(bearable / max(last.seconds, 1e-3)))
            longer = min(want, int(tokens * factor))
            if not last.ok or longer < min(want, 1.5 * tokens) or tokens == want:
                break
            tokens = longer
        detail = ""
        if tokens < want:
            detail = f"{tokens} of {want} tokens: the rest would take too long here"
            self._skip(f"a prompt near the slot's context: {detail}")
        self._close_step(
            "a prompt near the slot's context", before, self._answered_by_tokens(before), detail
        )

    def _answered_by_tokens(self, before: int) -> str | None:
        good = [r for r in self.result.replies[before:] if r.ok]
        return f"replies: {sum(r.tokens for r in good)} prompt tokens evaluated" if good else None

    def _close_step(self, name: str, before: int, shown_by: str | None, detail: str) -> None:
        replies = self.result.replies[before:]
        ok = sum(reply.ok for reply in replies)
        step = Step(
            name=name,
            sent=len(replies),
            ok=ok,
            failed=len(replies) - ok,
            shown_by=shown_by,
            detail=detail or next((r.error for r in replies if not r.ok), ""),
        )
        same = next((i for i, s in enumerate(self.result.steps) if s.name == name), None)
        if same is None:
            self.result.steps.append(step)
        else:
            self.result.steps[same] = _joined(self.result.steps[same], step)

    def _skip(self, reason: str) -> None:
        if reason not in self.result.skipped:
            self.result.skipped.append(reason)

    async def _ask(self, lengths: Sequence[int]) -> None:
        async def one(length: int) -> None:
            reply = await self._request(self._prompt(length))
            self.result.replies.append(reply)
            await self.answered(len(self.result.replies))

        await asyncio.gather(*(one(length) for length in lengths))

    async def _request(self, prompt: list[int] | str) -> Reply:
        mode = self.serving.mode
        path: str
        body: dict[str, Any]
        if mode is Mode.EMBEDDING:
            # The older endpoint; the newer one refuses a model without pooling.
            path, body = "/embedding", {"content": prompt}
        elif mode is Mode.RERANK:
            words = _TEXT.split()
            query = " ".join(random.Random(self._seed).choices(words, k=6))
            path, body = "/v1/rerank", {"query": query, "documents": [_TEXT, query]}
        else:
            path = "/completion"
            body = {"prompt": prompt, "n_predict": PREDICT, "seed": self.sent, "temperature": 0}
        return await self._post(path, body, len(prompt))

    async def _post(self, path: str, body: dict[str, Any], sent: int) -> Reply:
        """The reply to one request of ``sent`` tokens, unless the server says how many."""
        started = time.monotonic()
        try:
            status, answer = await self.client.call("POST", path, body)
        except TimeoutError:
            seconds = time.monotonic() - started
            return Reply(
                ok=False,
                status=None,
                seconds=seconds,
                tokens=0,
                error=f"no answer within {seconds:.0f} s",
                timed_out=True,
            )
        except (aiohttp.ClientError, OSError) as error:
            return Reply(
                ok=False,
                status=None,
                seconds=time.monotonic() - started,
                tokens=0,
                error=f"the connection broke: {type(error).__name__}",
            )
        return read_reply(status, answer, time.monotonic() - started, sent)


def _joined(first: Step, again: Step) -> Step:
    """Join a repeated step into one; it counts as shown only if each repetition was."""
    return Step(
        name=first.name,
        sent=first.sent + again.sent,
        ok=first.ok + again.ok,
        failed=first.failed + again.failed,
        shown_by=again.shown_by and first.shown_by,
        detail=first.detail or again.detail,
    )
