"""What a header says about memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.base.errors import ModelError
from arriero.gguf.model import MemoryClass, describe, memory_class_of
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.gguf.reader import read_header
from arriero.gguf.shape import ARCHITECTURES
from arriero.gguf.writer import write_model
from tests.gguf.build import Gguf

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    ("file", "memory_class", "recurrent"),
    [
        ("llama", "attention", 0),
        ("gemma3", "attention", 0),
        ("deepseek2", "attention", 0),
        ("mamba2", "recurrent", 2),
        ("rwkv7", "recurrent", 2),
        ("falcon-h1", "hybrid", 2),
        ("granitehybrid", "hybrid", 1),
        ("lfm2", "hybrid", 1),
        ("qwen35", "hybrid", 1),
        ("bailingmoe3", "hybrid", 1),
        ("minimax-01", "hybrid", 1),
        ("rnd1", "none", 0),
    ],
)
def test_memory_class(file: str, memory_class: str, recurrent: int) -> None:
    model = describe(read_header(DATA / f"{file}.gguf"))
    assert (model.arch, model.memory_class) == (file, memory_class)
    assert (model.n_layer, model.n_recurrent_layer) == (2, recurrent)
    assert model.n_ctx_train == 256
    assert model.n_vocab == 128


def test_layers_of_the_trunk_without_next_token_layers(tmp_path: Path) -> None:
    shape = tiny("qwen35", layers=8, mtp=1)
    model = describe(read_header(write_model(tmp_path / "m.gguf", shape, weights="zeros")))
    assert (model.n_layer, model.n_recurrent_layer, model.n_vocab) == (8, 6, 384)


def test_ladder(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", LADDER_HYBRID, weights="zeros")
    model = describe(read_header(path))
    assert (model.n_layer, model.n_recurrent_layer) == (40, 30)
    assert model.file_bytes == path.stat().st_size


def test_nemotron_keeps_nothing_in_feed_forward_layers(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", tiny("nemotron_h", layers=8), weights="zeros")
    assert describe(read_header(path)).n_recurrent_layer == 4


def test_unknown_architecture_is_no_guess(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        Gguf().string("general.architecture", "llama9").number("llama9.block_count", 7).build()
    )
    model = describe(read_header(path))
    assert model.memory_class == "unknown"
    assert model.n_layer == 7
    assert model.n_recurrent_layer is None


def test_hybrid_without_its_keys_has_unknown_layers(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(
        Gguf().string("general.architecture", "lfm2").number("lfm2.block_count", 7).build()
    )
    assert describe(read_header(path)).n_recurrent_layer is None


def test_no_architecture(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(Gguf().build())
    with pytest.raises(ModelError, match=r"no general\.architecture"):
        describe(read_header(path))


def test_writable_architectures_are_known() -> None:
    assert MemoryClass.UNKNOWN not in map(memory_class_of, ARCHITECTURES)


def test_a_name_or_a_number_of_layers_that_cannot_be(tmp_path: Path) -> None:
    for arch in ("x" * 65, "a\x1b[2Jb"):
        (tmp_path / "m.gguf").write_bytes(Gguf().string("general.architecture", arch).build())
        with pytest.raises(ModelError, match=r"general\.architecture is not a name"):
            describe(read_header(tmp_path / "m.gguf"))
    absurd = Gguf().string("general.architecture", "jamba").number("jamba.block_count", 1 << 31)
    (tmp_path / "m.gguf").write_bytes(absurd.build())
    about = describe(read_header(tmp_path / "m.gguf"))
    assert (about.n_layer, about.n_recurrent_layer) == (None, None)
