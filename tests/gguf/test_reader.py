"""The header reader: what it reads, what it refuses, and how it bears hostile files."""

from __future__ import annotations

import os
import re
import struct
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base import limits
from arriero.base.errors import ArrieroError, ModelError, NotFoundError
from arriero.base.sizes import MIB
from arriero.gguf import architectures, file_reader
from arriero.gguf.format import ValueType
from arriero.gguf.header import Header, LazyArray
from arriero.gguf.presets import tiny
from arriero.gguf.reader import read_header, read_source
from arriero.gguf.skeleton import write_skeleton
from arriero.gguf.source import Source
from arriero.gguf.weights import stored_bytes
from arriero.gguf.writer import write_model
from tests.gguf.build import ARRAY, Gguf
from tests.gguf.serving import disk_bytes


class Bytes:
    """A source in memory."""

    name = "m.gguf"
    requests = bytes_read = 0

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, offset: int, length: int, ahead: int = 0) -> bytes:
        return self._data[offset : offset + length + ahead]

    def sibling(self, name: str) -> Source:
        raise NotFoundError(name)

    def close(self) -> None:
        pass


def read(data: bytes) -> Header:
    return read_source(Bytes(data))


def small(order: str = "<") -> Gguf:
    return (
        Gguf(order)
        .string("general.architecture", "llama")
        .number("llama.block_count", 2)
        .numbers("llama.attention.head_count_kv", [2, -1])
        .strings("tokenizer.ggml.tokens", ["a", "", "wörd" * 100])
        .string("after", "the array")
        .tensor("t", [32, 4])
        .tensor("u", [32, 2], type_id=8, offset=512)
    )


# --- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_everything_of_a_small_file(order: str, version: int) -> None:
    builder = small(order)
    builder.version = version
    header = read(builder.build(data=512 + 68))
    assert (header.version, header.big_endian) == (version, order == ">")
    assert header.metadata["llama.block_count"] == 2
    assert header.metadata["llama.attention.head_count_kv"] == (2, -1)
    assert header.metadata["after"] == "the array"
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, LazyArray)
    assert (tokens.type, tokens.count) == (ValueType.STRING, 3)
    assert [(t.name, t.type, t.shape, t.bytes) for t in header.tensors] == [
        ("t", "f32", (32, 4), 512),
        ("u", "q8_0", (32, 2), 68),
    ]
    assert header.tensors[1].offset == header.data_offset + 512
    assert header.file_bytes == header.data_offset + 580


def test_strings_across_many_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "_CHUNK", 64)
    words = ["x" * (i * 7 % 90) for i in range(500)]
    header = read(Gguf().strings("tokens", words).string("end", "reached").build())
    assert header.metadata["end"] == "reached"


def test_written_models_read_back(tmp_path: Path) -> None:
    shape = tiny("qwen35", mtp=1)
    header = read_header(write_model(tmp_path / "m.gguf", shape))
    written = list(architectures.tensors(shape))
    assert [(t.name, t.shape) for t in header.tensors] == [(t.name, t.dims) for t in written]
    assert [t.bytes for t in header.tensors] == [stored_bytes(t, shape) for t in written]
    for key, value in architectures.metadata(shape).items():
        read_value = header.metadata[key]
        assert read_value == (tuple(value) if isinstance(value, list) else pytest.approx(value))


def test_long_arrays_of_numbers_are_stepped_over() -> None:
    values = [7] * (limits.HEADER_NUMBERS + 1)
    header = read(Gguf().numbers("scores", values).string("end", "reached").build())
    scores = header.metadata["scores"]
    assert isinstance(scores, LazyArray)
    assert scores.count == len(values)
    assert header.metadata["end"] == "reached"


def test_unknown_tensor_type_takes_the_room_it_has() -> None:
    builder = Gguf().tensor("new", [256], type_id=99).tensor("next", [8], offset=96)
    header = read(builder.build(data=128))
    assert [(t.type, t.bytes) for t in header.tensors] == [("type 99", 96), ("f32", 32)]


# --- what is refused ----------------------------------------------------------------------------

NOT_GGUF = {
    b"": "it is empty",
    b"tjgg\x01\0\0\0": "old ggml model",
    b"\x40\0\0\0\0\0\0\0" + b'{"__metadata__":{}}': "safetensors",
    b"PK\x03\x04\x14\0": "PyTorch",
    b"\x80\x02}q\0": "pickle",
    b"\n<!DOCTYPE html><html>": "a web page",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:0": "Git LFS pointer",
    b'{"error":"Repository not found"}': "JSON",
    b"FUGG": "byte-swapped",
    bytes(64): "never finished",
    b"\x1f\x8b\x08": "gzip",
    b"Entry not found": "starts with b'Entr'",
}


