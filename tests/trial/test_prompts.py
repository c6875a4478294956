"""Prompts of a load: the same in every trial, unlike each other, and others for another seed."""

from __future__ import annotations

from typing import Any

from arriero.launch import Mode, Serving
from arriero.trial.load import Workload, _Load
from arriero.trial.replies import LoadResult


def prompts(seed: int) -> list[list[int] | str]:
    async def answered(_: int) -> None:
        pass

    serving = Serving(
        host="127.0.0.1", port=1, socket=None, tls=False, prefix="", api_keys=(), mode=Mode.TEXT,
        router=False, metrics=False, slots=True,
    )  # fmt: skip
    client: Any = None
    load = _Load(
        client, serving, Workload(seed=seed), LoadResult(), 1, 4096, 512, dict, None,
        lambda: True, answered, vocabulary=list(range(100)),
    )  # fmt: skip
    return [load._prompt(16) for _ in range(50)]


def test_a_trial_asks_what_the_one_before_asked() -> None:
    assert prompts(0) == prompts(0)


def test_no_two_prompts_are_alike() -> None:
    asked = [str(prompt) for seed in range(20) for prompt in prompts(seed)]
    assert len(set(asked)) == len(asked) == 1000
