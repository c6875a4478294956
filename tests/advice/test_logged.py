"""What helps against a failure of which there is only a log."""

from __future__ import annotations

import pytest

from arriero.base.words import Cost
from arriero.jobs.explain import explain_chunks
from arriero.record import Remedy


def _advice(*lines: str) -> tuple[Remedy, ...]:
    return explain_chunks(["".join(line + "\n" for line in lines).encode()], "-").advice


_CONTEXT = "llama_init_from_model: failed to initialize the context: failed to allocate"


@pytest.mark.parametrize(
    ("lines", "change"),
    [
        ([f"{_CONTEXT} buffer for rs cache"], "-np 1"),
        ([f"{_CONTEXT} buffer for kv cache"], "a smaller -c"),
        ([f"{_CONTEXT} compute pp buffers"], "-fa on"),
        (["llama_model_load: error loading model: unable to allocate CUDA0 buffer"], "-ngl"),
        (["llama_model_load: error loading model: unable to allocate CUDA_Host buffer"], "--mmap"),
        (["error loading model: unable to allocate CPU_REPACK buffer"], "--no-repack"),
        (["error loading model: unable to allocate RPC0[10.0.0.2:50052] buffer"], "-ts"),
        (["CUDA error: out of memory", "  cuMemCreate(&handle, reserve_size, &prop, 0)"], "-fitt"),
        (["Remote RPC server crashed or returned malformed response"], "restart the workers"),
        (["slot update_slots: id  0 | task 1 | forcing full prompt re-processing"], "-ctxcp"),
        (["srv  update_slots: Context size has been exceeded."], "larger -c"),
        (["GGML_ASSERT(total_size == size) failed"], "-cram 0"),
        (["oom_reaper: reaped process 4 (llama-server), now anon-rss:0kB"], "limit"),
        (["llama_kv_cache_update: failed to allocate compute buffers"], "--no-context-shift"),
        (
            ["_alloc_buffer: allocating 9.00 MiB on device 0: cudaMalloc failed: out of memory"],
            "arriero diagnose",
        ),
        (["GGML_ASSERT(ctx->mem_buffer != NULL) failed"], "-ub"),
    ],
)
def test_a_failure_has_its_remedy(lines: list[str], change: str) -> None:
    assert any(change in one.change for one in _advice(*lines))


def test_the_cheapest_comes_first() -> None:
    ranks = [one.cost.rank for one in _advice(f"{_CONTEXT} compute pp buffers")]
    assert ranks == sorted(ranks)
    assert ranks[0] == Cost.FREE.rank


def test_recurrent_state_is_told_by_the_slot() -> None:
    (one,) = _advice(
        "llama_context: n_seq_max     = 4",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 210763776",
        f"{_CONTEXT} buffer for rs cache",
    )
    assert "201.00 MiB are 4 times 50.25 MiB" in one.why


def test_flash_attention_is_not_advised_where_it_is_on() -> None:
    advice = _advice("llama_context: flash_attn    = enabled", f"{_CONTEXT} compute pp buffers")
    assert not any("-fa" in one.change for one in advice)


@pytest.mark.parametrize(
    "line",
    [
        "llama_server: server is listening on http://127.0.0.1:8080",
        "error loading model: unknown model architecture: 'nothing'",
        "Segmentation fault (core dumped)",
    ],
)
def test_where_no_cause_is_named_nothing_is_advised(line: str) -> None:
    assert _advice(line) == ()
