"""Skeletons of models: nothing private in them, everything that memory depends on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import ModelError, UsageError
from arriero.gguf import Header, LazyArray, TensorInfo, read_header, vocabulary
from arriero.gguf.format import ValueType
from arriero.gguf.presets import tiny
from arriero.gguf.skeleton import (
    fewer_experts,
    layer_kinds,
    neutral,
    part_paths,
    with_experts,
    with_layers,
    with_vocabulary,
    write_header,
)
from arriero.gguf.writer import appearing, encode, header_bytes, write_model
from tests.gguf.build import FLOAT32, Gguf
from tests.gguf.serving import disk_bytes

MARK = "acme-secret"


def private() -> Gguf:
    """A model of a company that says so wherever a header can."""
    g = Gguf().string("general.architecture", "llama").string("general.name", f"{MARK} 7B")
    for key in ("author", "organization", "url", "license", "license.name", "size_label", "uuid"):
        g.string(f"general.{key}", f"{MARK} {key}")
    g.strings("general.tags", [MARK, "other"]).strings("general.languages", [MARK])
    g.string("general.base_model.0.repo_url", f"https://{MARK}.example/base")
    g.number("general.file_type", 1).number("general.acme_run", 12345)
    g.string("quantize.imatrix.file", f"/home/{MARK}/imatrix.dat")
    g.string("acme.project", MARK).number("acme.number", 7)
    g.string("acme.rope.scaling.type", "yarn").numbers("acme.numbers", [1, 2])
    g.number("llama.block_count", 1).number("llama.embedding_length", 32)
    g.key("llama.rope.freq_base", FLOAT32, g.pack("f", 1e6))
    g.string("llama.rope.scaling.type", "yarn").string("llama.comment", MARK)
    g.strings("llama.classifier.output_labels", [MARK, f"not {MARK}", ""])
    g.string("tokenizer.ggml.model", "llama").string("tokenizer.ggml.pre", MARK)
    g.strings("tokenizer.ggml.tokens", [f"{MARK}{i}" for i in range(300)])
    g.strings("tokenizer.ggml.merges", [f"{MARK} a"]).numbers("tokenizer.ggml.scores", [0] * 300)
    g.number("tokenizer.ggml.token_type_count", 2).number("tokenizer.ggml.bos_token_id", 1)
    g.string("tokenizer.chat_template", f"You are {MARK}").string(
        "tokenizer.huggingface.json", MARK
    )
    g.strings("tokenizer.chat_templates", [MARK])
    g.tensor("token_embd.weight", [32, 300]).tensor("blk.0.attn_q.weight", [32, 32], 0, 38400)
    return g


@pytest.fixture
def secretive(tmp_path: Path) -> Path:
    path = tmp_path / "acme.gguf"
    path.write_bytes(private().build(38400 + 4096))
    return path


def test_nothing_private_is_left(secretive: Path, tmp_path: Path) -> None:
    whole = neutral(read_header(secretive))
    [path] = write_header(whole.header, tmp_path / "out.gguf")
    assert MARK.encode() in secretive.read_bytes()
    assert MARK.encode() not in path.read_bytes()
    assert b"acme" not in path.read_bytes()
    written = read_header(path).metadata
    assert written["general.name"] == "skeleton"
    assert written["llama.rope.scaling.type"] == "yarn"
    assert written["llama.rope.freq_base"] == 1e6
    assert written["tokenizer.ggml.token_type_count"] == 2
    labels = written["llama.classifier.output_labels"]
    assert isinstance(labels, LazyArray)
    assert labels.count == 3


def test_every_key_is_kept_or_replaced_or_dropped(secretive: Path) -> None:
    header = read_header(secretive)
    whole = neutral(header)
    assert sorted([*whole.kept, *whole.replaced, *whole.dropped]) == sorted(header.metadata)
    assert {"llama.block_count", "general.file_type"} <= set(whole.kept)
    assert {"general.name", "tokenizer.ggml.tokens", "tokenizer.chat_template"} <= set(
        whole.replaced
    )
    assert {"general.url", "quantize.imatrix.file", "llama.comment"} <= set(whole.dropped)


TEXT = st.text("_-a", max_size=12).map(lambda text: f"{MARK}{text}")
KEYS = st.sampled_from(
    [
        *("general.author", "general.type", "general.alignment", "general.languages"),
        *("llama.rope.scaling.type", "llama.hidden_activation", "llama.vocab_size", "adapter.type"),
        *("adapter.lora.prompt_prefix", "tokenizer.ggml.model", "tokenizer.ggml.tokens"),
        *("tokenizer.ggml.added_tokens", "adapter.lora.task_name", "split.note", "x", ""),
    ]
)


@given(st.dictionaries(KEYS, st.one_of(TEXT, st.lists(TEXT, max_size=4)), max_size=12))
def test_no_text_survives_wherever_it_stands(keys: dict[str, str | list[str]]) -> None:
    metadata: dict[str, Any] = {"general.architecture": "llama"}
    for key, value in keys.items():
        if isinstance(value, str):
            metadata[key] = value
        else:
            metadata[key] = LazyArray(ValueType.STRING, len(value), 0)
    kept = neutral(replace(read_header(TINY), metadata=metadata)).header.metadata
    assert not [value for value in kept.values() if isinstance(value, str) and MARK in value]


TINY = Path(__file__).parent / "data" / "gemma3.gguf"


def test_tensors_lie_where_they_lay(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", tiny("qwen35moe", mtp=1))
    header = read_header(path)
    [skeleton] = write_header(neutral(header).header, tmp_path / "s.gguf")
    again = read_header(skeleton)
    assert places(again) == places(header)
    assert again.file_bytes - again.data_offset == header.file_bytes - header.data_offset
    assert disk_bytes(skeleton) < disk_bytes(path)
    assert not any(skeleton.read_bytes()[again.data_offset :])


def places(header: Header) -> list[TensorInfo]:
    """Tensors with offsets from the start of their part's weights."""
    return [replace(t, offset=t.offset - header.parts[t.part].data_offset) for t in header.tensors]


