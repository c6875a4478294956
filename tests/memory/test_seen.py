"""Caches as builds of llama.cpp reported them for headers of every architecture but one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.base.words import Component
from arriero.engine.oracle import EngineParams
from arriero.gguf import Header
from arriero.gguf.header import Part
from arriero.memory.architectures import ARCHITECTURES
from arriero.memory.caches import cache_tensors, total
from arriero.memory.hparams import read_hparams

DATA = Path(__file__).parent / "data"
SEEN: dict[str, Any] = json.loads((DATA / "seen.json").read_text())
VARIED: dict[str, Any] = json.loads((DATA / "varied.json").read_text())
RULES = {"10068": 10068, "10092": 10092, "10434": 10434, "11352": 11434, "11434": 11434}
"""Which rules a build goes by; 11352 was asked for those of 11434."""


def header(case: dict[str, Any], base: dict[str, Any]) -> Header:
    keys = {**base, **case["keys"]}
    metadata = {
        f"{case['arch']}.{key}": tuple(value) if isinstance(value, list) else value
        for key, value in keys.items()
        if value is not None
    }
    return Header(
        version=3,
        big_endian=False,
        metadata={"general.architecture": case["arch"], "m.vocab_size": 64, **metadata},
        tensors=(),
        data_offset=0,
        alignment=32,
        file_bytes=0,
        parts=(Part("seen", 0, 0),),
    )


def compare(case: dict[str, Any], base: dict[str, Any], requests: list[dict[str, Any]]) -> None:
    source = header(case, base)
    for builds, answers in case["answers"].items():
        for build in builds.split():
            hparams = read_hparams(source, RULES[build])
            for settings, answer in zip(requests, answers, strict=True):
                if answer is not None:
                    request = EngineParams(model=Path("m"), **settings)
                    tensors = cache_tensors(hparams, request, RULES[build])
                    planned = [total(tensors), total(tensors, Component.RS)]
                    assert planned == answer, (build, settings)


@pytest.mark.parametrize("case", SEEN["cases"], ids=lambda c: f"{c['arch']} {c['variant']}")
def test_caches_are_what_each_build_reported(case: dict[str, Any]) -> None:
    compare(case, SEEN["base"], SEEN["requests"])


@pytest.mark.parametrize("case", VARIED["cases"], ids=lambda c: c["arch"])
def test_caches_follow_hyperparameters_drawn_at_random(case: dict[str, Any]) -> None:
    compare(case, {}, VARIED["requests"])


def test_every_architecture_was_asked() -> None:
    asked = {case["arch"] for case in SEEN["cases"] + VARIED["cases"]}
    asked |= set(json.loads((DATA / "archs" / "expected.json").read_text()))
    # it has no memory of its own: only views into its target's
    assert set(ARCHITECTURES) - asked == {"gemma4-assistant"}