@pytest.mark.parametrize("data", NOT_GGUF, ids=NOT_GGUF.values())
def test_other_files_are_named(data: bytes) -> None:
    with pytest.raises(ModelError, match="is not a GGUF file") as caught:
        read(data)
    assert NOT_GGUF[data] in caught.value.message
    assert caught.value.hint


def damaged() -> Iterator[tuple[bytes, str]]:
    yield Gguf(version=1).build(), r"version 1 \(byte 4\) is not 2 or 3"
    yield Gguf(version=4).build(), r"version 4 \(byte 4\) is not 2 or 3"
    yield b"GGUF\3\0", "file is truncated: the file header at byte 4"
    yield Gguf(key_count=1 << 60).build(), "number of keys"
    yield Gguf(tensor_count=1 << 60).build(), "number of tensors"
    yield Gguf(key_count=2, alignment=1).string("a", "b").build(), "truncated: key 2 of 2"
    yield Gguf().number("k", 1).number("k", 2).build(), r"key 'k' appears twice \(byte 41\)"
    yield Gguf().key("k", 77, b"").build(), r"key 'k' has the unknown type 77 \(byte 24\)"
    nested = struct.pack("<IQ", ARRAY, 1)
    yield Gguf().key("k", ARRAY, nested).build(), "array of arrays"
    for kind, size in ((8, 8), (4, 4), (12, 8)):
        for count in (1 << 20, 1 << 61, (1 << 64) - 1):
            array = struct.pack("<IQ", kind, count)
            yield Gguf().key("k", ARRAY, array).build(), f"key 'k' at byte .* {count * size} bytes"
    yield Gguf().key("k", 8, struct.pack("<Q", (1 << 64) - 1)).build(), "truncated: key 'k'"
    within = struct.pack("<IQQ", 8, 2, 1) + b"a" + struct.pack("<Q", 1 << 40)
    yield Gguf().key("k", ARRAY, within).build(), "key 'k', string . of 2 at byte"
    yield (
        Gguf().number("general.alignment", 48).build(),
        "'general.alignment' must be a power of two up to 1048576; it is 48",
    )
    yield Gguf().number("general.alignment", 0).build(), "must be a power of two"
    yield Gguf().string("general.alignment", "32").build(), "must be a power of two"
    yield Gguf().tensor("t", [1] * 5).build(), "dimensions 5; at most 4"
    yield Gguf().tensor("t", [1 << 40, 1 << 40]).build(), "tensor 't' has the absurd shape"
    yield Gguf().tensor("t", [30], type_id=8).build(99), "rows of 30, not a multiple of 32"
    yield Gguf().tensor("t", [8], offset=3).build(99), "starts at 3, not at a multiple"
    yield Gguf().tensor("t", [8]).tensor("t", [8], offset=32).build(99), "tensor 't' appears twice"
    yield (
        Gguf().tensor("t", [1024]).build(100),
        "truncated: tensor 't' ends at byte 4160, but the file has 164",
    )
    yield Gguf().tensor("t", [8], offset=1 << 63).build(99), "truncated: tensor 't' ends at"


@pytest.mark.parametrize(("data", "says"), [pytest.param(*d, id=d[1]) for d in damaged()])
def test_damage_is_named_with_its_place(data: bytes, says: str) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        read(data)
    assert re.search(r"byte \d+", caught.value.message)


def test_every_cut_of_a_file_is_refused() -> None:
    data = small().build(data=580)
    for end in range(len(data)):
        with pytest.raises(ModelError, match=r"truncated|not a GGUF file"):
            read(data[:end])


def test_things_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no model file"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match="a directory"):
        read_header(tmp_path)
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    with pytest.raises(ModelError, match="cannot read"):
        read_header(loop)
    with pytest.raises(ModelError, match="null"):
        read_header(Path("a\0b"))


@pytest.mark.skipif(sys.platform == "win32", reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    if sys.platform != "win32":
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelError, match="not a regular file"):
            read_header(tmp_path / "pipe")


# --- split sets ---------------------------------------------------------------------------------


def write_set(directory: Path, count: int = 3, **overrides: int) -> list[Path]:
    """A set with one tensor per part; ``no1=5`` gives the second part the number 5."""
    paths = []
    for i in range(count):
        builder = Gguf().number("split.no", overrides.get(f"no{i}", i))
        builder.number("split.count", overrides.get(f"count{i}", count))
        builder.number("split.tensors.count", overrides.get("tensors", count))
        builder.string("general.architecture", "llama").tensor(f"t{i}", [8 * (i + 1)])
        paths.append(directory / f"m-{i + 1:05d}-of-{count:05d}.gguf")
        paths[-1].write_bytes(builder.build(data=32 * (i + 1)))
    return paths


