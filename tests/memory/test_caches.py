"""KV and RS against the engine's own account, and properties that hold for any model."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base.errors import ModelError
from arriero.base.words import Component
from arriero.engine.oracle import EngineParams
from arriero.gguf import Header, LazyArray, MemoryClass, read_header
from arriero.gguf.model import memory_class_of
from arriero.memory.architectures import ARCHITECTURES, Memory, Recurrent
from arriero.memory.caches import (
    cache_tensors,
    effective,
    is_doubtful,
    output_bytes,
    refusal,
    total,
)
from arriero.memory.hparams import UnknownArchitectureError, read_hparams
from arriero.memory.placement import layer_devices

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "archs" / "expected.json").read_text())
ARCHS = sorted(EXPECTED)


def header(arch: str) -> Header:
    return read_header(DATA / "archs" / EXPECTED[arch]["file"])


def with_keys(source: Header, **keys: Any) -> Header:
    """The header with keys of its architecture replaced, ``__`` for a dot; None removes one."""
    arch = source.metadata["general.architecture"]
    changed = {f"{arch}.{key.replace('__', '.')}": value for key, value in keys.items()}
    merged = {**source.metadata, **changed}
    return replace(source, metadata={k: v for k, v in merged.items() if v is not None})


def renamed(source: Header, arch: str) -> Header:
    """The header as if it were of another architecture."""
    prefix = f"{source.metadata['general.architecture']}."
    metadata = {k.replace(prefix, f"{arch}.", 1): v for k, v in source.metadata.items()}
    return replace(source, metadata={**metadata, "general.architecture": arch})


def request(**settings: Any) -> EngineParams:
    return EngineParams(model=Path("m"), **{"n_ctx": 4096, **settings})


def size(source: Header, wanted: EngineParams, build: int | None = None) -> int:
    return total(cache_tensors(read_hparams(source, build), wanted, build))


@pytest.mark.parametrize("arch", ARCHS)
def test_caches_are_the_engines_to_the_byte(arch: str) -> None:
    wanted = request(n_ctx=4096, n_seq_max=3)
    context = effective(read_hparams(header(arch)), wanted).context
    assert size(header(arch), wanted) == EXPECTED[arch]["context_bytes"]
    assert (context.n_ctx, context.n_ctx_seq) == (4608, 1536)


def test_architectures_are_those_the_header_reader_knows() -> None:
    kinds = {
        Memory.NONE: MemoryClass.NONE,
        Memory.RECURRENT: MemoryClass.RECURRENT,
        Memory.HYBRID: MemoryClass.HYBRID,
        Memory.HYBRID_IDX: MemoryClass.HYBRID,
    }
    for arch, rules in ARCHITECTURES.items():
        if arch != "gemma4-assistant":  # attention, in another model's cache
            wanted = kinds.get(rules.memory, MemoryClass.ATTENTION)
            assert memory_class_of(arch) is wanted, arch


def test_recurrent_layers_are_those_the_header_reader_counts() -> None:
    from arriero.gguf import describe

    for arch in ARCHS:
        if ARCHITECTURES[arch].recurrent not in (None, Recurrent.ALL):
            counted = sum(read_hparams(header(arch)).is_recurrent)
            assert describe(header(arch)).n_recurrent_layer == counted, arch


def test_an_unknown_architecture_is_said_to_be_unknown() -> None:
    source = replace(header("llama"), metadata={"general.architecture": "llama9"})
    with pytest.raises(UnknownArchitectureError, match="unknown architecture 'llama9'"):
        read_hparams(source)


def test_an_architecture_newer_than_the_build_is_unknown_to_it() -> None:
    with pytest.raises(UnknownArchitectureError, match="build 10434 does not know"):
        read_hparams(header("maple"), 10434)
    assert read_hparams(header("maple"), 11434).memory is Memory.ATTENTION


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"block_count": None}, "block_count is missing"),
        ({"block_count": 513}, "block_count is 513"),
        ({"block_count": 0}, "block_count is 0"),
        ({"embedding_length": 1 << 40}, "embedding_length is"),
        ({"attention__head_count_kv": (1, 2, 3)}, "has 3 entries for"),
        ({"attention__key_length": "x"}, "is no whole number"),
        ({"nextn_predict_layers": 99}, "nextn_predict_layers is 99"),
    ],
)
def test_a_header_that_the_engine_refuses_is_an_error(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        read_hparams(with_keys(header("llama"), **keys))


# what headers hide


def test_gemma3n_caches_twenty_layers_whatever_the_file_says() -> None:
    source = with_keys(
        header("gemma3"), block_count=35, attention__head_count=4, attention__head_count_kv=2
    )
    metadata = {
        key.replace("gemma3.", "gemma3n.", 1): value for key, value in source.metadata.items()
    }
    hparams = read_hparams(
        replace(source, metadata={**metadata, "general.architecture": "gemma3n"})
    )
    layers = {t.layer for t in cache_tensors(hparams, request())}
    assert layers == set(range(20))


def test_smallthinker_and_llama4_force_their_window() -> None:
    assert read_hparams(header("smallthinker")).n_swa == 4096
    source = with_keys(header("llama"))
    metadata = {k.replace("llama.", "llama4.", 1): v for k, v in source.metadata.items()}
    llama4 = replace(source, metadata={**metadata, "general.architecture": "llama4"})
    assert read_hparams(llama4).n_swa == 8192
    assert not read_hparams(with_keys(llama4, attention__sliding_window=0)).has_window


def test_loops_have_a_cache_each() -> None:
    metadata = {k.replace("llama.", "nanbeige.", 1): v for k, v in header("llama").metadata.items()}
    once = replace(header("llama"), metadata={**metadata, "general.architecture": "nanbeige"})
    thrice = with_keys(once, num_loops=3)
    assert size(thrice, request()) == 3 * size(once, request())
    with pytest.raises(ModelError, match="num_loops makes more than 512 layers"):
        read_hparams(with_keys(once, num_loops=1000))


def test_nextn_layers_count_where_the_build_counts_them() -> None:
    source = with_keys(header("llama"), nextn_predict_layers=1)
    layers = read_hparams(header("llama")).n_layer_all
    whole, wanted = size(header("llama"), request()), request()
    assert size(source, wanted, 10434) == whole
    assert size(source, wanted, 11434) == whole * (layers - 1) // layers
    assert is_doubtful(source, wanted, 11000)
    assert not is_doubtful(header("llama"), wanted, 11000)
    assert not is_doubtful(source, wanted, 11434)
    drafting = request(ctx_type="mtp")
    assert size(source, drafting) == whole // layers


def test_a_pattern_ran_on_through_nextn_layers_once() -> None:
    keys = {"attention__sliding_window_pattern": 4, "nextn_predict_layers": 2}
    source = with_keys(header("exaone-moe"), block_count=8, **keys)
    assert read_hparams(source, 10434).is_swa == (True, True, True, False) * 2
    assert read_hparams(source, 11434).is_swa == (
        *(True, True, True, False, True, True),
        *[False] * 2,
    )


def test_exaone4_has_a_window_by_all_its_layers_once_and_by_its_trunk_since() -> None:
    keys = {"attention__sliding_window": 128, "attention__sliding_window_pattern": 4}
    source = with_keys(renamed(header("exaone-moe"), "exaone4"), nextn_predict_layers=1, **keys)
    for layers, older, newer in ((64, 48, 0), (65, 0, 48)):
        windowed = with_keys(source, block_count=layers)
        assert sum(read_hparams(windowed, 10092).is_swa) == older
        assert sum(read_hparams(windowed, 10434).is_swa) == newer


def test_some_caches_hold_trunk_and_nextn_layers_alike() -> None:
    plain = with_keys(header("hy_v4"), attention__indexer__top_k=0, block_count=4)
    spark = with_keys(renamed(header("mimo2"), "dflash"), block_count=4, hyper_connection__count=4)
    for source in (plain, spark):
        source = with_keys(source, attention__indexer__types=None)
        drafting = with_keys(source, nextn_predict_layers=1)
        for wanted in (request(), request(ctx_type="mtp")):
            assert size(drafting, wanted) == size(source, wanted)


def test_a_draft_of_a_hybrid_has_its_nextn_layers_alone_or_all_of_it_again() -> None:
    wanted = request(ctx_type="mtp")

    def layers(arch: str) -> set[int]:
        source = with_keys(header(arch), nextn_predict_layers=1)
        return {t.layer for t in cache_tensors(read_hparams(source), wanted)}

    assert layers("qwen35") == {read_hparams(header("qwen35")).n_layer_all - 1}
    assert len(layers("falcon-h1")) == read_hparams(header("falcon-h1")).n_layer_all


def test_v_is_as_wide_as_the_latent_where_it_is_not_the_latent_itself() -> None:
    source = with_keys(renamed(header("bailingmoe3"), "kimi-k3"), attention__value_length=64)
    assert read_hparams(source).head_v == source.metadata["kimi-k3.attention.kv_lora_rank"]
    whole = size(with_keys(source, attention__key_length_mla=0), request())
    assert whole > size(source, request())


def test_planes_to_roll_back_to_are_for_architectures_that_can() -> None:
    plain, rolled = request(n_seq_max=2), request(n_seq_max=2, n_rs_seq=3)

    def rs(arch: str, wanted: EngineParams, build: int) -> int:
        tensors = cache_tensors(read_hparams(header(arch), build), wanted, build)
        return total(tensors, Component.RS)

    assert rs("qwen35", rolled, 10434) == 4 * rs("qwen35", plain, 10434)
    assert rs("qwen3next", rolled, 11434) == rs("qwen3next", plain, 11434)
    assert rs("lfm2", rolled, 10434) == rs("lfm2", plain, 10434)
    assert rs("lfm2", rolled, 11434) == 4 * rs("lfm2", plain, 11434)


def test_refusals_are_the_engines() -> None:
    mla = read_hparams(header("deepseek2"))
    assert "one cache type for both K and V" in (refusal(mla, request(type_k="q8_0")) or "")
    assert refusal(mla, request(type_k="q8_0"), 10092) is None
    assert refusal(mla, request()) is None
    grok = read_hparams(renamed(header("llama"), "grok"))
    assert "needs flash attention" in (refusal(grok, request(type_v="q8_0")) or "")
    llama = read_hparams(header("llama"))
    off = request(type_v="q8_0", flash_attn="off")
    assert "needs flash attention" in (refusal(llama, off) or "")
    assert "no such cache type" in (refusal(llama, request(type_k="q9")) or "")
    assert refusal(llama, request(n_seq_max=32, n_batch=32)) is None
    assert "33 slots need" in (refusal(llama, request(n_seq_max=33, n_batch=32)) or "")
    odd = replace(llama, head_k=80)
    assert "cannot be cached as q8_0" in (refusal(odd, request(type_k="q8_0")) or "")


def test_output_holds_logits_of_every_slot() -> None:
    tokens = LazyArray(8, 1000, 0)  # type: ignore[arg-type] # only the count is read
    source = replace(
        header("llama"), metadata={**header("llama").metadata, "tokenizer.ggml.tokens": tokens}
    )
    hparams = read_hparams(source)
    assert output_bytes(hparams, request(n_seq_max=3)) == 4 * 3 * 1000
    with_rows = output_bytes(hparams, request(n_seq_max=3, embeddings=True))
    assert with_rows == 4 * 3 * (1000 + hparams.n_embd)


# properties

any_arch = st.sampled_from(ARCHS)
requests = st.builds(
    request,
    n_ctx=st.integers(1, 1 << 18),
    n_seq_max=st.integers(1, 64),
    n_ubatch=st.integers(1, 4096),
    n_rs_seq=st.integers(0, 4),
    swa_full=st.booleans(),
    kv_unified=st.booleans(),
    flash_attn=st.sampled_from(["auto", "on", "off"]),
)


@given(any_arch, requests, st.integers(1, 1 << 16))
@settings(max_examples=200, deadline=None)
def test_more_context_never_takes_less(arch: str, wanted: EngineParams, more: int) -> None:
    source = header(arch)
    assert size(source, wanted) <= size(source, replace(wanted, n_ctx=wanted.n_ctx + more))


@given(any_arch, requests, st.integers(1, 64))
@settings(max_examples=200, deadline=None)
def test_more_slots_never_take_less_state(arch: str, wanted: EngineParams, more: int) -> None:
    hparams = read_hparams(header(arch))
    larger = replace(wanted, n_seq_max=wanted.n_seq_max + more)
    assert total(cache_tensors(hparams, wanted), Component.RS) <= total(
        cache_tensors(hparams, larger), Component.RS
    )


@given(any_arch, requests)
@settings(max_examples=200, deadline=None)
def test_state_depends_on_neither_context_nor_sharing(arch: str, wanted: EngineParams) -> None:
    hparams = read_hparams(header(arch))
    other = replace(wanted, n_ctx=4096, kv_unified=not wanted.kv_unified, n_ubatch=512)
    assert total(cache_tensors(hparams, wanted), Component.RS) == total(
        cache_tensors(hparams, other), Component.RS
    )


@given(any_arch, st.integers(1, 64), st.integers(1, 64))
def test_one_cache_or_one_per_slot_hold_the_same_cells(arch: str, slots: int, each: int) -> None:
    hparams = read_hparams(header(arch))
    if hparams.has_window or hparams.memory is Memory.DSV4:
        return  # windows are counted once for all or once for each
    wanted = request(n_ctx=256 * each * slots, n_seq_max=slots)
    assert total(cache_tensors(hparams, wanted)) == total(
        cache_tensors(hparams, replace(wanted, kv_unified=True))
    )


@given(
    any_arch,
    requests,
    st.integers(-1, 40),
    st.lists(st.floats(0.1, 64), min_size=1, max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_devices_add_up_to_the_whole(
    arch: str, wanted: EngineParams, n_gpu_layers: int, split: list[float]
) -> None:
    hparams = read_hparams(header(arch))
    names = [f"CUDA{i}" for i in range(len(split))]
    placed = layer_devices(hparams.n_layer_all, n_gpu_layers, names, split)
    assert len(placed) == hparams.n_layer_all + 1
    tensors = cache_tensors(hparams, wanted)
    by_device: Counter[str] = Counter()
    for tensor in tensors:
        by_device[placed[tensor.layer]] += tensor.padded()
    assert by_device.total() == total(tensors)


@given(
    st.sampled_from(ARCHS),
    st.dictionaries(st.text(max_size=8), st.integers(), max_size=3),
    st.data(),
)
@settings(max_examples=300, deadline=None)
def test_any_header_is_a_size_or_an_error(
    arch: str, junk: dict[str, int], data: st.DataObject
) -> None:
    source = header(arch)
    own = sorted(key for key in source.metadata if key.startswith(f"{arch}."))
    key = data.draw(st.sampled_from(own))
    value = data.draw(
        st.none()
        | st.integers(-(1 << 63), 1 << 64)
        | st.booleans()
        | st.text(max_size=4)
        | st.floats(allow_nan=True)
        | st.lists(st.integers(-1, 1 << 32), max_size=12).map(tuple)
    )
    changed: dict[str, Any] = {**source.metadata, **junk, key: value}
    if value is None:
        del changed[key]
    try:
        hparams = read_hparams(replace(source, metadata=changed))
    except ModelError:
        return
    assert total(cache_tensors(hparams, request(n_seq_max=2))) >= 0
