"""Caches as four builds reported them for headers of nearly every architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.base.words import Component
from arriero.engine.oracle import DryRunRequest
from arriero.gguf import Header
from arriero.gguf.reader import Part
from arriero.memory.architectures import ARCHITECTURES
from arriero.memory.caches import cache_tensors, total
from arriero.memory.hparams import read_hparams

SEEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "seen.json").read_text())
RULES = {"10068": 10068, "10092": 10092, "10434": 10434, "11352": 11434}
"""Which rules a build goes by; 11352 was asked for those of 11434."""


NEVER = """
apertus bert chameleon clef deepseek2-ocr deepseek4 dflash eagle3 gemma-embedding gemma4-assistant
glm5-next graniteswitch jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe olmoe plm qwen3tts
rwkv6qwen2 t5 t5encoder wavtokenizer-dec
"""


def header(case: dict[str, Any]) -> Header:
    keys = {**SEEN["base"], **case["keys"]}
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


@pytest.mark.parametrize("case", SEEN["cases"], ids=lambda c: f"{c['arch']} {c['variant']}")
def test_caches_are_what_each_build_reported(case: dict[str, Any]) -> None:
    source = header(case)
    for build, answers in case["answers"].items():
        hparams = read_hparams(source, RULES[build])
        for settings, answer in zip(SEEN["requests"], answers, strict=True):
            if answer is not None:
                request = DryRunRequest(model=Path("m"), **settings)
                tensors = cache_tensors(hparams, request, RULES[build])
                planned = [total(tensors), total(tensors, Component.RS)]
                assert planned == answer, (build, settings)


def test_few_architectures_were_never_asked() -> None:
    asked = {case["arch"] for case in SEEN["cases"]}
    asked |= set(json.loads((Path(__file__).parent / "data/archs/expected.json").read_text()))
    never = set(ARCHITECTURES) - asked
    # drafts of another model's context, and models whose graphs need more than metadata
    assert never == set(NEVER.split())
