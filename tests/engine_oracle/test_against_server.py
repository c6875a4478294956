"""The dry run says what the real server then prints: KV, RS, compute and output, to 0.01 MiB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from arriero.base.sizes import MIB
from arriero.engine.oracle import DryRun, EngineParams, Unanswered, dry_run
from arriero.gguf.presets import tiny
from arriero.gguf.shape import ARCHITECTURES
from arriero.gguf.writer import write_model
from tests.engine_oracle.real import account, environment, running

pytestmark = pytest.mark.engine
MIB_LINE = 0.0051
"""Half of the last digit that the engine prints."""


class Case(NamedTuple):
    arch: str
    args: str
    settings: dict[str, Any]


def q8(which: str) -> str:
    return f"-ct{which} q8_0"


SETTINGS = [
    Case("llama", "-c 4096", {"n_ctx": 4096, "n_seq_max": 4, "kv_unified": True}),
    Case("llama", "-c 1000 -np 3", {"n_ctx": 1000, "n_seq_max": 3}),
    Case(
        "llama",
        "-c 8192 -np 2 -ctk q8_0 -ctv q8_0 -fa on -ub 64 -b 128",
        {"n_ctx": 8192, "n_seq_max": 2, "type_k": "q8_0", "type_v": "q8_0"}
        | {"flash_attn": "on", "n_ubatch": 64, "n_batch": 128},
    ),
    Case(
        "llama",
        "-c 4096 -np 256 -fa off",
        {"n_ctx": 4096, "n_seq_max": 256, "flash_attn": "off"},
    ),
    Case(
        "llama",
        "-c 4096 -np 2 --embedding",
        {"n_ctx": 4096, "n_seq_max": 2, "embeddings": True, "n_batch": 512},
    ),
    Case("gemma3", "-c 16384 -np 3", {"n_ctx": 16384, "n_seq_max": 3}),
    Case(
        "gemma3",
        "-c 8192 -np 3 -kvu --swa-full",
        {"n_ctx": 8192, "n_seq_max": 3, "kv_unified": True, "swa_full": True},
    ),
    Case("qwen35", "-c 4096 -np 64", {"n_ctx": 4096, "n_seq_max": 64}),
    Case(
        "qwen35",
        "-c 4096 -np 2 -ub 2048 -ctk q8_0",
        {"n_ctx": 4096, "n_seq_max": 2, "n_ubatch": 2048, "type_k": "q8_0"},
    ),
]
EVERY_ARCHITECTURE = [
    Case(arch, "-c 4096 -np 5 -ub 128", {"n_ctx": 4096, "n_seq_max": 5, "n_ubatch": 128})
    for arch in ARCHITECTURES
]
CASES = {10068: SETTINGS, 10092: EVERY_ARCHITECTURE, 10434: SETTINGS + EVERY_ARCHITECTURE}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    return {a: write_model(home / f"{a}.gguf", tiny(a)) for a in ARCHITECTURES} | {
        "qwen35 with MTP": write_model(home / "mtp.gguf", tiny("qwen35", mtp=1)),
    }


@pytest.fixture(scope="session")
def runs(
    models: dict[str, Path], engine_path: Callable[[int], Path]
) -> dict[int, tuple[DryRun | Unanswered, ...]]:
    """By build, the dry runs of its cases: one call each."""
    return {
        build: dry_run(
            engine_path(build).parent,
            [EngineParams(model=models[case.arch], **case.settings) for case in cases],
            environ=environment(engine_path(build)),
            timeout=60,
        )
        for build, cases in CASES.items()
    }


def told(run: DryRun) -> dict[tuple[str, str], float]:
    """The dry run in the words of the server's size lines, in MiB."""
    return {
        (kind, buffer.device): size / MIB
        for buffer in run.buffers
        for kind, size in (
            ("KV", buffer.kv),
            ("RS", buffer.rs),
            ("compute", buffer.compute),
            ("output", buffer.output),
        )
    }


def assert_same(run: DryRun, sizes: dict[tuple[str, str], float]) -> None:
    said = told(run)
    seen = {key: mib for key, mib in sizes.items() if key[0] != "model"}
    assert {kind for kind, _ in seen} >= {"output", "compute"}
    # Two caches of one kind are two rounded lines.
    assert seen == {key: pytest.approx(said[key], abs=2 * MIB_LINE) for key in seen}
    assert {key for key, mib in said.items() if mib >= 0.01} <= set(seen)


