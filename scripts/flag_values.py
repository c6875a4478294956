"""Which values each flag of an engine takes, found by asking it: ``command/values.json``.

    python scripts/flag_values.py 10092=.engines/10092/…/llama-server 10434=…

An engine refuses a value where it reads its command line, before it does anything else, and
``--version`` behind the flag ends it there. What is asked and what an answer means is in
``arriero.command.values``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from arriero.command.flags import parse_help
from arriero.command.values import FREE, PROBES, Takes, conclude


def answers(binary: Path, name: str, values: tuple[str, ...], cwd: str) -> dict[str, bool]:
    """Value → whether the engine takes it."""
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(binary.parent), "HOME": cwd}
    found = {}
    for value in values:
        done = subprocess.run(
            [binary, name, value, "--version"],
            env=env, cwd=cwd, capture_output=True, text=True, errors="replace", timeout=60,
            check=False,
        )  # fmt: skip
        found[value] = done.returncode == 0 and "version:" in done.stdout + done.stderr
    return found


def table(binary: Path) -> dict[str, Takes]:
    """Flag → what it takes, of those that do not take every word."""
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(binary.parent)}
    told = subprocess.run([binary, "--help"], env=env, capture_output=True, text=True, check=True)
    found = {}
    with tempfile.TemporaryDirectory() as cwd:
        for flag in parse_help(told.stdout).flags:
            if flag.arity != 1 or flag.removed:
                continue
            if all(answers(binary, flag.canonical, FREE, cwd).values()):
                continue
            words = (*PROBES, *flag.words, *flag.choices)
            takes = conclude(answers(binary, flag.canonical, words, cwd))
            if takes is not None:
                found[flag.canonical] = takes
    return found


if __name__ == "__main__":
    builds = {
        int(b): table(Path(p).resolve()) for b, _, p in (a.partition("=") for a in sys.argv[1:])
    }
    lines = []
    for build, flags in builds.items():
        each = ",\n".join(f'"{n}":{msgspec.json.encode(t).decode()}' for n, t in flags.items())
        lines.append(f'"{build}":{{\n{each}\n}}')
    to = Path(__file__).parent.parent / "src/arriero/command/values.json"
    to.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