@pytest.mark.parametrize("alignment", [1, 32, 4096])
def test_other_alignments_are_kept(alignment: int, tmp_path: Path) -> None:
    g = Gguf(alignment=alignment).string("general.architecture", "llama")
    g.number("general.alignment", alignment).tensor("a", [3], 0, 0).tensor("b", [3], 0, 4096)
    (tmp_path / "m.gguf").write_bytes(g.build(4096 + 12))
    header = read_header(tmp_path / "m.gguf")
    [path] = write_header(neutral(header).header, tmp_path / "s.gguf")
    assert places(read_header(path)) == places(header)


@pytest.mark.parametrize("order", ["<", ">"])
def test_values_come_out_as_they_went_in(order: str, tmp_path: Path) -> None:
    g = Gguf(order=order).string("general.architecture", "llama")
    values: dict[str, tuple[int, bytes, Any]] = {
        "u8": (0, g.pack("B", 200), 200),
        "i32": (5, g.pack("i", -5), -5),
        "u64": (10, g.pack("Q", 1 << 40), 1 << 40),
        "i64": (11, g.pack("q", -(1 << 40)), -(1 << 40)),
        "f32": (6, g.pack("f", 0.5), 0.5),
        "bool": (7, g.pack("?", True), True),
        "bools": (9, g.pack("IQ??", 7, 2, True, False), (True, False)),
        "i32s": (9, g.pack("IQ2i", 5, 2, -1, 3), (-1, 3)),
        "u64s": (9, g.pack("IQ2Q", 10, 2, 1 << 40, 3), (1 << 40, 3)),
        "f32s": (9, g.pack("IQ2f", 6, 2, 0.5, -2.0), (0.5, -2.0)),
        "none": (9, g.pack("IQ", 5, 0), ()),
    }
    for name, (kind, data, _) in values.items():
        g.key(f"llama.{name}", kind, data)
    (tmp_path / "m.gguf").write_bytes(g.build())
    whole = neutral(read_header(tmp_path / "m.gguf"))
    [path] = write_header(whole.header, tmp_path / "s.gguf")
    written = read_header(path).metadata
    assert {name: written[f"llama.{name}"] for name in values} == {
        name: value for name, (_, _, value) in values.items()
    }