@pytest.mark.parametrize(
    ("build", "index"),
    [
        pytest.param(build, index, id=f"{build} {case.arch} {case.args}")
        for build, cases in CASES.items()
        for index, case in enumerate(cases)
    ],
)
def test_sizes_and_effective_values(
    build: int,
    index: int,
    models: dict[str, Path],
    runs: dict[int, tuple[DryRun | Unanswered, ...]],
    engine_path: Callable[[int], Path],
) -> None:
    case, run = CASES[build][index], runs[build][index]
    assert isinstance(run, DryRun), run
    argv = ["-m", str(models[case.arch]), *case.args.split()]
    sizes, settings = account(engine_path(build), argv)
    assert_same(run, sizes)
    for name in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "n_seq_max"):
        assert getattr(run, name) == settings[name], name


@pytest.mark.parametrize("build", [10068, 10434])
def test_a_model_with_mtp_is_two_contexts(
    build: int, models: dict[str, Path], engine_path: Callable[[int], Path]
) -> None:
    server, model = engine_path(build), models["qwen35 with MTP"]
    both = dry_run(
        server.parent,
        [
            EngineParams(model=model, n_ctx=4096, n_seq_max=2, n_rs_seq=3, load_mtp=True),
            EngineParams(model=model, n_ctx=4096, n_seq_max=2, load_mtp=True, ctx_type="mtp"),
        ],
        environ=environment(server),
        timeout=60,
    )
    main, draft = (run for run in both if isinstance(run, DryRun))
    args = ["-m", str(model), "-c", "4096", "-np", "2", "--spec-type", "draft-mtp"]
    with running(server, args) as (_, lines):
        text = "\n".join(lines)
    assert (main.n_rs_seq, draft.n_rs_seq, draft.rs) == (3, 0, 0)
    assert f"RS buffer size = {main.rs / MIB:8.2f} MiB" in text
    for run in (main, draft):
        assert f"KV buffer size = {run.kv / MIB:8.2f} MiB" in text
        assert f"compute buffer size = {run.compute / MIB:8.2f} MiB" in text


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_address_space_in_no_size_line(
    arch: str, models: dict[str, Path], engine_path: Callable[[int], Path]
) -> None:
    """What buffers and the delta leave of the server's VmSize is the same whatever the settings."""
    server, model = engine_path(10434), models[arch]
    settings = [(4096, 1, 512), (4096, 1, 2048), (65536, 8, 512)]
    runs = dry_run(
        server.parent,
        [EngineParams(model=model, n_ctx=c, n_seq_max=n, n_ubatch=u) for c, n, u in settings],
        environ=environment(server),
        timeout=60,
    )
    rest = []
    for (c, n, u), run in zip(settings, runs, strict=True):
        assert isinstance(run, DryRun), run
        args = f"-m {model} -c {c} -np {n} -ub {u} --threads-http 2".split()
        with running(server, args, {"MALLOC_ARENA_MAX": "1"}) as (process, _):
            size = process.memory().address_space
        assert size is not None
        buffers = run.kv + run.rs + run.compute + run.output
        rest.append((size - buffers - run.address_space_delta) / MIB)
    assert max(rest) - min(rest) < 1.5, rest


@pytest.mark.slow
@pytest.mark.parametrize("build", [10068, 10434])
@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_on_a_vulkan_device(
    build: int, arch: str, models: dict[str, Path], engine_path: Callable[[int], Path]
) -> None:
    server, model = engine_path(build), models[arch]
    device = {"GGML_VK_VISIBLE_DEVICES": "0"}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("", {}),
        ("-ngl 2", {"n_gpu_layers": 2}),
        ("-nkvo", {"offload_kqv": False}),
        ("-dev none", {"devices": ()}),
    ]
    runs = dry_run(
        server.parent,
        [EngineParams(model=model, n_ctx=4096, n_seq_max=8, **more) for _, more in cases],
        environ=environment(server, device),
        timeout=60,
    )
    for (args, _), run in zip(cases, runs, strict=True):
        assert isinstance(run, DryRun), run
        sizes, _ = account(server, ["-m", str(model), *f"-c 4096 -np 8 {args}".split()], device)
        if args != "-dev none":
            assert ("compute", "Vulkan0") in sizes, "no Vulkan device: is lavapipe installed?"
        assert_same(run, sizes)
        on_device = {b.device: b.model / MIB for b in run.buffers if b.device == "Vulkan0"}
        for name, mib in on_device.items():
            assert sizes.get(("model", name), 0) == pytest.approx(mib, abs=MIB_LINE)
