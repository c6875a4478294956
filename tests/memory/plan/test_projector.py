"""Plans of a projector beside what real servers of three builds say of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component, Method
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine
from arriero.engine.oracle import (
    ProjectorBuffer,
    ProjectorParams,
    ProjectorRun,
    Unanswered,
    projector_run,
)
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from arriero.gguf.projector import Projector, write_projector
from arriero.launch.projector import projector_of
from arriero.machine import Pool
from arriero.memory import DryRuns, Planner
from arriero.memory.plan.projector import (
    device_of_projector,
    projector_lines,
    share_of_fit,
)
from arriero.memory.pools import parse_pools
from arriero.record import Plan, PlanBuffer
from tests.conftest import BUILDS
from tests.gguf.serving import serve
from tests.gguf.test_projector import about
from tests.memory.planning import LINE, ROOMY, engine_of

_COMPUTE = re.compile(r"(?:reserve|alloc)_compute_meta: +(\S+) compute buffer size = +([\d.]+) MiB")
_COUNTED = re.compile(r"estimated worst-case memory usage of mmproj is ([\d.]+) MiB")
# A wide feed-forward makes compute the largest part. With f16 the CPU would make a copy of what it
# multiplies, in no buffer that an engine reports.
WIDE = Projector(kind="pixtral", tensor_type="f32", feed_forward=16384, layers=1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("projectors")
    write_model(path / "m.gguf", tiny("llama"))
    write_projector(path / "gemma3.gguf", Projector(feed_forward=2048, image_size=256))
    write_projector(path / "pixtral.gguf", WIDE)
    return path


@pytest.fixture(scope="module")
def engines(engine_path: Callable[[int], Path]) -> dict[int, Engine]:
    return {build: engine_of(engine_path(build)) for build in BUILDS}


@pytest.fixture(autouse=True)
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "99")


def planned(
    home: Path,
    flags: str,
    engine: Engine | None,
    pools: Sequence[Pool] = (ROOMY,),
    build: int | None = None,
) -> Plan:
    words = ["llama-server", "-m", str(home / "m.gguf"), *flags.format(home=home).split()]
    environ = dict(os.environ)
    command = parse_command(words, engine.flags if engine else builtin_flags(), environ)
    planner = Planner(
        read_header(home / "m.gguf"),
        pools,
        model=home / "m.gguf",
        answers=DryRuns.of(engine, environ) if engine else None,
        build=engine.build if engine else build,
        mmproj=read_header(Path(command.value("--mmproj") or "")),
    )
    return planner.plan(command)


def lines(plan: Plan) -> list[PlanBuffer]:
    return [b for b in plan.buffers if b.component is Component.MMPROJ]


def ask(engine: Engine, request: ProjectorParams, vulkan: str = "99") -> ProjectorRun:
    environ = {**os.environ, "GGML_VK_VISIBLE_DEVICES": vulkan}
    run = projector_run(engine.path.parent, request, environ=environ, timeout=60)
    assert isinstance(run, ProjectorRun), run
    return run


# --- beside the engine --------------------------------------------------------------------------


@pytest.mark.engine
@pytest.mark.parametrize(
    ("build", "kind", "more"),
    [
        (10068, "pixtral", ""),
        (10092, "gemma3", ""),
        (10434, "pixtral", ""),
        *(
            pytest.param(build, kind, more, marks=pytest.mark.slow)
            for build in BUILDS
            for kind, more in (("gemma3", ""), ("gemma3", "-fa off"), ("pixtral", "-fa off"))
        ),
    ],
)
def test_weights_and_warm_up_are_the_servers(
    build: int, kind: str, more: str, home: Path, engines: dict[int, Engine]
) -> None:
    flags = f"-c 512 -np 1 --mmproj {{home}}/{kind}.gguf {more}"
    plan = planned(home, flags, engines[build])
    weights, compute = lines(plan)[:2]
    given = flags.format(home=home).split()
    with serve(engines[build].path, home / "m.gguf", *given) as server:
        log = server.log
    told = {name: float(mib) for name, mib in _COMPUTE.findall(log)}
    assert (weights.device, weights.method) == ("CPU", Method.EXACT)
    assert told == {"CPU": pytest.approx((compute.bytes or 0) / MIB, abs=LINE)}
    assert (compute.device, compute.method) == ("CPU", Method.MEASURED)
    run = ask(engines[build], request(home / f"{kind}.gguf", more))
    counted = _COUNTED.search(log)
    assert counted is not None
    total = share_of_fit(request(home / "x", more), run, ())[0]
    assert float(counted[1]) == pytest.approx(total / MIB, abs=LINE)


def request(path: Path, more: str = "", build: int | None = 10434) -> ProjectorParams:
    words = ["llama-server", "-m", "m", "--mmproj", str(path), *more.split()]
    found = projector_of(parse_command(words, builtin_flags(), {}), build)
    assert found is not None
    return found


@pytest.mark.engine
@pytest.mark.parametrize(
    ("build", "more"),
    [
        (10434, ""),
        pytest.param(10068, "", marks=pytest.mark.slow),
        pytest.param(10068, "-fa off", marks=pytest.mark.slow),
        pytest.param(10434, "-fa off", marks=pytest.mark.slow),
    ],
)
def test_a_large_image_takes_no_more_than_said(
    build: int,
    more: str,
    home: Path,
    engines: dict[int, Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    flags = f"-c 4096 -np 1 --mmproj {{home}}/pixtral.gguf --image-max-tokens 576 {more}"
    _, warm, beyond = lines(planned(home, flags, engines[build]))
    assert (beyond.method, beyond.upper_bound) == (Method.ESTIMATED, True)
    assert warm.bytes is not None
    assert beyond.bytes is not None
    with serve(engines[build].path, home / "m.gguf", *flags.format(home=home).split()) as server:
        server.post("/v1/chat/completions", about(8))
        before = address_space(server.pid)
        server.post("/v1/chat/completions", about(1000))
        grown = address_space(server.pid) - before
    # beside it stand the image, its patches and their embeddings
    assert grown <= beyond.bytes + 16 * MIB
    assert grown > 1.25 * 0.95 * warm.bytes


def address_space(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmSize:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.engine
@pytest.mark.slow  # a Vulkan device, which a machine may have none of
@pytest.mark.parametrize("build", BUILDS)
def test_the_engine_is_asked_for_the_device(
    build: int, home: Path, engines: dict[int, Engine]
) -> None:
    path = home / "gemma3.gguf"
    on_device = ask(engines[build], ProjectorParams(path=path), vulkan="0")
    on_host = ask(engines[build], ProjectorParams(path=path, use_gpu=False), vulkan="0")
    assert [b.device for b in on_host.buffers] == ["CPU"]
    weights = {b.device: b.model for b in on_device.buffers}
    assert weights["Vulkan0"] == on_host.buffers[0].model
    assert weights.get("CPU", 0) == 0


@pytest.mark.engine
def test_weights_do_not_exist_in_a_dry_run(
    home: Path, tmp_path: Path, engines: dict[int, Engine]
) -> None:
    huge = Projector(kind="pixtral", embedding=4096, heads=32, feed_forward=16384, layers=80)
    path = write_projector(tmp_path / "huge.gguf", huge, weights="zeros")
    run = ask(engines[10434], ProjectorParams(path=path))
    assert sum(b.model for b in run.buffers) > 30 * GIB


@pytest.mark.engine
@pytest.mark.parametrize("content", [b"", b"GGUF", b"x" * 999])
def test_what_is_no_projector_has_the_engines_words(
    content: bytes, tmp_path: Path, engines: dict[int, Engine]
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    told = projector_run(
        engines[10434].path.parent, ProjectorParams(path=path), environ=os.environ, timeout=60
    )
    assert isinstance(told, Unanswered)
    assert "CLIP" in told.reason


# --- by itself ----------------------------------------------------------------------------------


def test_without_an_engine_weights_are_known_and_compute_is_not(home: Path) -> None:
    plan = planned(home, "-c 512 -np 1 --mmproj {home}/gemma3.gguf", None, build=10434)
    weights, compute = lines(plan)
    header = read_header(home / "gemma3.gguf")
    assert weights.bytes == sum(-(-t.bytes // 32) * 32 for t in header.tensors)
    assert (weights.method, weights.device) == (Method.EXACT, "CPU")
    assert (compute.bytes, compute.method) == (None, Method.UNKNOWN)
    assert plan.fits is None


@pytest.mark.parametrize(
    ("pools", "flags", "build", "device"),
    [
        ("host=8GiB", "", 10434, "CPU"),
        ("CUDA0=8GiB,CUDA1=8GiB,host=8GiB", "", 10434, "CUDA0"),
        ("CUDA0=8GiB,CUDA1=8GiB,host=8GiB", "-dev CUDA1", 10434, "CUDA0"),
        ("CUDA0=8GiB,CUDA1=8GiB,host=8GiB", "-dev CUDA1", 11434, "CUDA1"),
        ("CUDA0=8GiB,CUDA1=8GiB,host=8GiB", "-dev none", 10434, "CUDA0"),
        ("CUDA0=8GiB,CUDA1=8GiB,host=8GiB", "-dev none", 11434, "CPU"),
        ("CUDA0=8GiB,host=8GiB", "-ngl 0", 11434, "CUDA0"),
        ("CUDA0=8GiB,host=8GiB", "--no-mmproj-offload", 10434, "CPU"),
    ],
)
def test_where_it_goes(pools: str, flags: str, build: int, device: str, home: Path) -> None:
    held = parse_pools(pools)
    flags = f"-c 512 -np 1 --mmproj {{home}}/gemma3.gguf {flags}"
    assert lines(planned(home, flags, None, held, build))[0].device == device


def test_a_processors_own_device_comes_after_a_card_and_a_worker_counts() -> None:
    whole = ProjectorParams(path=Path("p"))
    assert device_of_projector(whole, ["Vulkan0", "CUDA0"], {"Vulkan0"}) == "CUDA0"
    assert device_of_projector(whole, ["Vulkan0"], {"Vulkan0"}) == "Vulkan0"
    assert device_of_projector(whole, ["RPC0"], set()) == "RPC0"
    assert device_of_projector(replace(whole, use_gpu=False), ["RPC0"], set()) == "CPU"
    named = replace(whole, device="CUDA1")
    assert device_of_projector(named, ["CUDA0", "CUDA1"], set()) == "CUDA1"
    assert device_of_projector(replace(whole, device="CPU"), ["CUDA0"], set()) == "CPU"


def test_fit_counts_by_the_engines_own_order_of_devices() -> None:
    request = ProjectorParams(path=Path("p"))
    run = ProjectorRun(
        (ProjectorBuffer("RPC0", 6400, 6000, 48), ProjectorBuffer("CPU", 0, 0, 2)), True
    )
    # with a worker alone the CPU's share is taken for the worker's, and the worker's for nobody's
    assert share_of_fit(request, run, ["RPC0"]) == {1: 6048, 0: 2}
    assert share_of_fit(request, run, ["CUDA0", "RPC0"]) == {2: 6048, 1: 2}
    assert share_of_fit(replace(request, warmup=False), run, ["RPC0"]) == {1: 6000, 0: 0}


@pytest.mark.parametrize(
    ("kind", "most", "flash_attn", "beyond"),
    [
        ("gemma3", -1, True, "nothing"),
        ("pixtral", -1, True, 3 * 1000),
        ("pixtral", -1, False, 15 * 1000),
        ("pixtral", 256, True, "nothing"),
        ("pixtral", 512, True, 1000),
        ("qwen2.5vl_merger", 4232, True, 3 * 1000),
        ("internvl", -1, True, "unknown"),
    ],
)
def test_what_a_larger_image_adds(
    kind: str, most: int, flash_attn: bool, beyond: int | str, home: Path
) -> None:
    header = read_header(home / "gemma3.gguf")
    header = replace(header, metadata={**header.metadata, "clip.projector_type": kind})
    request = ProjectorParams(path=Path("p"), image_max_tokens=most)
    run = ProjectorRun((ProjectorBuffer("CUDA0", 64, 60, 1000),), flash_attn)
    found = list(projector_lines(request, header, run, "CUDA0", "1.00 GiB"))
    assert [b.bytes for b in found[:2]] == [64, 1000]
    last = {
        "nothing": [],
        "unknown": [(None, Method.UNKNOWN)],
    }.get(str(beyond), [(beyond, Method.ESTIMATED)])
    assert [(b.bytes, b.method) for b in found[2:]] == last


@pytest.mark.engine
@pytest.mark.parametrize(
    ("build", "more"),
    [
        (10068, ""),
        (10434, "--no-warmup"),
        pytest.param(10092, "", marks=pytest.mark.slow),
        pytest.param(10434, "", marks=pytest.mark.slow),
    ],
)
def test_fit_lowers_the_context_for_it(
    build: int, more: str, home: Path, engines: dict[int, Engine]
) -> None:
    """Fit keeps nearly all memory free, so that the projector's share decides the context."""
    total = psutil.virtual_memory().total
    pools = [Pool("host", ("host",), total, total, "a test")]
    room = 20 + (6 if more else 55)
    given = f"-np 1 -fitt {total // MIB - room} --mmproj {{home}}/pixtral.gguf {more}"
    plan = planned(home, given, engines[build], pools)
    with serve(engines[build].path, home / "m.gguf", *given.format(home=home).split()) as server:
        told = re.search(r"llama_context: n_ctx +=? +(\d+)", server.log.replace("= ", ""))
    assert plan.context is not None
    assert told is not None
    assert 4096 < plan.context.n_ctx == int(told[1]) < 32768


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_on_a_device_and_fit_on_it(
    build: int, home: Path, engines: dict[int, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    pools = parse_pools("Vulkan0=2GiB,host=8GiB")
    given = "-np 1 -fitt 1940 --mmproj {home}/pixtral.gguf"
    plan = planned(home, given, engines[build], pools)
    with serve(engines[build].path, home / "m.gguf", *given.format(home=home).split()) as server:
        log = server.log
    sizes = {
        b.device: b.bytes or 0 for b in lines(plan) if b.reason == "compute for the warm-up image"
    }
    told = {name: float(mib) for name, mib in _COMPUTE.findall(log)}
    assert told == {name: pytest.approx(size / MIB, abs=LINE) for name, size in sizes.items()}
    assert sizes.keys() == {"Vulkan0", "CPU"}
    n_ctx = re.search(r"llama_context: n_ctx +=? +(\d+)", log.replace("= ", ""))
    assert plan.context is not None
    assert n_ctx is not None
    assert 4096 < plan.context.n_ctx == int(n_ctx[1]) < 32768
