"""Plans beside what real servers of three builds then log, to the last digit they print."""

from __future__ import annotations

import itertools
import os
import queue
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component, Method
from arriero.engine import Engine, ListedDevice
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from arriero.gguf.shape import Shape
from arriero.machine import Pool
from arriero.machine.host import ULIMIT
from arriero.memory.pools import parse_pools
from arriero.memory.threads import reserved_address_space
from arriero.process import start
from arriero.record import Plan
from tests.conftest import BUILDS
from tests.engine_oracle.real import ANY_PORT, account
from tests.gguf.serving import Served, serve
from tests.memory.planning import LINE, ROOMY, differences, engine_of, plan
from tests.provoked.provoking import worker

pytestmark = pytest.mark.engine

WRITTEN = (
    "llama",
    "gemma3",
    "qwen35",
    "mamba",
    "mamba2",
    "granitehybrid",
    "nemotron_h",
    "rwkv7",
    "lfm2",
    "falcon-h1",
    "deepseek2",
)
SETTINGS = (
    "-c 4096",
    "-c 4096 -np 1",
    "-c 1000 -np 3",
    "-c 8192 -np 4 -kvu",
    "-c 4096 -np 64",
    "-c 8192 -np 2 -ub 128 -b 256",
    "-c 4096 -np 2 -fa off",
    "-c 4096 -np 2 -ctk q8_0 -ctv q8_0",
    "-c 16384 -np 2 --swa-full",
    "-c 4096 -np 2 --no-mmap",
    "-c 2048 -np 2 --embedding",
)
FAST = (("llama", 0), ("gemma3", 2), ("qwen35", 4), ("qwen35", 9), ("deepseek2", 6))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    written = {arch: write_model(home / f"{arch}.gguf", tiny(arch)) for arch in WRITTEN}
    return written | {
        "tied": write_model(home / "tied.gguf", tiny("llama", layers=7, tied=True)),
        "mtp": write_model(home / "mtp.gguf", tiny("qwen35", mtp=1)),
        "hybrid": write_model(home / "hybrid.gguf", tiny("granitehybrid", layers=8)),
        "swa": write_model(home / "swa.gguf", tiny("gemma3", layers=9)),
    }


@pytest.fixture(scope="session")
def engines(engine_path: Callable[[int], Path]) -> dict[int, Engine]:
    return {build: engine_of(engine_path(build)) for build in BUILDS}


def check(engine: Engine, model: Path, args: str, *, compute: bool = True) -> None:
    logged, settings = account(engine.path, ["-m", str(model), *args.split()])
    planned = plan(model, args, engine=engine)
    if not logged.keys() - {("model", "CPU"), ("model", "CPU_Mapped")}:
        assert any(note.id == "refused" for note in planned.notes), (args, planned.notes)
        return
    assert not [n for n in planned.notes if n.id in ("drift", "dry_run", "refused")], planned.notes
    assert not differences(planned, logged, compute=compute)
    assert planned.context is not None
    told = (planned.context.n_ctx, planned.context.n_ctx_seq, planned.context.n_seq_max)
    assert told == (settings["n_ctx"], settings["n_ctx_seq"], settings["n_seq_max"])


@pytest.mark.parametrize(("arch", "setting"), FAST)
def test_sizes_are_what_the_server_logs(
    engines: dict[int, Engine], models: dict[str, Path], arch: str, setting: int
) -> None:
    check(engines[10434], models[arch], SETTINGS[setting])


def test_drafting_with_the_models_own_layers(
    engines: dict[int, Engine], models: dict[str, Path]
) -> None:
    """The draft context's sizes are logged like the main one's and add up with them."""
    args = "-c 4096 -np 2 --spec-type draft-mtp"
    logged, _ = account(engines[10434].path, ["-m", str(models["mtp"]), *args.split()])
    planned = plan(models["mtp"], args, engine=engines[10434])
    assert planned.context is not None
    assert planned.context.n_rs_seq == 3
    rs = sum(b.bytes or 0 for b in planned.buffers if b.component is Component.RS)
    assert rs / (1 << 20) == pytest.approx(logged["RS", "CPU"], abs=0.006)
    draft = [b for b in planned.buffers if b.component is Component.DRAFT]
    assert [b.method for b in draft] == [Method.MEASURED]


