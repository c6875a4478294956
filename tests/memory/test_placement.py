"""Layers and tensors on devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import UsageError
from arriero.command import builtin_flags, parse_command
from arriero.engine.oracle import EngineParams
from arriero.gguf import Header, TensorInfo, read_header, write_model
from arriero.gguf.presets import tiny
from arriero.launch.launch import Launch, launch_of
from arriero.memory.hparams import read_hparams
from arriero.memory.placement import (
    CPU,
    MAPPED,
    REPACKED,
    chosen_devices,
    cuts_rows,
    host_buffer,
    layer_devices,
    weights,
)

CUDA = ("CUDA0", "CUDA1")


def settings(**changes: object) -> Launch:
    command = parse_command(["llama-server", "-c", "4096", "-np", "1"], builtin_flags(), {})
    base = launch_of(command, Path("m"))
    return replace(base, **changes)  # type: ignore[arg-type] # whatever the test names


def overriding(*overrides: tuple[str, str]) -> Launch:
    return settings(params=EngineParams(model=Path("m"), n_ctx=4096, overrides=overrides))


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Header:
    path = tmp_path_factory.mktemp("m") / "tied.gguf"
    return read_header(write_model(path, tiny("llama", tied=True)))


def sizes(header: Header, made: Launch, n_gpu_layers: int = -1) -> dict[str, int]:
    hparams = read_hparams(header)
    layers = layer_devices(hparams.n_layer_all, n_gpu_layers, CUDA, (1, 1))
    return {b.device: b.bytes for b in weights(header, hparams, made, layers, CUDA)}


def of(header: Header, *prefixes: str) -> int:
    return sum(t.bytes for t in header.tensors if t.name.startswith(prefixes))


def test_layers_go_by_their_share_and_the_first_stay_on_the_host() -> None:
    assert layer_devices(4, -1, CUDA, (3, 1)) == ("CUDA0",) * 4 + ("CUDA1",)
    assert layer_devices(4, 3, CUDA, (1, 2)) == (CPU, CPU, "CUDA0", "CUDA1", "CUDA1")
    assert layer_devices(4, 0, CUDA, ()) == (CPU,) * 5
    assert layer_devices(4, 99, (), ()) == (CPU,) * 5


@given(st.integers(1, 100), st.integers(-1, 120), st.lists(st.floats(0, 1e6), max_size=6))
def test_every_layer_has_a_device(layers: int, wanted: int, split: list[float]) -> None:
    devices = [f"CUDA{i}" for i in range(len(split))]
    placed = layer_devices(layers, wanted, devices, split)
    on_device = sum(device != CPU for device in placed)
    assert on_device == (min(layers + 1, wanted if wanted >= 0 else layers + 1) if devices else 0)
    assert [d for d in placed if d != CPU] == sorted(d for d in placed if d != CPU)


def test_workers_come_before_cards() -> None:
    request = EngineParams(model=Path("m"), n_ctx=1)
    assert chosen_devices(request, ("CUDA0", "RPC0")) == ("RPC0", "CUDA0")
    one = replace(request, split_mode="none", main_gpu=1)
    assert chosen_devices(one, ("CUDA0", "RPC0")) == ("CUDA0",)
    with pytest.raises(UsageError, match="there are 2 devices"):
        chosen_devices(replace(one, main_gpu=2), CUDA)
    with pytest.raises(UsageError, match="no device CUDA7"):
        chosen_devices(replace(request, devices=("CUDA7",)), CUDA)


def test_pinned_memory_is_the_first_devices_that_has_any() -> None:
    assert host_buffer(("RPC0", "CUDA0")) == "CUDA_Host"
    assert host_buffer(("Vulkan1",)) == "Vulkan_Host"
    assert host_buffer(("MTL0",)) is None


def test_a_tied_embedding_is_there_twice(tied: Header) -> None:
    placed = sizes(tied, settings())
    assert placed[MAPPED] == of(tied, "token_embd.weight")
    assert placed["CUDA0"] == of(tied, "blk.0.", "blk.1.", "blk.2.")
    assert placed["CUDA1"] == of(tied, "blk.3.", "output_norm", "token_embd.weight")


def test_on_the_host_alone_it_is_there_once(tied: Header) -> None:
    assert sizes(tied, settings(), 0) == {MAPPED: of(tied, "")}
    assert sizes(tied, settings(mmap=False), 0) == {"CUDA_Host": of(tied, "")}


def test_a_mapping_reaches_from_the_first_byte_to_the_last(tied: Header) -> None:
    last = max(tied.tensors, key=lambda t: t.offset)
    only_ends = overriding((f"^{last.name}$", "CPU"))
    first = next(t for t in tied.tensors if t.name == "token_embd.weight")
    assert sizes(tied, only_ends)[MAPPED] == last.offset + last.bytes - first.offset


def test_the_first_override_that_matches_wins(tied: Header) -> None:
    both = overriding((r"blk\.0\.", "CUDA1"), (r"blk\.", "CPU"))
    placed = sizes(tied, both)
    assert "CUDA0" not in placed
    assert placed["CUDA1"] == of(tied, "blk.0.", "output_norm", "token_embd.weight")
    with pytest.raises(UsageError, match="no regular expression"):
        sizes(tied, overriding(("(", "CPU")))


def test_a_mapping_for_each_file(tied: Header) -> None:
    split = tuple(replace(t, part=i % 2) for i, t in enumerate(tied.tensors))
    parts = [[t for t in split if t.part == part] for part in (0, 1)]
    ranges = [max(t.offset + t.bytes for t in p) - min(t.offset for t in p) for p in parts]
    assert sizes(replace(tied, tensors=split), settings(), 0)[MAPPED] == sum(ranges)


def test_what_a_cpu_may_repack_is_a_bound(tied: Header) -> None:
    quantised = tuple(replace(t, type="q4_0") if len(t.shape) > 1 else t for t in tied.tensors)
    hparams, header = read_hparams(tied), replace(tied, tensors=quantised)
    layers = layer_devices(hparams.n_layer_all, 0, (), ())
    buffers = weights(header, hparams, settings(), layers, ())
    copied = next(b for b in buffers if b.device == REPACKED)
    assert not copied.exact
    assert 0 < copied.bytes <= of(tied, "blk.")


def test_cuda_pads_rows_of_quantised_tensors(tied: Header) -> None:
    tensor = TensorInfo("blk.0.ffn_up.weight", "q8_0", (128, 10), 0, 128 // 32 * 34 * 10)
    header = replace(tied, tensors=(tensor,))
    assert sizes(header, settings())["CUDA0"] == -(-(tensor.bytes + 384 // 32 * 34) // 32) * 32


def test_nextn_layers_are_read_for_drafting_only(tmp_path: Path) -> None:
    header = read_header(write_model(tmp_path / "m.gguf", tiny("qwen35", mtp=1)))
    hparams = read_hparams(header)
    layers = layer_devices(hparams.n_layer_all, -1, ("CUDA0",), ())
    skipped, read = (
        {b.device: b.bytes for b in weights(header, hparams, made, layers, ("CUDA0",))}
        for made in (
            settings(),
            settings(params=EngineParams(model=Path("m"), n_ctx=1, load_mtp=True)),
        )
    )
    assert read["CUDA0"] - skipped["CUDA0"] == of(header, f"blk.{hparams.n_layer}.")


def test_graphics_in_the_processor_are_left_out_beside_a_card() -> None:
    request = EngineParams(model=Path("m"), n_ctx=1)
    listed = ("Vulkan0", "Vulkan1", "RPC0", "CUDA0")
    both = ("Vulkan0", "Vulkan1")
    assert chosen_devices(request, listed, both) == ("RPC0", "CUDA0")
    assert chosen_devices(request, listed[:3], both) == ("RPC0", "Vulkan0", "Vulkan1")
    named = replace(request, devices=("Vulkan1",))
    assert chosen_devices(named, listed, both) == ("Vulkan1",)


def test_few_backends_cut_rows() -> None:
    assert cuts_rows("SYCL0", 10434)
    assert (cuts_rows("HTP0", 10434), cuts_rows("HTP0", 11434)) == (False, True)
    assert (cuts_rows("CUDA0", 10068), cuts_rows("CUDA0", 10434)) == (True, False)
    assert not cuts_rows("Vulkan0", None)
