"""The model writer: what it writes, what the engine makes of it, and how it fails."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.base.sizes import GIB, MIB
from arriero.gguf import presets, writer
from arriero.gguf.presets import tiny
from arriero.gguf.shape import ARCHITECTURES, Shape
from arriero.gguf.writer import model_bytes, write_model
from tests.conftest import BUILDS
from tests.gguf.serving import Served, disk_bytes, serve

Engine = Callable[[int], Path]

PRINTABLE = re.compile(r"[ -~]*\Z")


def printed(log: str, label: str) -> float:
    """The MiB of all lines like ``CPU KV buffer size =  20.00 MiB``."""
    return sum(float(size) for size in re.findall(rf"{label} buffer size = +([\d.]+) MiB", log))


def assert_answers(server: Served) -> None:
    prompt = "Hello wörld, 1 + 1 = ?\n\t"
    for sampling in ({"temperature": 0}, {}):
        answer = server.post("/completion", {"prompt": prompt, "n_predict": 12, **sampling})
        assert PRINTABLE.match(answer["content"])
        assert len(answer["content"]) == answer["tokens_predicted"] == 12
        assert answer["tokens_evaluated"] == len(prompt.encode())
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    message = server.post("/v1/chat/completions", chat)["choices"][0]["message"]
    assert PRINTABLE.match(message["content"])


# --- the engine ---------------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_engine_serves_every_architecture(arch: str, engine_path: Engine, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", tiny(arch))
    assert model.stat().st_size < 5 * MIB
    with serve(engine_path(10434), model, "-c", "512", "-np", "1") as server:
        assert_answers(server)


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_build_serves_every_kind_of_weights(
    arch: str, build: int, engine_path: Engine, tmp_path: Path
) -> None:
    shapes = {"tied": tiny(arch, tied=True)} if arch not in {"rwkv7", "gpt-oss"} else {}
    shapes |= {"f16": tiny(arch), "f32": tiny(arch, tensor_type="f32")}
    for name, shape in shapes.items():
        model = write_model(tmp_path / f"{name}.gguf", shape, seed=build)
        with serve(engine_path(build), model, "-c", "512", "-np", "1") as server:
            assert_answers(server)
    model = write_model(tmp_path / "zeros.gguf", tiny(arch), weights="zeros")
    with serve(engine_path(build), model, "-c", "512", "-np", "1") as server:
        assert_answers(server)


@pytest.mark.engine
def test_next_token_layers_are_drafted_with(engine_path: Engine, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", tiny("qwen35", mtp=1))
    flags = ("-c", "512", "-np", "1", "--spec-type", "draft-mtp")
    with serve(engine_path(10434), model, *flags) as server:
        assert_answers(server)
        assert server.log.count("KV buffer size") == 2


@pytest.mark.engine
@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize(
    ("shape", "kv_per_token", "rs_per_slot"),
    [
        (presets.LADDER_HYBRID, 10 * 2 * 2 * 128, 30 * 4 * (128 * 4096 + 3 * (4096 + 32 * 128))),
        (presets.LADDER_RECURRENT, 0, 16 * 4 * (256 * 4096 + 3 * (4096 + 2 * 256))),
        (presets.LADDER_DENSE, 16 * 2 * 2 * 32 * 128, 0),
    ],
    ids=lambda value: value.name if isinstance(value, Shape) else "",
)
def test_presets_take_the_memory_they_promise(
    shape: Shape,
    kv_per_token: int,
    rs_per_slot: int,
    slots: int,
    engine_path: Engine,
    tmp_path: Path,
) -> None:
    model = write_model(tmp_path / "m.gguf", shape, weights="zeros")
    assert model.stat().st_size < 300 * 10**6
    flags = ("-c", "2048", "-np", str(slots), "--no-warmup")
    with serve(engine_path(10434), model, *flags) as server:
        assert printed(server.log, "KV") == pytest.approx(2048 * kv_per_token / MIB, abs=0.01)
        assert printed(server.log, "RS") == pytest.approx(slots * rs_per_slot / MIB, abs=0.01)


@pytest.mark.engine
def test_swa_preset_caps_its_sliding_layers(engine_path: Engine, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", presets.LADDER_SWA, weights="zeros")
    flags = ("-c", "4096", "-np", "1", "--no-warmup")
    with serve(engine_path(10434), model, *flags) as server:
        cells = 4 * 4096 + 20 * (1024 + 512)
        assert printed(server.log, "KV") == cells * 2 * 2 * 16 * 256 / MIB


@pytest.mark.engine
def test_sixty_four_slots_of_the_hybrid_ladder_fail_in_rs(
    engine_path: Engine, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "m.gguf", presets.LADDER_HYBRID, weights="zeros")
    engine = engine_path(10434)
    limited = (
        "import resource, os, sys;"
        "resource.setrlimit(resource.RLIMIT_AS, (3670016 << 10,) * 2);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    argv = [str(engine), "-m", str(model), "-c", "4096", "-np", "64", "--no-warmup", "--port", "0"]
    ended = subprocess.run(
        [sys.executable, "-c", limited, *argv],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "LD_LIBRARY_PATH": str(engine.parent)},
    )
    output = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "failed to allocate buffer for rs cache" in output
    assert "attempted to allocate 4020.00 MB" in output


# --- the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_same_seed_same_bytes(arch: str, tmp_path: Path) -> None:
    shape = tiny(arch)
    digests = [
        hashlib.sha256(write_model(tmp_path / str(i), shape, seed=seed).read_bytes()).digest()
        for i, seed in enumerate((1, 1, 2))
    ]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    ("tensor_type", "bits"), [("f32", 32), ("bf16", 16), ("q8_0", 8.5), ("q4_0", 4.5)]
)
def test_tensor_types(tensor_type: Any, bits: float, tmp_path: Path) -> None:
    shape = tiny("llama", embedding=256, tensor_type=tensor_type)
    size = write_model(tmp_path / "m.gguf", shape).stat().st_size
    f16 = write_model(tmp_path / "f16.gguf", tiny("llama", embedding=256)).stat().st_size
    assert size / f16 == pytest.approx(bits / 16, abs=0.03)


@pytest.mark.parametrize(
    ("shape", "published"),
    [
        # what the usual files of these models weigh, their header of some MB included
        (presets.LLAMA_3_1_8B, 4.92e9),
        (presets.DEEPSEEK_V2_LITE, 10.36e9),
        (presets.GPT_OSS_20B, 12.11e9),
        (presets.GPT_OSS_120B, 63.39e9),
        (presets.DEEPSEEK_V3, 404.5e9),
    ],
    ids=lambda value: value.name if isinstance(value, Shape) else "",
)
def test_published_models_weigh_what_their_files_do(shape: Shape, published: float) -> None:
    assert model_bytes(shape) == pytest.approx(published, rel=0.002)


def test_a_mix_of_types_has_no_random_weights(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="random weights cannot be written as mxfp4"):
        write_model(tmp_path / "m.gguf", presets.GPT_OSS_20B)


def test_full_size_model_without_weights_costs_no_disk(tmp_path: Path) -> None:
    shape = Shape(
        arch="llama",
        layers=80,
        embedding=8192,
        heads=64,
        heads_kv=8,
        head_dim=128,
        feed_forward=28672,
        vocab=128256,
    )
    model = write_model(tmp_path / "70b.gguf", shape, weights="zeros")
    assert model.stat().st_size > model_bytes(shape) > 130 * GIB
    assert disk_bytes(model) < 8 * MIB


def test_memory_stays_small_while_writing(tmp_path: Path) -> None:
    code = (
        "import re, sys; from pathlib import Path;"
        "from arriero.gguf import presets; from arriero.gguf.writer import write_model;"
        # not ru_maxrss, which begins with what the parent of a process had
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]);"
        "before = peak(); write_model(Path(sys.argv[1]), presets.LADDER_DENSE);"
        "print(peak() - before)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "m.gguf")]
    grown = int(subprocess.run(argv, capture_output=True, check=True).stdout) << 10
    assert grown < 40 * MIB < (tmp_path / "m.gguf").stat().st_size


# --- failures -----------------------------------------------------------------------------------


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no directory"):
        write_model(tmp_path / "no" / "m.gguf", tiny("llama"))


def test_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_model(path, tiny("llama"))
    assert path.read_text() == "mine"


def test_full_disk_shows_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(ArrieroError) as caught:
        write_model(tmp_path / "m.gguf", tiny("llama"))
    assert caught.value.id == "disk-full"
    assert caught.value.hint.endswith("KiB on the disk")
    write_model(tmp_path / "m.gguf", tiny("llama"), weights="zeros")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a file size limit")
def test_failure_while_writing_leaves_nothing(tmp_path: Path) -> None:
    if sys.platform != "win32":
        import resource

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
        try:
            with pytest.raises(ArrieroError, match=os.strerror(errno.EFBIG)):
                write_model(tmp_path / "m.gguf", tiny("llama"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert list(tmp_path.iterdir()) == []


def test_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "fill", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_model(tmp_path / "m.gguf", tiny("llama"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arch", "changes", "says"),
    [
        ("gpt5", {}, "architecture 'gpt5'"),
        ("llama", {"vocab": 100}, "vocab 100 is below 259"),
        ("llama", {"layers": 0}, "layers must be 1"),
        ("llama", {"layers": 513}, "at most 512 layers"),
        ("llama", {"embedding": 100}, "multiple of 32"),
        ("llama", {"embedding": 1 << 40}, "embedding must be"),
        ("llama", {"heads_kv": 3}, "multiple of heads_kv"),
        ("llama", {"mtp": 1}, "mtp is written for qwen35 and qwen35moe only"),
        ("gpt-oss", {"tied": True}, "cannot be tied"),
        ("gpt-oss", {"window": 0}, "has a window"),
        ("deepseek2", {"q_lora": 0}, "26 or 27 layers"),
        ("deepseek2", {"expert_groups": 3}, "multiple of expert_groups"),
        ("rwkv7", {"tied": True}, "cannot be tied"),
        ("mamba", {"ssm_inner": 512}, "twice the embedding"),
        ("qwen35", {"ssm_inner": 512}, "ssm_heads \\* ssm_state"),
        ("lfm2", {"heads": 8}, "is not the embedding"),
        ("mamba2", {"ssm_groups": 3}, "multiple of ssm_groups"),
    ],
)
def test_impossible_shapes(arch: str, changes: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        tiny(arch, **changes)