def in_all(
    planned: Plan, logged: Mapping[tuple[str, str], float]
) -> list[tuple[str, float, float]]:
    """Devices whose sum over all that is logged is not what is planned, drafts included."""
    kinds = (Component.WEIGHTS, Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT)
    sizes: dict[str, list[float]] = {}
    for b in planned.buffers:
        if b.component in (*kinds, Component.DRAFT):
            sizes.setdefault(b.device, [0.0, 0.0])[0] += (b.bytes or 0) / MIB
    for (_, device), mib in logged.items():
        sizes.setdefault(device, [0.0, 0.0])[1] += mib
    # files are mapped, and everything else that is the host's own is one
    for name in [name for name in sizes if name == "CPU_Mapped"]:
        total = sizes.setdefault("CPU", [0.0, 0.0])
        total[:] = [a + b for a, b in zip(total, sizes.pop(name), strict=True)]
    # each of up to ten lines is rounded
    return [
        (name, both[0], both[1])
        for name, both in sizes.items()
        if abs(both[0] - both[1]) > 10 * LINE
    ]


@pytest.mark.parametrize("args", ["-c 4096", "-c 4096 -np 2 -ctkd q8_0", "-np 1"])
def test_a_draft_model_of_its_own(
    engines: dict[int, Engine], models: dict[str, Path], args: str
) -> None:
    line = f"{args} -md {models['tied']}"
    logged, _ = account(engines[10434].path, ["-m", str(models["llama"]), *line.split()])
    planned = plan(models["llama"], line, engine=engines[10434], draft=read_header(models["tied"]))
    assert not in_all(planned, logged)
    draft = [b for b in planned.buffers if b.component is Component.DRAFT]
    assert {b.method for b in draft} == {Method.MEASURED}
    formulas = plan(models["llama"], line, build=10434, draft=read_header(models["tied"]))
    bound = sum(b.bytes or 0 for b in formulas.buffers if b.component is Component.DRAFT)
    assert bound >= sum(b.bytes or 0 for b in draft)


@pytest.mark.parametrize("kind", ["", " --spec-type draft-simple"])
def test_outputs_for_drafts_are_those_of_a_model_that_drafts(
    engines: dict[int, Engine], tmp_path: Path, kind: str
) -> None:
    """With so many tokens to choose from, outputs are most of the compute buffer."""
    model = write_model(tmp_path / "m.gguf", tiny("llama", layers=1, vocab=1 << 16, embedding=64))
    line = f"-c 4096 -np 16 -ub 64 -b 256 -md {model}{kind}"
    logged, _ = account(engines[10434].path, ["-m", str(model), *line.split()])
    assert not in_all(plan(model, line, engine=engines[10434], draft=read_header(model)), logged)


@pytest.mark.slow
@pytest.mark.parametrize("args", ["-c 4096", "-c 4096 -ngld 2", "-c 4096 -np 2 -devd none"])
def test_a_draft_model_on_a_device(
    engines: dict[int, Engine], models: dict[str, Path], args: str
) -> None:
    line = f"{args} -md {models['tied']}"
    logged, _ = account(engines[10434].path, ["-m", str(models["llama"]), *line.split()], LAVAPIPE)
    if not any(device.startswith("Vulkan") for _, device in logged):
        pytest.skip("no software Vulkan here")
    pools = [ROOMY, Pool("Vulkan0", ("Vulkan0",), 1 << 40, 1 << 40, "a test")]
    planned = plan(
        models["llama"],
        f"{line} -fit off",
        engine=engines[10434],
        pools=pools,
        environ={**os.environ, **LAVAPIPE},
        draft=read_header(models["tied"]),
    )
    assert not in_all(planned, logged)


def test_a_plan_without_an_engine_is_never_below_the_server(
    engines: dict[int, Engine], models: dict[str, Path]
) -> None:
    logged, _ = account(engines[10434].path, ["-m", str(models["qwen35"]), *SETTINGS[0].split()])
    planned = plan(models["qwen35"], SETTINGS[0], build=10434)
    assert not differences(planned, logged, compute=False)
    (compute,) = [b for b in planned.buffers if b.component is Component.COMPUTE]
    assert compute.upper_bound
    assert (compute.bytes or 0) / (1 << 20) > logged["compute", "CPU"]


def test_devices_that_the_engine_has_not_are_by_formulas(
    engines: dict[int, Engine], models: dict[str, Path]
) -> None:
    pools = parse_pools("CUDA0=24GiB,CUDA1=16GiB,host=64GiB")
    planned = plan(models["llama"], "-c 4096", engine=engines[10434], pools=pools)
    assert [note.text for note in planned.notes if note.id == "dry_run"] == [
        "Sizes come from formulas, not from a dry run: CUDA0 is not in this engine."
    ]
    kv = {b.device: b.bytes for b in planned.buffers if b.component is Component.KV}
    assert set(kv) == {"CUDA0", "CUDA1"}
    matching = plan(models["llama"], "-c 4096", engine=engines[10434], pools=[ROOMY])
    assert not [note for note in matching.notes if note.id == "dry_run"]


