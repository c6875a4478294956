"""A small completion of Arriero's own: the only proof that an engine works."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from arriero.base import limits
from arriero.launch import Mode, Serving
from arriero.serve.apis.interface import Defaults
from arriero.serve.http.interface import Upstream, UpstreamLostError
from arriero.serve.supervisor.interface import Live
from arriero.trial.client import slots_in
from arriero.trial.prompts import Prompts

_JSON: Final = ((b"content-type", b"application/json"),)
_TOKENS: Final = {"prompt": [0, 1], "n_predict": 1, "temperature": 0, "cache_prompt": False}
"""For a model without a vocabulary, which cannot read text."""
_WORDS: Final = 8
_LOADING: Final = 503
_NOT_HERE: Final = 501
"""It works, but does not do this."""


@dataclass(frozen=True)
class Answer:
    """What a probe got. ``status`` is None where nothing came."""

    status: int | None
    body: bytes = b""

    @property
    def works(self) -> bool:
        """Whether the model answered, or the engine said that this model is not asked that."""
        status = self.status
        return status is not None and (200 <= status < 500 or status == _NOT_HERE)

    @property
    def loading(self) -> bool:
        return self.status == _LOADING


async def complete(upstream: Upstream, serving: Serving, timeout: float) -> Answer:
    """Have it complete a few words, embed or rank them, as its mode is."""
    if serving.router:
        return await ask(upstream, "GET", f"{serving.prefix}/v1/models", None, timeout)
    request = Prompts(serving.mode, 0, 64).request(4 * _WORDS)
    body = request.body
    if serving.mode is Mode.TEXT:
        body = {**body, "cache_prompt": False}
    path = f"{serving.prefix}{request.path}"
    answer = await ask(upstream, "POST", path, body, timeout)
    if serving.mode is Mode.TEXT and answer.status not in (None, 200, _LOADING):
        again = await ask(upstream, "POST", path, _TOKENS, timeout)
        answer = again if again.status is not None else answer
    return answer


async def healthy(upstream: Upstream, serving: Serving, timeout: float) -> Answer:
    """What ``/health`` says: that it is loaded, no more."""
    return await ask(upstream, "GET", f"{serving.prefix}/health", None, timeout)


async def ask(
    upstream: Upstream, method: str, path: str, body: Mapping[str, Any] | None, timeout: float
) -> Answer:
    """One request. Whatever goes wrong with it is an answer without a status."""
    data = b"" if body is None else msgspec.json.encode(body)
    return await ask_raw(upstream, method, path, data, timeout)


async def ask_raw(
    upstream: Upstream, method: str, path: str, data: bytes, timeout: float
) -> Answer:
    """The same with a body that is JSON already, or empty."""
    headers = _JSON if data else ()
    try:
        async with asyncio.timeout(timeout):
            call = await upstream.send(method, path.encode(), headers, data, timeout=timeout)
            got = bytearray()
            try:
                while piece := await call.read():
                    got += piece
                    if len(got) > limits.REPLY:
                        break
            except BaseException:
                call.close()
                raise
            if len(got) > limits.REPLY:
                call.close()
    except (UpstreamLostError, TimeoutError, OSError):
        return Answer(None)
    return Answer(call.status, bytes(got))


async def live(generation: int, upstream: Upstream, serving: Serving, build: int | None) -> Live:
    """What requests have to know of a start that answers."""
    defaults = Defaults(build=build, prefix=serving.prefix)
    answer = await ask(upstream, "GET", f"{serving.prefix}/props", None, 10.0)
    try:
        props: Any = msgspec.json.decode(answer.body) if answer.status == 200 else None
        n_slots, n_ctx = slots_in(props)
    except (ValueError, RecursionError):
        return Live(generation, upstream, None, None, defaults)
    n_slots = min(max(n_slots, 1), limits.SLOTS)
    params = props["default_generation_settings"].get("params")
    if isinstance(params, dict):
        temperature, top_k = params.get("temperature"), params.get("top_k")
        if isinstance(temperature, int | float):
            defaults = replace(defaults, temperature=float(temperature))
        if isinstance(top_k, int):
            defaults = replace(defaults, top_k=top_k)
    if serving.router or n_ctx <= 0:
        return Live(generation, upstream, None, None, defaults)
    return Live(generation, upstream, n_slots, n_ctx, defaults)
