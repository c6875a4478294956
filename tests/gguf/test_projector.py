"""The projector writer: what it writes, what three builds make of it, and how it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.base.errors import NotFoundError, UsageError
from arriero.base.sizes import MIB
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from arriero.gguf.projector import Projector, write_projector
from arriero.trial.image import data_address
from tests.conftest import BUILDS
from tests.gguf.serving import disk_bytes, serve

KINDS = (Projector(), Projector(kind="pixtral"))


def about(side: int) -> dict[str, Any]:
    """A chat request with one image and two tokens to answer with."""
    image = {"type": "image_url", "image_url": {"url": data_address(side)}}
    content = [image, {"type": "text", "text": "what?"}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 2}


@pytest.mark.engine
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("projector", KINDS, ids=lambda p: p.kind)
def test_engine_sees_images(
    projector: Projector,
    build: int,
    engine_path: Callable[[int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "99")
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    path = write_projector(tmp_path / "mmproj.gguf", projector)
    flags = ("-c", "1024", "-np", "1", "--no-warmup", "--mmproj", str(path))
    with serve(engine_path(build), model, *flags) as s:
        usage = s.post("/v1/chat/completions", about(64))["usage"]
        plain = about(64)
        plain["messages"][0]["content"] = "what?"
        text = s.post("/v1/chat/completions", plain)["usage"]
        log = s.log
    assert usage["completion_tokens"] == 2
    assert usage["prompt_tokens"] - text["prompt_tokens"] >= projector.tokens
    assert f"n_tokens_batch = {projector.tokens}" in log
    printed = re.search(r"load_hparams: model size: +([\d.]+) MiB", log)
    assert printed is not None
    size = sum(tensor.bytes for tensor in read_header(path).tensors)
    assert float(printed[1]) == pytest.approx(size / MIB, abs=0.0051)


@pytest.mark.parametrize("projector", KINDS, ids=lambda p: p.kind)
def test_same_projector_same_bytes(projector: Projector, tmp_path: Path) -> None:
    one = write_projector(tmp_path / "a.gguf", projector, seed=1).read_bytes()
    two = write_projector(tmp_path / "b.gguf", projector, seed=1).read_bytes()
    other = write_projector(tmp_path / "c.gguf", projector, seed=2).read_bytes()
    assert one == two != other
    assert len(one) == len(other)


@pytest.mark.parametrize("projector", KINDS, ids=lambda p: p.kind)
def test_zeros_take_no_disk(projector: Projector, tmp_path: Path) -> None:
    wide = Projector(kind=projector.kind, feed_forward=1 << 18, layers=1)
    full = write_projector(tmp_path / "m.gguf", wide, weights="zeros")
    header = read_header(full)
    assert full.stat().st_size > 32 * MIB > 100 * disk_bytes(full)
    assert header.metadata["clip.projector_type"] == projector.kind
    assert full.stat().st_size >= sum(tensor.bytes for tensor in header.tensors)


@pytest.mark.parametrize(
    "wrong",
    [
        {"projection": 0},
        {"layers": 1 << 21},
        {"image_size": 60},
        {"heads": 3},
        {"kind": "pixtral", "heads": 32},
    ],
)
def test_shapes_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Projector(**wrong)


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    path = write_projector(tmp_path / "m.gguf", Projector())
    with pytest.raises(UsageError, match="already exists"):
        write_projector(path, Projector())
    with pytest.raises(NotFoundError):
        write_projector(tmp_path / "none" / "m.gguf", Projector())