def test_an_engine_that_lacks_the_architecture_says_so(engines: dict[int, Engine]) -> None:
    model = Path(__file__).parent / "data" / "archs" / "bailingmoe3.gguf"
    planned = plan(model, "-c 4096 -np 2", engine=engines[10434])
    (note,) = (note for note in planned.notes if note.id in ("refused", "dry_run"))
    assert "b10434 does not know bailingmoe3" in note.text
    assert planned.fits is False
    # by the binary's own word, where its build is not known
    unnumbered = replace(engines[10434], build=None)
    planned = plan(model, "-c 4096 -np 2", engine=unnumbered)
    assert [note.id for note in planned.notes if note.id == "refused"]
    assert planned.fits is False


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("arch", WRITTEN)
def test_every_setting_of_every_architecture(
    engines: dict[int, Engine], models: dict[str, Path], arch: str, build: int
) -> None:
    for args in SETTINGS:
        check(engines[build], models[arch], args)


QUANTISED = {
    "q4_0": Shape(arch="llama", embedding=256, heads=8, feed_forward=512, tensor_type="q4_0"),
    "q4_K_M": Shape(arch="llama", embedding=256, heads=8, feed_forward=512, tensor_type="q4_K_M"),
    "experts": Shape(arch="qwen3moe", embedding=256, expert_feed_forward=256, tensor_type="q4_0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", QUANTISED)
def test_weights_that_the_cpu_keeps_in_a_layout_of_its_own(
    engines: dict[int, Engine], tmp_path: Path, build: int, name: str
) -> None:
    model = write_model(tmp_path / "m.gguf", QUANTISED[name], weights="zeros")
    for args in ("-c 1024", "-c 1024 -nr", "-c 1024 --no-mmap"):
        lines = log_of(engines[build], ["-m", str(model), *args.split(), "-fit", "off"])
        planned = plan(model, args, engine=engines[build])
        assert not differences(planned, sizes_in(lines), compute=False), args
        weights = [b for b in planned.buffers if b.component is Component.WEIGHTS]
        assert {b.method for b in weights} == {Method.EXACT}


@pytest.mark.slow
@pytest.mark.parametrize("args", ["-ncmoe 2", "-cmoe --no-mmap", "-ngl 3 -nr", "-ngl 2 --no-mmap"])
def test_experts_and_layers_left_to_the_host(
    engines: dict[int, Engine], tmp_path: Path, args: str
) -> None:
    model = write_model(tmp_path / "m.gguf", QUANTISED["experts"], weights="zeros")
    line = f"-c 1024 -fit off {args}"
    logged = sizes_in(log_of(engines[10434], ["-m", str(model), *line.split()], LAVAPIPE))
    if not any(device.startswith("Vulkan") for _, device in logged):
        pytest.skip("no software Vulkan here")
    pools = [ROOMY, Pool("Vulkan0", ("Vulkan0",), 1 << 40, 1 << 40, "a test")]
    environ = {**os.environ, **LAVAPIPE}
    planned = plan(model, line, engine=engines[10434], pools=pools, environ=environ)
    assert not differences(planned, logged)


# splits


def log_of(engine: Engine, args: Sequence[str], extra: Mapping[str, str] = {}) -> list[str]:
    """What a server logs until it is ready, or ends in whatever way.

    One that dies of a signal (a build for AVX-VNNI, at its first token elsewhere) takes along what
    its logger had not written yet: it is started again until its sizes are out.
    """
    for _ in range(10):
        lines, status = _logged(engine, args, extra)
        if status >= 0 or any("compute buffer size" in line for line in lines):
            break
    return lines


def _logged(engine: Engine, args: Sequence[str], extra: Mapping[str, str]) -> tuple[list[str], int]:
    environ = {**os.environ, "LD_LIBRARY_PATH": str(engine.path.parent), **extra}
    arriving: queue.SimpleQueue[str] = queue.SimpleQueue()
    argv = [str(engine.path), *args, "-lv", "4", "--no-warmup", *ANY_PORT]
    lines: list[str] = []
    with start(argv, env=environ, on_line=arriving.put) as process:
        deadline = time.monotonic() + 60
        while not lines or "all slots are idle" not in lines[-1]:
            try:
                lines.append(arriving.get(timeout=0.1))
            except queue.Empty:
                assert time.monotonic() < deadline, lines[-5:]
                if process.poll() is not None and arriving.empty():
                    break
        ended = process.poll()
    return lines, ended.status if ended is not None else 0


def sizes_in(lines: Sequence[str]) -> dict[tuple[str, str], float]:
    """MiB by kind and buffer, several contexts together."""
    sizes: dict[tuple[str, str], float] = {}
    reserved: set[str] = set()
    for line in lines:
        if "llama_context: n_ctx " in line:
            reserved = set()
        if match := re.search(r":\s+(\S+)\s+(\w+) buffer size =\s*([\d.]+) MiB", line):
            device, kind, mib = match.groups()
            # a context of NextN layers is reserved twice
            if kind != "compute" or device not in reserved:
                sizes[kind, device] = sizes.get((kind, device), 0.0) + float(mib)
            reserved |= {device} if kind == "compute" else set()
    return sizes


SPLITS = (
    "-ts 1,1",
    "-ts 3,1",
    "-ts 1,2 -ngl 3",
    "-ts 1,1 -nkvo",
    "-ts 1,1 -sm none -mg 1",
    r"-ts 1,1 -ot blk\.[12]\.=RPC0[{1}],blk\.3\.ffn_.*=CPU",
    "-ts 2,1 -nr --no-mmap",
)


@pytest.fixture(scope="module")
def workers(engines: dict[int, Engine]) -> Iterator[tuple[str, str]]:
    """Two workers of build 10434 on loopback."""
    with worker(engines[10434]) as (first, _), worker(engines[10434]) as (second, _):
        yield first, second


@pytest.mark.slow
@pytest.mark.parametrize(("model", "args"), [*itertools.product(("tied", "hybrid", "swa"), SPLITS)])
def test_two_workers_hold_what_is_planned(
    engines: dict[int, Engine],
    models: dict[str, Path],
    workers: tuple[str, str],
    model: str,
    args: str,
) -> None:
    rpc, args = ["--rpc", ",".join(workers), "-dev", "RPC0,RPC1"], args.format(*workers)
    line = ["-m", str(models[model]), "-c", "4096", "-np", "2", *args.split()]
    # A buffer type is known once its worker is. With some splits a worker of this build refuses a
    # node of the first graph ("invalid data ptr"), and the server aborts: after its size lines.
    logged = sizes_in(log_of(engines[10434], [*rpc, *line, "-fit", "off"], NO_DEBUGGER))
    named = {
        (kind, f"RPC{workers.index(device[5:-1])}" if device.startswith("RPC") else device): mib
        for (kind, device), mib in logged.items()
    }
    room = 1 << 40
    pools = [ROOMY]
    for i, endpoint in enumerate(workers):
        listed = (ListedDevice(f"RPC{i}", endpoint, room, room),)
        pools.append(Pool(f"RPC{i}", (f"RPC{i}",), room, room, "a test", listed=listed))
    words = shlex.join(args.split())
    planned = plan(models[model], f"-c 4096 -np 2 {words}", pools=pools, build=10434)
    assert named
    assert not differences(planned, named, compute=False)


@pytest.mark.slow
def test_rows_are_cut_by_few_backends_and_refused_by_others(
    engines: dict[int, Engine], models: dict[str, Path], workers: tuple[str, str]
) -> None:
    args = ["-m", str(models["tied"]), "-c", "4096", "-sm", "row"]
    lines = log_of(engines[10434], ["--rpc", ",".join(workers), *args], NO_DEBUGGER)
    assert any("device RPC0 does not support split buffers" in line for line in lines)
    pools = [ROOMY, Pool("RPC0", ("RPC0",), 1 << 40, 1 << 40, "a test")]
    planned = plan(models["tied"], "-c 4096 -sm row", pools=pools, build=10434)
    assert [note.id for note in planned.notes] == ["refused"]
    assert planned.fits is False


NO_DEBUGGER = {"GGML_NO_BACKTRACE": "1"}
LAVAPIPE = {"GGML_VK_VISIBLE_DEVICES": "0"}
ON_DEVICE = (
    "-ngl 99",
    "-ngl 3",
    "-ngl 0",
    "-ngl 99 -nkvo",
    r"-ngl 99 -ot blk\.[12]\.ffn_.*=CPU",
    "-ngl 99 --no-mmap",
    "-ngl 99 -np 5 -fa off",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "args"), [*itertools.product(("tied", "hybrid", "swa"), ON_DEVICE)]
)
def test_one_device_and_the_host_hold_what_is_planned(
    engines: dict[int, Engine], models: dict[str, Path], model: str, args: str
) -> None:
    engine = engines[10434]
    line = ["-m", str(models[model]), "-c", "4096", *args.split()]
    logged, _ = account(engine.path, line, LAVAPIPE)
    if not any(re.match("Vulkan0", device) for _, device in logged):
        pytest.skip("no software Vulkan here")
    pools = [ROOMY, Pool("Vulkan0", ("Vulkan0",), 1 << 40, 1 << 40, "a test")]
    environ = {**os.environ, **LAVAPIPE}
    words = shlex.join(args.split())
    planned = plan(models[model], f"-c 4096 {words}", engine=engine, pools=pools, environ=environ)
    # with -nkvo the engine's own dry run does not know what recurrent layers take
    doubtful = model == "hybrid" and "-nkvo" in args
    computed = [b for b in planned.buffers if b.component is Component.COMPUTE]
    assert all((b.method is Method.ESTIMATED) is doubtful for b in computed)
    assert not [n for n in planned.notes if n.id in ("drift", "dry_run")], planned.notes
    assert not differences(planned, logged, compute=not doubtful)


