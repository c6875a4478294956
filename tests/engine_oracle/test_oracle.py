"""A dry run costs little, answers in order and gives a reason where it has no answer."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.base.sizes import GIB, MIB
from arriero.engine import oracle
from arriero.engine.oracle import (
    DryRun,
    EngineParams,
    Unanswered,
    _plain,
    child_command,
    dry_run,
)
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.gguf.writer import write_model
from arriero.process import Exit, start
from tests.engine_oracle.real import environment

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oracle")


@pytest.fixture(scope="module")
def llama(home: Path) -> Path:
    return write_model(home / "llama.gguf", tiny("llama"))


@pytest.fixture(scope="module")
def hybrid(home: Path) -> Path:
    return write_model(home / "hybrid.gguf", LADDER_HYBRID, weights="zeros")


@pytest.fixture(params=[10068, 10434])
def server(request: pytest.FixtureRequest, engine_path: Callable[[int], Path]) -> Path:
    return engine_path(request.param)


def ask(
    server: Path, *requests: EngineParams, timeout: float = 60
) -> tuple[DryRun | Unanswered, ...]:
    return dry_run(server.parent, requests, environ=environment(server), timeout=timeout)


def reason(result: DryRun | Unanswered) -> str:
    assert isinstance(result, Unanswered), result
    return result.reason


def peak_of_child(server: Path, *requests: EngineParams) -> int:
    """Peak RSS in bytes of the child for these requests."""
    library = str(server.parent / "libllama.so")
    argv = child_command({"library": library, "requests": [_plain(r) for r in requests]})
    with start(argv, env=environment(server), on_line=lambda _: None) as child:
        assert child.wait(60) == Exit(0)
        peak = child.memory().rss_peak
    assert peak is not None
    return peak


def test_slots_of_a_hybrid_cost_the_child_nothing(server: Path, hybrid: Path) -> None:
    slots = (1, 16, 64, 256)
    requests = [EngineParams(model=hybrid, n_ctx=4096, n_seq_max=n) for n in slots]
    for n, run in zip(slots, ask(server, *requests), strict=True):
        assert isinstance(run, DryRun), run
        assert run.rs == n * 65_863_680  # 62.81 MiB per slot
        assert run.n_ctx == max(4096, 256 * n)
        assert run.kv == run.n_ctx * 10 * 2 * 2 * 64 * 2  # layers, K and V, heads, size, f16
    assert peak_of_child(server, *requests) < 300 * MIB


def test_a_model_larger_than_memory(server: Path, home: Path) -> None:
    shape = tiny("llama", layers=80, embedding=8192, heads=64, heads_kv=8, head_dim=128)
    model = home / f"large-{server.parent.parent.parent.name}.gguf"
    write_model(model, shape, weights="zeros")
    assert model.stat().st_size > 20 * GIB
    request = EngineParams(model=model, n_ctx=1 << 17, n_seq_max=64)
    (run,) = ask(server, request)
    assert isinstance(run, DryRun), run
    assert run.kv == run.n_ctx * 80 * 2 * 8 * 128 * 2
    assert peak_of_child(server, request) < 300 * MIB


def test_sums_and_parts(server: Path, hybrid: Path) -> None:
    (run,) = ask(server, EngineParams(model=hybrid, n_ctx=4096, n_seq_max=2))
    assert isinstance(run, DryRun), run
    (buffer,) = run.buffers
    assert buffer.device == "CPU"
    assert buffer.context == run.kv + run.rs
    assert run.output == 4 * 2 * LADDER_HYBRID.vocab
    assert any("RS buffer size =   125.62 MiB" in line for line in run.log)


def test_refused_settings_have_the_engines_words_and_spoil_no_neighbour(
    server: Path, llama: Path
) -> None:
    fine = EngineParams(model=llama, n_ctx=4096)
    results = ask(
        server,
        fine,
        EngineParams(model=llama, n_ctx=4096, type_v="q8_0", flash_attn="off"),
        EngineParams(model=llama, n_ctx=4096, type_k="q9_9"),
        EngineParams(model=llama, n_ctx=-1),
        EngineParams(model=llama, n_ctx=4096, devices=("CUDA7",)),
        fine,
    )
    assert "quantized V cache" in reason(results[1]) or "V cache quant" in reason(results[1])
    assert "cache type q9_9" in reason(results[2])
    assert "n_ctx cannot be -1" in reason(results[3])
    assert "no device CUDA7" in reason(results[4])
    first, last = results[0], results[5]
    assert isinstance(first, DryRun)
    assert isinstance(last, DryRun)
    assert first.buffers == last.buffers


def test_an_abort_of_the_engine_is_one_reason(server: Path, llama: Path) -> None:
    # The server dies of these settings in the same way: fewer outputs than slots.
    deadly = EngineParams(model=llama, n_ctx=4096, n_seq_max=64, n_batch=32, n_ubatch=32)
    fine = EngineParams(model=llama, n_ctx=4096)
    results = ask(server, deadly, fine, deadly, fine)
    assert [isinstance(r, DryRun) for r in results] == [False, True, False, True]
    assert "SIGABRT" in reason(results[0])
    assert "GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max)" in reason(results[2])


def test_a_library_that_only_dies_is_asked_twice(
    server: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Any] = []

    def counted(argv: Any, **more: Any) -> Any:
        starts.append(argv)
        return start(argv, **more)

    monkeypatch.setattr(oracle, "start", counted)
    deadly = EngineParams(model=llama, n_ctx=4096, n_seq_max=64, n_batch=32, n_ubatch=32)
    results = ask(server, *[deadly] * 40)
    assert all("SIGABRT" in reason(r) for r in results)
    assert len(starts) == 2


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64, b"x" * 999])
def test_files_that_are_no_model(server: Path, tmp_path: Path, content: bytes) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(content)
    (result,) = ask(server, EngineParams(model=model, n_ctx=4096))
    assert "failed to load model" in reason(result)


def test_truncated_and_missing_models(server: Path, llama: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(llama.read_bytes()[:-1000])
    results = ask(
        server,
        EngineParams(model=cut, n_ctx=4096),
        EngineParams(model=tmp_path / "nowhere.gguf", n_ctx=4096),
    )
    assert "corrupted or incomplete" in reason(results[0])
    assert "failed to open" in reason(results[1])


def test_more_requests_than_one_child_takes(server: Path, llama: Path) -> None:
    contexts = range(256, 256 * 151, 256)
    results = ask(server, *(EngineParams(model=llama, n_ctx=c) for c in contexts))
    assert [r.n_ctx for r in results if isinstance(r, DryRun)] == list(contexts)


def test_time_that_is_over(server: Path, llama: Path) -> None:
    fine = EngineParams(model=llama, n_ctx=4096)
    results = ask(server, *[fine] * 100, timeout=0.001)
    assert {reason(r) for r in results} == {"it did not answer in time"}


def test_a_child_that_hangs_is_ended_and_keeps_its_answers(
    server: Path, llama: Path, tmp_path: Path
) -> None:
    pipe = tmp_path / "model.gguf"
    if sys.platform != "win32":
        os.mkfifo(pipe)  # reading it waits for a writer that never comes
    requests = [EngineParams(model=m, n_ctx=4096) for m in (llama, pipe, llama)]
    began = time.monotonic()
    ask(server, requests[0])
    once = time.monotonic() - began  # on a busy machine it takes seconds
    results = ask(server, *requests, timeout=2 + 5 * once)
    assert isinstance(results[0], DryRun)
    assert {reason(r) for r in results[1:]} == {"it did not answer in time"}


def test_no_requests(server: Path) -> None:
    assert ask(server) == ()


@pytest.fixture
def engine_copy(tmp_path: Path) -> Path:
    copy = tmp_path / "bin"
    copy.mkdir()
    return copy / "llama-server"


def test_engines_that_are_none(
    engine_copy: Path, llama: Path, engine_path: Callable[[int], Path]
) -> None:
    request = EngineParams(model=llama, n_ctx=4096)
    assert "no libllama.so" in reason(ask(engine_copy, request)[0])
    library = engine_copy.parent / "libllama.so"
    library.write_bytes(b"\x7fELF and nothing more")
    assert "cannot be loaded" in reason(ask(engine_copy, request)[0])
    shutil.copy(engine_path(10434).parent / "libggml-base.so", library)
    assert "has no llama_log_set" in reason(ask(engine_copy, request)[0])


def test_libraries_in_the_lib_directory(
    engine_copy: Path, llama: Path, engine_path: Callable[[int], Path]
) -> None:
    lib = engine_copy.parent.parent / "lib"
    lib.symlink_to(engine_path(10434).parent)
    (run,) = ask(engine_copy, EngineParams(model=llama, n_ctx=4096))
    assert isinstance(run, DryRun), run


def test_a_soft_limit_of_the_caller_does_not_count(
    hybrid: Path, engine_path: Callable[[int], Path]
) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    request = EngineParams(model=hybrid, n_ctx=4096, n_ubatch=2048, n_seq_max=64)
    # Enough for Python, not for the graph metadata that this micro-batch needs.
    resource.setrlimit(resource.RLIMIT_AS, (3 * GIB // 2, hard))
    try:
        (run,) = ask(engine_path(10434), request)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert isinstance(run, DryRun), run
    assert run.address_space_delta > 3 * GIB // 2


def test_the_model_is_only_read(server: Path, llama: Path) -> None:
    before = llama.read_bytes(), llama.stat().st_mtime_ns
    ask(server, EngineParams(model=llama, n_ctx=4096))
    assert (llama.read_bytes(), llama.stat().st_mtime_ns) == before


def test_a_quantised_v_cache_turns_auto_on(server: Path, llama: Path) -> None:
    """The server starts with ``-ctv q8_0`` and says that flash attention is enabled."""
    auto, on = ask(
        server,
        EngineParams(model=llama, n_ctx=1024, type_v="q8_0"),
        EngineParams(model=llama, n_ctx=1024, type_v="q8_0", flash_attn="on"),
    )
    assert isinstance(auto, DryRun)
    assert isinstance(on, DryRun)
    assert auto.buffers == on.buffers


def test_overrides_are_known_buffer_types(server: Path, llama: Path) -> None:
    on_host = EngineParams(model=llama, n_ctx=1024, overrides=((r"blk\.\d+\.ffn_.*", "CPU"),))
    nowhere = EngineParams(model=llama, n_ctx=1024, overrides=((".*", "CUDA7"),))
    found, refused = ask(server, on_host, nowhere)
    assert isinstance(found, DryRun)
    assert reason(refused) == "this engine has no buffer type CUDA7"
