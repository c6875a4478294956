"""``arriero skeleton`` as people and programs call it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from tests.cli.running import Place

USAGE, FAILURE, NOT_FOUND = 2, 1, 3


def test_of_a_model(place: Place, model: Path) -> None:
    said = place.run("skeleton", model, "-o", "small.gguf")
    assert said.status == 0
    assert said.err == ""
    first, what, same = said.out.splitlines()
    assert first.startswith("wrote small.gguf: qwen35, ")
    assert what.startswith("replaced or left out: ")
    assert same == "same memory as the model: weights, kv, rs, compute, output"
    assert all(len(line) <= 80 for line in said.out.splitlines())
    again = place.run("skeleton", model, "-o", "small.gguf")
    assert again.status == USAGE
    assert "small.gguf already exists" in again.only_complaint()


def test_as_a_document(place: Place, model: Path) -> None:
    found = place.run("skeleton", "--json", model, "-o", "small.gguf").document("skeleton")
    assert found["source"] == str(model)
    assert found["weights"] == "zeros"
    assert found["disk_bytes"] < found["file_bytes"] == (place.root / "small.gguf").stat().st_size
    assert "qwen35.block_count" in found["kept"]
    assert "tokenizer.ggml.tokens" in found["replaced"]
    assert found["shrunk"] == []


def test_smaller(place: Place) -> None:
    shape = tiny("qwen35moe", layers=16, experts=64, vocab=20_000)
    write_model(place.root / "m.gguf", shape, weights="zeros")
    said = place.run("skeleton", "m.gguf", "-o", "small.gguf", "--shrink")
    assert "smaller: layers 16 to 4, experts 64 to 2, vocabulary 20000 to 512" in said.out
    assert said.out.endswith("same memory as the model: kv of each layer, rs of each layer\n")
    assert all(len(line) <= 80 for line in said.out.splitlines())
    found = place.run("skeleton", "--json", "m.gguf", "-o", "x.gguf", "--shrink")
    shrunk = {
        s["what"]: (s["original"], s["written"]) for s in found.document("skeleton")["shrunk"]
    }
    header = read_header(place.root / "x.gguf")
    assert shrunk["weights"] == (
        sum(t.bytes for t in read_header(place.root / "m.gguf").tensors),
        sum(t.bytes for t in header.tensors),
    )


def test_verbatim_says_that_it_is_not_for_sharing(place: Place, model: Path) -> None:
    said = place.run("skeleton", model, "-o", "same.gguf", "--verbatim")
    assert "nothing replaced: name, texts and tokens are the model's own" in said.out
    assert read_header(place.root / "same.gguf").metadata == read_header(model).metadata


def test_published_models_take_no_disk(place: Place) -> None:
    said = place.run("skeleton", "--json", "--preset", "deepseek-v3", "-o", "v3.gguf")
    found = said.document("skeleton")
    assert found["weights"] == "zeros"
    assert found["file_bytes"] > 400e9
    assert found["disk_bytes"] < 10e6
    assert found["source"] is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("command", "status", "names"),
    [
        ("skeleton MODEL", USAGE, "-o"),
        ("skeleton MODEL --arch llama -o x.gguf", USAGE, "cannot be used with a MODEL"),
        ("skeleton MODEL --weights zeros -o x.gguf", USAGE, "cannot be used with a MODEL"),
        ("skeleton MODEL --set layers=2 -o x.gguf", USAGE, "cannot be used with a MODEL"),
        ("skeleton MODEL --shrink --verbatim -o x.gguf", USAGE, "exclude each other"),
        ("skeleton --arch llama --shrink -o x.gguf", USAGE, "need a MODEL"),
        ("skeleton --preset gpt-oss-20b --weights random -o x.gguf", USAGE, "mxfp4"),
        ("skeleton no.gguf -o x.gguf", NOT_FOUND, "no.gguf"),
        ("skeleton MODEL -o no/x.gguf", NOT_FOUND, "there is no directory"),
        ("skeleton text.gguf -o x.gguf", FAILURE, "not a GGUF file"),
        ("skeleton ftp://x/m.gguf -o x.gguf", USAGE, "ftp://"),
    ],
)
def test_misuse(command: str, status: int, names: str, place: Place, model: Path) -> None:
    (place.root / "text.gguf").write_text("hello")
    said = place.run(*(model if word == "MODEL" else word for word in command.split()))
    assert said.status == status, said.err
    assert names in said.only_complaint()
    assert not (place.root / "x.gguf").exists()