@pytest.mark.parametrize("arch", ["qwen35", "gemma3", "mamba2"])
def test_a_checkpoint_is_as_large_as_planned(
    engines: dict[int, Engine], models: dict[str, Path], arch: str
) -> None:
    args = ["-c", "4096", "-np", "2", "--no-warmup"]
    with serve(engines[10434].path, models[arch], *args) as server:
        server.post("/completion", {"prompt": "x" * 1500, "n_predict": 2})
        # the answer may be here before the log's own thread has written what came before it
        deadline = time.monotonic() + 60
        while "stop processing" not in server.log and time.monotonic() < deadline:
            time.sleep(0.02)
        logged = re.findall(r"created context checkpoint .* size = ([\d.]+) MiB", server.log)
    planned = plan(models[arch], "-c 4096 -np 2 -ctxcp 1", engine=engines[10434])
    (line,) = [b for b in planned.buffers if b.component is Component.CHECKPOINTS]
    assert (line.bytes or 0) / 2 / (1 << 20) == pytest.approx(float(logged[-1]), abs=0.0006)


# fit

FITTED = {
    "dense": Shape(arch="llama", layers=24, embedding=256, heads=8, heads_kv=4, feed_forward=1024),
    "moe": Shape(
        arch="qwen3moe",
        layers=16,
        embedding=256,
        heads=8,
        heads_kv=4,
        experts=8,
        expert_feed_forward=512,
    ),
    "hybrid": Shape(
        arch="qwen35",
        layers=16,
        embedding=256,
        heads_kv=2,
        head_dim=64,
        feed_forward=1024,
        ssm_state=64,
    ),
}
FITTED["mtp"] = replace(FITTED["hybrid"], mtp=1)
REPORTED = 2048
"""MiB that the software device says are free. Targets near it leave little room."""
MOVED, REDUCED, GIVEN_UP = "move", "take a context", "give up"
FITS = (
    (10434, "dense", "-fitt 1500 -c 4096", ""),
    (10434, "dense", "-fitt 2000 -c 4096", MOVED),
    (10434, "dense", "-fitt 2020 -c 4096", MOVED),
    (10434, "dense", "-fitt 2047 -c 4096", MOVED),
    (10434, "dense", "-fitt 1900 -np 3", REDUCED),
    (10434, "dense", "-fitt 2000 -c 4096 -ngl 20", GIVEN_UP),
    (10434, "dense", "-fitt 2000 -ngl all", GIVEN_UP),
    (10434, "moe", "-fitt 1980 -c 4096", "experts of"),
    (10434, "moe", "-fitt 1940 -c 4096", "experts of"),
    (10434, "moe", "-fitt 2000 -np 2", MOVED),
    (10434, "moe", "-fitt 2040 -c 4096", MOVED),
    (10434, "moe", "-fitt 2000 -c 8192 -ncmoe 3", GIVEN_UP),
    (10434, "hybrid", "-fitt 1980 -np 2", REDUCED),
    (10434, "hybrid", "-fitt 2010 -c 4096 -np 4", MOVED),
    (10068, "moe", "-fitt 1940 -c 4096", "experts of"),
    (10068, "dense", "-fitt 1990", MOVED),
    (10092, "moe", "-fitt 2000 -np 2", MOVED),
    (10092, "hybrid", "-fitt 1960", REDUCED),
    (10434, "dense", "-fitt 1990 -np 2 -md {dense}", MOVED),
    (10434, "dense", "-fitt 1900 -np 1 -md {dense}", REDUCED),
    (10434, "mtp", "-fitt 1960 -np 2 --spec-type draft-mtp", REDUCED),
)


