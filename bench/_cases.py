"""Cases that are made from their numbers, run in several processes: how each ends is counted.

A case may raise nothing, and may take so many times the CPU time of a typical one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

_Case = TypeVar("_Case")
SHOWN: Final = 50
"""Failures that are printed."""


class HangError(Exception):
    """Far more CPU time than a typical case takes."""


class WrongError(Exception):
    """A result or a message that is not fit to be shown."""


@dataclass
class Done:
    """How cases ended: the number of each outcome, failures by number, seconds of the slowest."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)

    def add(self, more: Done) -> None:
        """Count those of another process too."""
        self.outcomes += more.outcomes
        self.failures += more.failures
        self.slowest = max(self.slowest, more.slowest)


def limit_of_time(run: Callable[[int], object], *, typical: int, times: int) -> float:
    """``times`` the seconds of CPU time that one of the first ``typical`` cases takes here.

    From here on a case that takes longer, under :func:`work`, raises :class:`HangError`.
    """

    def ring(_number: int, _frame: object) -> None:
        raise HangError(f"more than {times} times what a typical case takes")

    signal.signal(signal.SIGPROF, ring)
    start = time.process_time()
    for number in range(typical):
        with suppress(Exception):  # a failure is found when the case is run to be judged
            run(number)
    return times * (time.process_time() - start) / typical


def work(
    make: Callable[[int], _Case], run: Callable[[_Case], str], numbers: range, allowed: float
) -> Done:
    """Run these cases in this process; ``run`` gives an outcome within ``allowed`` seconds."""
    done = Done()
    for number in numbers:
        case = make(number)
        start = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_PROF, allowed)
            try:
                outcome = run(case)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            done.outcomes[outcome] += 1
        except Exception as error:  # noqa: BLE001  whatever it is, it is what is looked for
            frames = traceback.extract_tb(error.__traceback__)
            place = ([one for one in frames if one.filename != __file__] or frames)[-1]
            at = f"{Path(place.filename).name}:{place.lineno}"
            done.failures.append((number, f"{type(error).__name__} at {at}: {error}"))
        done.slowest = max(done.slowest, (time.process_time() - start, number))
    return done


def parser(about: str | None, cases: int) -> argparse.ArgumentParser:
    """What the command line of every such program holds."""
    made = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    made.add_argument("--cases", type=int, default=cases)
    made.add_argument("--first", type=int, default=0)
    made.add_argument("--workers", type=int, default=2)
    return made


def run_all(
    work: Callable[[int, int], Done],
    numbers: range,
    workers: int,
    *,
    most: int,
    prepared: Callable[[], None] | None = None,
) -> Done:
    """Run all cases, at most ``most`` at once in one process, and print how they ended."""
    start = time.perf_counter()
    total = Done()
    step = min(most, -(-len(numbers) // workers))
    begins = range(numbers.start, numbers.stop, step)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=prepared) as pool:
        for done in pool.map(work, begins, [min(step, numbers.stop - at) for at in begins]):
            total.add(done)
    for number, what in total.failures[:SHOWN]:
        print(f"case {number}: {what}")
    for outcome, count in total.outcomes.most_common():
        print(f"{count:8d}  {outcome}")
    print(f"{len(total.failures):8d}  failures")
    seconds, number = total.slowest
    print(
        f"{len(numbers)} cases in {time.perf_counter() - start:.0f} s; the slowest took "
        f"{seconds * 1000:.0f} ms of CPU time (case {number})"
    )
    return total
