"""What the slowest texts cost: seconds for each MB at three lengths, beside plain text, and memory.

Texts are made of the patterns' own parts, as in ``tests/hostile/test_linear.py``, and of what once
was slow. ``python bench/hostile_text.py [KB]`` (the shortest length; then twice, four times it).
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arriero.base.redact import Redactor
from arriero.logs import read_log
from arriero.logs.grammar import RULES
from tests.hostile.test_linear import REPEATED, patterns
from tests.hostile.worst import repeats

PLAIN = "0.00.100.000 I srv  update_slots: all slots are idle and wait for another task\n"
SLOW = (*REPEATED, "llama-llama-", "alloc", "ggml_backend_rpc", "+0x", "Exit", '"prompt": "')
LINE = 4000


def as_log(text: str) -> object:
    """The text as lines of a log, no two alike."""
    lines = (f"{text[at : at + LINE]} x{at:x}" for at in range(0, len(text), LINE))
    return read_log(["\n".join(lines).encode()])


WORK: dict[str, Callable[[str], object]] = {
    "explain": as_log,
    "share": lambda text: Redactor().share(text),
}


def seconds(work: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def slowest(lengths: list[int]) -> None:
    for name, work in WORK.items():
        units = dict.fromkeys(SLOW)
        if name == "share":
            held = [p for n, p in patterns().items() if n.startswith("arriero.base.p")]
        else:
            held = [rule.pattern for rule in RULES]
        units.update(dict.fromkeys(unit for p in held for before, unit in repeats(p)[:3]))
        costs = {unit: seconds(work, unit * (LINE // len(unit) + 1)) for unit in units}
        for unit in [PLAIN, *sorted(costs, key=costs.__getitem__, reverse=True)[:5]]:
            took = [seconds(work, unit * (n // len(unit))) / n * 1e6 for n in lengths]
            print(f"{name:8} {unit.strip()[:44]!r:48}" + "".join(f"{t:9.2f}" for t in took))


def slowest_pattern() -> None:
    found = []
    for rule in RULES:
        for before, unit in repeats(rule.pattern):
            text = before + unit * (2048 // len(unit))
            found.append((seconds(rule.pattern.search, text) / len(text) * 1e6, rule.id, unit))
    for cost, name, unit in sorted(found, reverse=True)[:3]:
        print(f"pattern  {name + ' ' + repr(unit[:30]):48}{cost:9.2f}")


def main() -> None:
    if sys.argv[1:2] == ["peak"]:
        work, unit, length = WORK[sys.argv[2]], sys.argv[3], int(sys.argv[4])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work(unit * (length // len(unit)))
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        return
    lengths = [int(sys.argv[1] if sys.argv[1:] else 32) * 1000 * n for n in (1, 2, 4)]
    print(f"{'':57}" + "".join(f"{n // 1000:6} kB" for n in lengths) + "   seconds for each MB")
    slowest(lengths)
    slowest_pattern()
    for name in WORK:
        for unit in ("llama-llama-", "/home/user/a b/"):
            argv = [sys.executable, __file__, "peak", name, unit, "2000000"]
            out = subprocess.run(argv, capture_output=True, check=True, text=True).stdout
            print(f"peak     {name} of 2 MB of {unit!r}: {float(out):.0f} MiB more than before")


if __name__ == "__main__":
    main()