@given(st.integers(1, 600))
def test_a_vocabulary_of_any_size(count: int) -> None:
    tokens = list(vocabulary.tokens(count))
    assert len(tokens) == len(set(tokens)) == count
    assert len(list(vocabulary.token_types(count))) == count
    assert all(0 <= token < count for token in vocabulary.control_ids(count).values())


def test_no_vocabulary_stays_none(tmp_path: Path) -> None:
    g = Gguf().string("general.architecture", "llama").string("tokenizer.ggml.model", "none")
    (tmp_path / "m.gguf").write_bytes(g.number("llama.vocab_size", 8).build())
    [path] = write_header(neutral(read_header(tmp_path / "m.gguf")).header, tmp_path / "s.gguf")
    written = read_header(path).metadata
    assert written["tokenizer.ggml.model"] == "none"
    assert "tokenizer.ggml.tokens" not in written


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(Gguf().number("llama.block_count", 1).build())
    with pytest.raises(ModelError, match=r"no general\.architecture"):
        neutral(read_header(tmp_path / "m.gguf"))


# --- split sets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stem"),
    [("x.gguf", "x"), ("x-00001-of-00002.gguf", "x"), ("x-00001-of-00009.gguf", "x"), ("x", "x")],
)
def test_names_of_a_set(given: str, stem: str, tmp_path: Path) -> None:
    assert part_paths(tmp_path / given, 1) == [tmp_path / given]
    assert [p.name for p in part_paths(tmp_path / given, 2)] == [
        f"{stem}-00001-of-00002.gguf",
        f"{stem}-00002-of-00002.gguf",
    ]


def split(model: Path, directory: Path, parts: int = 3) -> Path:
    """A weightless split set with the tensors of a model."""
    header = read_header(model)
    share = -(-len(header.tensors) // parts)
    directory.mkdir()
    tensors: list[TensorInfo] = []
    kept = []
    for part in range(parts):
        mine = header.tensors[part * share : (part + 1) * share]
        end = 0
        for tensor in mine:
            tensors.append(replace(tensor, offset=end, part=part))
            end += -(-tensor.bytes // 32) * 32
        kept.append(replace(header.parts[0], bytes=end, data_offset=0))
    whole = replace(neutral(header).header, tensors=tuple(tensors), parts=tuple(kept))
    return write_header(whole, directory / "set.gguf")[0]


def test_a_set_stays_a_set(tmp_path: Path) -> None:
    first = split(write_model(tmp_path / "m.gguf", tiny("llama")), tmp_path / "set")
    header = read_header(first)
    assert len(header.parts) == 3
    paths = write_header(neutral(header).header, tmp_path / "out.gguf")
    again = read_header(paths[0])
    assert places(again) == places(header)
    assert [p.bytes - p.data_offset for p in again.parts] == [
        p.bytes - p.data_offset for p in header.parts
    ]


def test_nothing_of_a_set_appears_where_one_part_cannot(tmp_path: Path) -> None:
    first = split(write_model(tmp_path / "m.gguf", tiny("llama")), tmp_path / "set")
    out = tmp_path / "out"
    out.mkdir()
    (out / "x-00002-of-00003.gguf").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_header(neutral(read_header(first)).header, out / "x.gguf")
    assert [p.name for p in out.iterdir()] == ["x-00002-of-00003.gguf"]


# --- smaller ------------------------------------------------------------------------------------


def small(tmp_path: Path, arch: str, **shape: Any) -> Header:
    path = write_model(tmp_path / f"{arch}.gguf", tiny(arch, **shape))
    return neutral(read_header(path)).header


def test_fewer_layers_cut_arrays_and_keep_the_last(tmp_path: Path) -> None:
    header = small(tmp_path, "qwen35", layers=12, mtp=1)
    listed = {**header.metadata, "qwen35.attention.head_count_kv": (*range(12), 99)}
    cut = with_layers(replace(header, metadata=listed), 4)
    assert cut.metadata["qwen35.block_count"] == 5
    assert cut.metadata["qwen35.attention.head_count_kv"] == (0, 1, 2, 3, 99)
    assert cut.metadata["qwen35.rope.dimension_sections"] == (6, 5, 5, 0)
    names = {t.name for t in cut.tensors}
    assert "blk.4.nextn.eh_proj.weight" in names
    assert not [name for name in names if name.startswith("blk.5.")]
    ends = [(t.offset, t.offset + t.bytes) for t in cut.tensors]
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))


