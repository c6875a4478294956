"""A long vocabulary is left out of what an engine reads, and changes no size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arriero.engine import oracle
from arriero.engine.oracle import DryRun, EngineParams, Unanswered, dry_run
from arriero.gguf import Header, read_header, skeleton, write_model
from arriero.gguf.presets import tiny
from arriero.gguf.shape import ARCHITECTURES
from tests.conftest import BUILDS
from tests.engine_oracle.real import environment

LONG = 1 << 14
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"flash_attn": "off"},
    {"embeddings": True, "n_outputs_max": 2048},
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("m")
    shapes = [tiny(arch, vocab=LONG) for arch in ARCHITECTURES]
    return [write_model(home / s.name, s, weights="zeros") for s in shapes]


def whole(server: Path, requests: list[EngineParams]) -> list[DryRun | Unanswered]:
    """The answers to the files as they are."""
    library = oracle._library(server.parent, "libllama.so")
    assert isinstance(library, Path)
    return oracle._answers(library, requests, environment(server), time.monotonic() + 60)


def test_it_has_the_number_of_tokens_and_none_of_them(models: list[Path], tmp_path: Path) -> None:
    for model in models:
        header = read_header(model)
        light = skeleton.without_vocabulary(header)
        assert light is not None
        (path,) = skeleton.write_header(light, tmp_path / model.name)
        found = read_header(path)
        arch = str(header.metadata["general.architecture"])
        assert found.metadata[f"{arch}.vocab_size"] == LONG
        assert "tokenizer.ggml.tokens" not in found.metadata
        assert found.data_offset < header.data_offset // 2
        assert [t.shape for t in found.tensors] == [t.shape for t in header.tensors]


def test_a_short_vocabulary_stays(tmp_path: Path) -> None:
    header = read_header(write_model(tmp_path / "m", tiny("llama", vocab=LONG - 1)))
    assert skeleton.without_vocabulary(header) is None


@pytest.mark.engine
@pytest.mark.parametrize("build", BUILDS)
def test_sizes_are_equal_to_the_byte(
    engine_path: Callable[[int], Path], models: list[Path], build: int
) -> None:
    server = engine_path(build)
    requests = [
        EngineParams(model=model, n_ctx=4096, n_seq_max=2, **more)
        for model in models
        for more in SETTINGS
    ]
    light = dry_run(server.parent, requests, environ=environment(server), timeout=60)
    answered = 0
    for one, other in zip(light, whole(server, requests), strict=True):
        assert isinstance(one, DryRun) == isinstance(other, DryRun)
        if isinstance(one, DryRun) and isinstance(other, DryRun):
            assert (one.buffers, one.n_ctx) == (other.buffers, other.n_ctx)
            answered += 1
    assert answered > 2 * len(models)


@pytest.mark.engine
def test_what_an_engine_makes_nothing_of_is_asked_whole(
    engine_path: Callable[[int], Path], models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(model: Path) -> Header:
        header = read_header(model)
        return replace(header, metadata={**header.metadata, "general.architecture": "no-such"})

    server = engine_path(10434)
    request = EngineParams(model=models[0], n_ctx=4096)
    monkeypatch.setattr(oracle, "_light_header", unreadable)
    (found,) = dry_run(server.parent, [request], environ=environment(server), timeout=60)
    (expected,) = whole(server, [request])
    assert isinstance(found, DryRun)
    assert isinstance(expected, DryRun)
    assert found.buffers == expected.buffers
