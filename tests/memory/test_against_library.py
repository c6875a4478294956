"""Caches of every architecture beside what real engines make of the same header."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.engine.oracle import EngineParams, _plain
from arriero.gguf import read_header
from arriero.gguf.writer import encode, header_bytes
from arriero.memory.architectures import ARCHITECTURES
from arriero.memory.caches import cache_tensors, refusal, total
from arriero.memory.hparams import lacks, read_hparams
from tests.conftest import BUILDS
from tests.memory import asking

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WHOLE: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "whole.json").read_text())
REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"kv_unified": True},
    {"swa_full": True},
    {"type_k": "q8_0"},
    {"n_ubatch": 128},
    {"flash_attn": "off"},
    {"n_rs_seq": 3},
)
GLOBAL = "xielu"
"""Keys that do not begin with the architecture."""


def write(path: Path, arch: str) -> Path:
    keys: dict[str, Any] = {
        "general.architecture": arch,
        "tokenizer.ggml.model": "no_vocab",
        "tokenizer.ggml.token_type_count": 2,
    }
    for key, value in {**WHOLE["base"], **WHOLE["archs"][arch]}.items():
        if value is not None:
            keys[key if key.startswith(GLOBAL) else f"{arch}.{key}"] = value
    header = header_bytes([(key, encode(value)) for key, value in keys.items()], ())
    path.write_bytes(b"".join(header))
    return path


def ask(server: Path, header: Path, requests: list[EngineParams]) -> list[list[int] | str]:
    """Answers; the engine's last words where it died."""
    argv = [sys.executable, asking.__file__, str(server.parent / "libllama.so"), str(header)]
    done = subprocess.run(
        [*argv, json.dumps([_plain(request) for request in requests])],
        env={**os.environ, "LD_LIBRARY_PATH": str(server.parent), "GGML_NO_BACKTRACE": "1"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        return [done.stderr.decode(errors="replace").strip()[-200:]]
    answers: list[list[int] | str] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("build", BUILDS)
def test_caches_of_every_architecture(
    engine_path: Callable[[int], Path], tmp_path: Path, build: int
) -> None:
    answered: set[str] = set()
    for arch in sorted(ARCHITECTURES):
        path = write(tmp_path / f"{arch}.gguf", arch)
        header = read_header(path)
        requests = [EngineParams(model=path, n_ctx=4096, n_seq_max=3, **s) for s in REQUESTS]
        answers = ask(engine_path(build), path, requests)
        unknown = "unknown model architecture" in str(answers[0])
        assert unknown == lacks(header, build), (arch, answers)
        if unknown or len(answers) < len(requests):
            continue  # a model whose graph needs more than these hyperparameters
        hparams = read_hparams(header, build)
        for request, answer in zip(requests, answers, strict=True):
            if refused := refusal(hparams, request, build):
                assert isinstance(answer, str), (arch, request, refused)
            elif isinstance(answer, list):
                tensors = cache_tensors(hparams, request, build)
                rs = [t for t in tensors if t.component == "rs"]
                assert [total(tensors), total(rs)] == answer, (arch, request)
                answered.add(arch)
    assert len(answered) > 100, sorted(set(ARCHITECTURES) - answered)
