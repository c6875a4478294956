"""Skeletons beside their models: the same plan, and the same lines from the real engine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arriero.base.errors import NotFoundError, UsageError
from arriero.base.words import Component
from arriero.command import builtin_flags, parse_command
from arriero.engine.oracle import EngineParams
from arriero.gguf import Header, read_header, write_model
from arriero.gguf.presets import PUBLISHED, tiny
from arriero.gguf.shape import ARCHITECTURES, Shape
from arriero.gguf.skeleton import neutral
from arriero.jobs import skeleton as job
from arriero.machine import Pool
from arriero.memory import Planner
from arriero.memory.caches import cache_tensors, total
from arriero.memory.hparams import read_hparams
from tests.conftest import BUILDS
from tests.gguf.serving import disk_bytes, serve
from tests.gguf.site import site
from tests.gguf.test_skeleton import split

Engine = Callable[[int], Path]

HOST = Pool("host", ("host",), 1 << 42, 1 << 42, "none")
SETTINGS = ("-c 4096", "-c 1000 -np 3", "-c 4096 -np 2 --swa-full -nr", "-c 2048 --no-mmap")
SHAPES = [
    *(tiny(arch) for arch in ARCHITECTURES),
    tiny("qwen35", mtp=1, layers=8, tied=True),
    tiny("qwen35moe", mtp=1, experts=32),
    tiny("deepseek2", layers=6, dense_layers=3, expert_groups=4, experts=16, vocab=700),
    tiny("gemma3", layers=12, attention_every=6, tensor_type="q8_0"),
    tiny("nemotron_h", layers=12),
]
ARCH_HEADERS = sorted((Path(__file__).parent.parent / "memory/data/archs").glob("*.gguf"))
PARTS = {Component.WEIGHTS, Component.KV, Component.RS, Component.OUTPUT}


def named(value: Any) -> str:
    return value.name if isinstance(value, Shape | Path) else ""


def planned(model: Path, settings: str) -> Counter[tuple[Component, str]]:
    flags = builtin_flags()
    command = parse_command(["llama-server", "-m", str(model), *settings.split()], flags, {})
    plan = Planner(read_header(model), [HOST], model=model, build=10434).plan(command)
    sizes: Counter[tuple[Component, str]] = Counter()
    for buffer in plan.buffers:
        if buffer.component in PARTS:
            sizes[buffer.component, buffer.device] += buffer.bytes or 0
    return sizes


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_a_skeleton_plans_as_its_model(shape: Shape, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", shape)
    job.write_of(str(model), tmp_path / "s.gguf")
    for settings in SETTINGS:
        assert planned(tmp_path / "s.gguf", settings) == planned(model, settings) != Counter()


@pytest.mark.parametrize("path", ARCH_HEADERS, ids=lambda path: path.stem)
def test_every_known_architecture_keeps_its_caches(path: Path) -> None:
    header = read_header(path)
    assert caches(neutral(header).header) == caches(header)


def caches(header: Header) -> list[int]:
    h = read_hparams(header)
    requests = [EngineParams(model=Path("m"), n_ctx=n, n_seq_max=s) for n, s in ((4096, 1), (9, 3))]
    return [total(cache_tensors(h, request, None)) for request in requests]


# --- smaller ------------------------------------------------------------------------------------


def per_layer(header: Header) -> list[tuple[object, ...]]:
    h = read_hparams(header)
    return [job._kept_by(h, il) for il in range(h.n_layer_all)]


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_a_smaller_one_has_layers_of_every_kind(shape: Shape, tmp_path: Path) -> None:
    shape = replace(shape, layers=shape.layers * 4, vocab=1000)
    model = write_model(tmp_path / "m.gguf", shape, weights="zeros")
    record = job.write_of(str(model), tmp_path / "s.gguf", shrink=True)
    whole, small = per_layer(read_header(model)), per_layer(read_header(tmp_path / "s.gguf"))
    trunk = len(small) - shape.mtp
    assert 2 <= trunk < shape.layers
    assert small == whole[:trunk] + whole[shape.layers :]
    assert set(small) == set(whole)
    scales = {scale.what: (scale.original, scale.written) for scale in record.shrunk}
    assert scales["layers"] == (shape.layers, trunk)
    assert scales["vocabulary"] == (1000, 512)
    assert scales["weights"][0] > 2 * scales["weights"][1]
    assert record.same_memory == ("kv of each layer", "rs of each layer")
    kept = {
        (t.name.split(".", 2)[2], t.shape) for t in read_header(model).tensors if "blk" in t.name
    }
    left = {
        (t.name.split(".", 2)[2], t.shape)
        for t in read_header(tmp_path / "s.gguf").tensors
        if "blk" in t.name
    }
    assert {name for name, _ in left} == {name for name, _ in kept}
    if "experts" not in scales:
        assert left == kept


@pytest.mark.parametrize("shape", PUBLISHED, ids=named)
def test_published_models_become_small(shape: Shape, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", shape, weights="zeros")
    record = job.write_of(str(model), tmp_path / "s.gguf", shrink=True)
    if shape.name == "deepseek-v2-lite":  # its number of layers tells llama.cpp what it is
        assert "layers" not in {scale.what for scale in record.shrunk}
        assert record.same_memory == ("kv", "rs")
    else:
        assert record.file_bytes < model.stat().st_size / 10
    assert record.disk_bytes is not None
    assert record.disk_bytes < 1 << 18


# --- the real engine ----------------------------------------------------------------------------

LINE = re.compile(r"(\S+) +(output|KV|RS|compute|model) buffer size = +([\d.]+) MiB")


def lines(engine: Path, model: Path, *flags: str) -> list[tuple[str, ...]]:
    with serve(engine, model, "--no-warmup", "-fit", "off", *flags) as server:
        return LINE.findall(server.log)


@pytest.mark.engine
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_the_engine_takes_the_same(shape: Shape, engine_path: Engine, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", shape)
    job.write_of(str(model), tmp_path / "s.gguf")
    flags = ("-c", "1024", "-np", "2")
    # newer builds compute with quantised weights by instructions that not every machine has
    engine = engine_path(10068 if shape.tensor_type == "q8_0" else 10434)
    found = lines(engine, tmp_path / "s.gguf", *flags)
    assert found == lines(engine, model, *flags)
    assert {kind for _, kind, _ in found} >= {"model", "compute", "output"}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_a_smaller_one_answers(
    shape: Shape, build: int, engine_path: Engine, tmp_path: Path
) -> None:
    shape = replace(shape, layers=shape.layers * 2, vocab=1000, tensor_type="f16")
    model = write_model(tmp_path / "m.gguf", shape, weights="zeros")
    job.write_of(str(model), tmp_path / "s.gguf", shrink=True)
    with serve(engine_path(build), tmp_path / "s.gguf", "-c", "512", "-np", "1") as server:
        answer = server.post("/completion", {"prompt": "Hello", "n_predict": 4})
        assert answer["tokens_predicted"] == 4


@pytest.mark.engine
def test_a_set_is_mapped_as_a_set(engine_path: Engine, tmp_path: Path) -> None:
    first = split(write_model(tmp_path / "m.gguf", tiny("llama")), tmp_path / "set")
    record = job.write_of(str(first.with_name("set-00002-of-00003.gguf")), tmp_path / "s.gguf")
    assert [Path(path).name for path in record.paths] == [
        f"s-0000{i}-of-00003.gguf" for i in (1, 2, 3)
    ]
    found = lines(engine_path(10434), Path(record.path), "-c", "512")
    assert found == lines(engine_path(10434), first, "-c", "512")
    assert [kind for _, kind, _ in found].count("model") == 3


# --- remote -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verbatim", [False, True])
def test_a_remote_set_is_as_a_local_one(verbatim: bool, tmp_path: Path) -> None:
    first = split(write_model(tmp_path / "m.gguf", tiny("gemma3")), tmp_path / "set")
    with site() as web:
        for path in first.parent.iterdir():
            web.files[f"/{path.name}"] = path.read_bytes()
        address = web.url("/set-00003-of-00003.gguf") + "?token=s3cr3t"
        remote = job.write_of(address, tmp_path / "r.gguf", verbatim=verbatim, environ={})
    local = job.write_of(str(first), tmp_path / "l.gguf", verbatim=verbatim)
    assert [Path(p).read_bytes() for p in remote.paths] == [
        Path(p).read_bytes() for p in local.paths
    ]
    assert remote.source == web.url("/set-00001-of-00003.gguf")


# --- failures -----------------------------------------------------------------------------------


def test_verbatim_is_byte_for_byte(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", tiny("gemma3"))
    record = job.write_of(str(model), tmp_path / "s.gguf", verbatim=True)
    header = read_header(model)
    assert (tmp_path / "s.gguf").read_bytes()[: header.data_offset] == model.read_bytes()[
        : header.data_offset
    ]
    assert record.replaced == record.dropped == ()
    assert disk_bytes(tmp_path / "s.gguf") < disk_bytes(model)


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    for shrink, verbatim in ((False, False), (True, False), (False, True)):
        with pytest.raises(UsageError, match="already exists"):
            job.write_of(str(model), model, shrink=shrink, verbatim=verbatim)
    assert read_header(model).tensors


def test_what_does_not_go(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no\.gguf"):
        job.write_of(str(tmp_path / "no.gguf"), tmp_path / "s.gguf")
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    with pytest.raises(UsageError, match="exclude each other"):
        job.write_of(str(model), tmp_path / "s.gguf", shrink=True, verbatim=True)
    with pytest.raises(NotFoundError, match="there is no directory"):
        job.write_of(str(model), tmp_path / "no" / "s.gguf")