def test_split_set_is_one_model(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    header = read_header(paths[0])
    assert [(t.name, t.part, t.bytes) for t in header.tensors] == [
        ("t0", 0, 32),
        ("t1", 1, 64),
        ("t2", 2, 96),
    ]
    assert header.file_bytes == sum(p.stat().st_size for p in paths)
    assert [p.name for p in header.parts] == [str(p) for p in paths]


def test_missing_part(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[1].unlink()
    with pytest.raises(NotFoundError, match="the set lacks m-00002-of-00003"):
        read_header(paths[0])


def test_later_part_points_to_the_first(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not the first part") as caught:
        read_header(write_set(tmp_path)[2])
    assert caught.value.hint == "give m-00001-of-00003.gguf"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"no1": 2}, "split.no is 2, not 1"),
        ({"count2": 4}, "split.count is 4, not 3"),
        ({"count2": 1}, "split.count is 1, not 3"),
        ({"count0": 5}, "one of 5 parts, but its name does not"),
        ({"count0": 1 << 31}, "more than 9999"),
        ({"tensors": 9}, "has 3 tensors instead of 9"),
    ],
)
def test_mismatched_sets(overrides: dict[str, int], says: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=says):
        read_header(write_set(tmp_path, **overrides)[0])


def test_part_that_is_a_copy_of_another(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    paths[1].unlink()
    paths[1].symlink_to(paths[0])
    with pytest.raises(ModelError, match="is 0, not 1"):
        read_header(paths[0])


# --- skeletons ----------------------------------------------------------------------------------


def test_skeleton_has_the_header_and_no_weights(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    (tmp_path / "out").mkdir()
    header = read_header(model)
    skeleton = write_skeleton(header, tmp_path / "out")
    assert skeleton.name == "m.gguf"
    data = skeleton.read_bytes()
    assert data[: header.data_offset] == model.read_bytes()[: header.data_offset]
    assert len(data) == header.file_bytes
    assert not any(data[header.data_offset :])
    assert disk_bytes(skeleton) < disk_bytes(model)


def test_skeleton_of_a_split_set(tmp_path: Path) -> None:
    paths = write_set(tmp_path)
    (tmp_path / "out").mkdir()
    first = write_skeleton(read_header(paths[0]), tmp_path / "out")
    assert read_header(first).tensors == read_header(paths[0]).tensors


# --- hostile files ------------------------------------------------------------------------------

DATA = sorted(Path(__file__).parent.glob("data/*.gguf"))


def read_within_bounds(data: bytes) -> None:
    """Either a header or an ArrieroError, in bounded memory."""
    tracemalloc.start()
    try:
        header = read(data)
        assert all(t.offset + t.bytes <= len(data) for t in header.tensors)
    except ArrieroError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 * MIB


@settings(max_examples=60, deadline=None)
@given(
    file=st.sampled_from(range(len(DATA))),
    changes=st.lists(
        st.tuples(st.integers(0, 6000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4
    ),
)
def test_mutated_headers(file: int, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(DATA[file].read_bytes())
    for place, patch in changes:
        place %= len(data)
        data[place : place + len(patch)] = patch
    read_within_bounds(bytes(data))


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 900), value=st.sampled_from([0, 1, 1 << 16, 1 << 31, (1 << 64) - 1]))
def test_mutated_lengths(place: int, value: int) -> None:
    data = bytearray(small().build(data=580))
    place %= len(data) - 8
    data[place : place + 8] = value.to_bytes(8, "little")
    read_within_bounds(bytes(data))


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes(tail: bytes) -> None:
    read_within_bounds(b"GGUF\3\0\0\0" + tail)


@pytest.mark.thorough
def test_most_that_a_header_may_hold_stays_small() -> None:
    crowded = Gguf()
    for i in range(limits.HEADER_KEYS):
        crowded.numbers(f"key {i}", range(16))
    for i in range(limits.HEADER_TENSORS):
        crowded.tensor(f"tensor {i}", [1 << 20, 1, 1, 1], type_id=99)
    read_within_bounds(crowded.build())


def test_text_is_bounded() -> None:
    builder = Gguf()
    for i in range(5):
        builder.string(f"k{i}", b"x" * (limits.HEADER_TEXT // 4))
    with pytest.raises(ModelError, match="key 'k3'"):
        read(builder.build())