@pytest.fixture(scope="module")
def fitting(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("fit")
    return {
        name: write_model(
            home / f"{name}.gguf", replace(shape, context_train=16384), weights="zeros"
        )
        for name, shape in FITTED.items()
    }


def left_to_fit(
    engine: Engine, model: Path, args: Sequence[str]
) -> tuple[dict[tuple[str, str], float], int, list[str]]:
    """Size lines, context and fit's own lines of one start with ``--fit`` on software Vulkan."""
    lines = log_of(engine, ["-m", str(model), *args], LAVAPIPE)
    contexts = (re.search(r"llama_context: n_ctx +=\s*(\d+)", line) for line in lines)
    n_ctx = next(int(match[1]) for match in contexts if match)
    return sizes_in(lines), n_ctx, [line for line in lines if "fit_params" in line]


@pytest.mark.slow
@pytest.mark.parametrize(("build", "model", "args", "does"), FITS)
def test_fit_does_what_is_planned(
    engines: dict[int, Engine],
    fitting: dict[str, Path],
    build: int,
    model: str,
    args: str,
    does: str,
) -> None:
    """Context, and weights, caches, compute and output on each device, after fit was at work."""
    engine, args = engines[build], args.format(**fitting)
    logged, n_ctx, said = left_to_fit(engine, fitting[model], args.split())
    if not any(device.startswith("Vulkan") for _, device in logged):
        pytest.skip("no software Vulkan here")
    free = REPORTED << 20
    pools = [ROOMY, Pool("Vulkan0", ("Vulkan0",), free, free, "a test")]
    environ = {**os.environ, **LAVAPIPE}
    draft = read_header(fitting["dense"]) if "-md" in args else None
    planned = plan(fitting[model], args, engine=engine, pools=pools, environ=environ, draft=draft)
    assert planned.context is not None
    assert planned.context.n_ctx == n_ctx
    if any(b.component is Component.DRAFT for b in planned.buffers):
        assert not in_all(planned, logged)
    else:
        assert not differences(planned, logged)
    notes = [note.text for note in planned.notes]
    assert [does in note for note in notes] == ([True] if does else [])
    gave_up = any("failed to fit params" in line for line in said)
    assert gave_up == (does == GIVEN_UP)


# address space


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "environ"), [(1, {}), (16, {}), (16, {"MALLOC_ARENA_MAX": "1"})])
def test_address_space_stays_below_what_is_planned_and_reserved(
    engines: dict[int, Engine], models: dict[str, Path], slots: int, environ: dict[str, str]
) -> None:
    """At its peak, with every slot asked at once; and the reserve is not many times too large."""
    args = f"-c 4096 -np {slots} -cram 0 -ctxcp 0 --no-warmup -fit off"
    engine, extra = engines[10434], {**environ, **NO_DEBUGGER}
    full = {**os.environ, "LD_LIBRARY_PATH": str(engine.path.parent), **extra}
    arriving: queue.SimpleQueue[str] = queue.SimpleQueue()
    argv = [str(engine.path), "-m", str(models["llama"]), *args.split(), *ANY_PORT]
    with start(argv, env=full, on_line=arriving.put) as process:
        while not (listening := re.search(r"listening on http://[\d.]+:(\d+)", arriving.get())):
            pass
        served = Served(int(listening[1]), Path())

        def ask(_: int) -> None:
            served.post("/completion", {"prompt": "x" * 40, "n_predict": 4})

        with ThreadPoolExecutor(slots) as asking:
            list(asking.map(ask, range(2 * slots)))
        status = Path(f"/proc/{process.pid}/status").read_text()
    peak = int(status.split("VmPeak:")[1].split()[0]) << 10
    limited = Pool("host", ("host",), 1 << 40, 1 << 40, ULIMIT)
    (pool,) = plan(
        models["llama"], args, engine=engine, pools=[limited], environ={**os.environ, **environ}
    ).pools
    reserved = reserved_address_space(slots, None, environ)
    assert pool.margin > reserved
    assert pool.at_start + reserved >= peak
    assert pool.at_start + reserved < 2 * peak