def test_fewer_experts_and_tokens(tmp_path: Path) -> None:
    header = small(tmp_path, "qwen35moe", experts=64, experts_used=4, vocab=700)
    assert fewer_experts(header) == 4
    cut = with_vocabulary(with_experts(header, 4), 300)
    shapes = {t.name: t.shape for t in cut.tensors}
    assert shapes["blk.0.ffn_up_exps.weight"] == (128, 128, 4)
    assert shapes["blk.0.ffn_gate_inp.weight"] == (128, 4)
    assert shapes["blk.0.ffn_up_shexp.weight"] == (128, 128)
    assert shapes["token_embd.weight"] == shapes["output.weight"] == (128, 300)
    assert cut.metadata["qwen35moe.vocab_size"] == 300


@pytest.mark.parametrize(
    ("groups", "used", "fewest"), [(0, 2, 2), (8, 8, 16), (8, 12, 24), (32, 2, None)]
)
def test_experts_in_groups(groups: int, used: int, fewest: int | None, tmp_path: Path) -> None:
    header = small(tmp_path, "deepseek2", experts=64, experts_used=used, expert_groups=groups)
    assert fewer_experts(header) == fewest


@pytest.mark.parametrize("arch", ["command-r", "exaone4", "gemma3n", "deepseek2"])
def test_layers_whose_number_means_more_stay(arch: str, tmp_path: Path) -> None:
    header = small(tmp_path, "llama")
    keys = {k.replace("llama.", f"{arch}."): v for k, v in header.metadata.items()}
    assert layer_kinds(header) is not None
    assert layer_kinds(replace(header, metadata={**keys, "general.architecture": arch})) is None


def test_a_type_that_is_not_known_cannot_shrink(tmp_path: Path) -> None:
    g = Gguf().string("general.architecture", "llama").number("llama.block_count", 1)
    g.tensor("blk.0.x", [32], 999)
    (tmp_path / "m.gguf").write_bytes(g.build(64))
    header = neutral(read_header(tmp_path / "m.gguf")).header
    [path] = write_header(header, tmp_path / "s.gguf")
    assert read_header(path).tensors[0].type == "type 999"
    with pytest.raises(ModelError, match=r"'blk\.0\.x' smaller"):
        with_layers(header, 1)


# --- files that are whole or not there ----------------------------------------------------------


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"

    def write() -> None:
        with appearing(path, 0) as file:
            file.write(b"ours")
            path.write_text("theirs")

    with pytest.raises(UsageError, match="already exists"):
        write()
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(params=["nameless", "named"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to write: where files without a name exist, and elsewhere."""
    if request.param == "named":
        monkeypatch.setattr("arriero.gguf.writer._nameless", lambda directory: None)
    return str(request.param)


def test_files_appear_when_they_are_whole(ways: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with appearing(path, 0) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()
    with pytest.raises(RuntimeError), appearing(tmp_path / "n.gguf", 0):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == [path]


def current_umask() -> int:
    os.umask(mask := os.umask(0))
    return mask


@pytest.mark.skipif(sys.platform != "linux", reason="needs files without a name")
def test_a_kill_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from arriero.gguf.writer import appearing\n"
        "with appearing(Path(sys.argv[1]), 0) as file:\n"
        "    file.write(bytes(1 << 20)); file.flush(); print('half', flush=True); time.sleep(60)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "m.gguf")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


def test_a_header_without_anything() -> None:
    assert b"".join(header_bytes([], [])) == b"GGUF" + (3).to_bytes(4, "little") + bytes(16)
    assert encode(5, ValueType.UINT16) == b"\x02\0\0\0\x05\0"
