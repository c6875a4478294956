"""Prompts of a load: the same in every trial, unlike each other, and others for another seed."""

from __future__ import annotations

from arriero.launch import Mode
from arriero.trial.prompts import Prompts


def prompts(seed: int) -> list[list[int] | str]:
    asked = Prompts(Mode.TEXT, seed, longest=4086, vocabulary=list(range(100)))
    return [asked.prompt(16) for _ in range(50)]


def test_a_trial_asks_what_the_one_before_asked() -> None:
    assert prompts(0) == prompts(0)


def test_no_two_prompts_are_alike() -> None:
    asked = [str(prompt) for seed in range(20) for prompt in prompts(seed)]
    assert len(set(asked)) == len(asked) == 1000
