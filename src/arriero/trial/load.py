"""The standard load: a few requests that show whether a server that is ready also serves.

Ready and served are different boundaries. Checkpoints, the prompt cache and memory for requests are
taken only when requests arrive, and several crashes happen at the second request or later. So every
server that becomes ready gets, in this order:

1. several different prompts in turn,
2. prompts long and different enough that the server saves a slot's prompt,
3. one request for every slot at once,
4. one prompt near the slot's context (shortened, with a note, if it would take too long).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from arriero.launch import Mode, Serving
from arriero.logs import Sighting
from arriero.record import Step
from arriero.trial.client import Client
from arriero.trial.prompts import PREDICT, TEXT, Prompts, Request, about_an_image
from arriero.trial.replies import LoadResult, Reply, read_reply

SHORT: Final = 16
SAVED: Final = 64
"""Tokens of the prompts in step 2. The server saves the replaced prompt, whatever its length."""
MODEST: Final = 2048
"""Tokens of the longest prompt whose time is estimated from short ones."""


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
    prompts: Prompts = field(init=False)

    def __post_init__(self) -> None:
        asked = self.workload
        self.prompts = Prompts(self.serving.mode, asked.seed, self.longest, asked.shared)

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
            status, body = await self.client.call("POST", "/tokenize", {"content": TEXT})
        except (aiohttp.ClientError, TimeoutError, OSError):
            return
        if status == 200 and isinstance(body, dict) and isinstance(body.get("tokens"), list):
            self.prompts.vocabulary = [t for t in body["tokens"] if isinstance(t, int)]

    async def _about_an_image(self) -> None:
        reply = await self._post(about_an_image(self.workload.image))
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
            reply = await self._post(self.prompts.request(length))
            self.result.replies.append(reply)
            await self.answered(len(self.result.replies))

        await asyncio.gather(*(one(length) for length in lengths))

    async def _post(self, request: Request) -> Reply:
        started = time.monotonic()
        try:
            status, answer = await self.client.call("POST", request.path, request.body)
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
        return read_reply(status, answer, time.monotonic() - started, request.tokens)


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
