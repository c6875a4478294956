"""Files of commands that are broken: each must give a check or one clear error.

    python bench/fuzz_files.py [--cases 10000] [--first 0] [--workers 2]

Every case is made from its number alone: a file of the seeds in tests/, in which bytes, lines and
words were changed, doubled, cut or replaced by what a shell, YAML or INI reads as more than text.
A case fails if it raises anything but an ArrieroError, if what it says cannot be shown, or if it
takes many times what a typical case takes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from arriero.base.errors import ArrieroError
from arriero.base.paste import is_hidden
from arriero.jobs.check import CheckOptions, check_file, fixed_lines
from arriero.memory import parse_pools

TESTS: Final = Path(__file__).resolve().parents[1] / "tests"
SEEDS: Final = (TESTS / "command" / "data",)
TIMES: Final = 100
"""How many times a typical case's time one may take."""
TYPICAL: Final = 60
LONGEST_MESSAGE: Final = 600
LARGEST_SEED: Final = 1 << 15

PIECES: Final = (
    *("\\", "'", '"', "`", "$", "${", "}", "$(", ")", "(", ";", "&", "|", "<", ">", "#", "!", "%"),
    *("\n", "\n\n", "\t", "\r", "\0", "\x1b[2J", "\ufeff", "\u2028", "é", "\\\n", " \\\n", "---\n"),
    *("[", "]", "{", "}", ":", "- ", "? ", "*a", "&a ", "<<: ", "|\n", ">\n", "!!python/x ", "="),
    *("[*]\n", "llama-server", "llama-server -m", "-c", "-np", "--rpc", "-dev", "-ts", "-1"),
    *("1e400", "0"),
    *("9" * 400, "-" * 300, "a" * 5000, "${A" * 60, "$(" * 200, "[" * 300, "{" * 300, "'" * 301),
    *("eval ", "exec ", "bash -c ", "docker run ", "ssh x ", "sudo ", "timeout 5 ", "env A=1 "),
    *("A=1 ", "ExecStart=", "Environment=", "command:", "cmd:", "macros:", "model = ", "image: "),
    *("CMD [", "args:"),
)  # fmt: skip


class HangError(Exception):
    """Far more CPU time than a file of commands takes."""


class WrongError(Exception):
    """A check or a message that is not fit to be shown."""


@cache
def seeds() -> tuple[tuple[str, str], ...]:
    """Name and text of each file that is changed."""
    found = (path for place in SEEDS for path in sorted(place.rglob("*")) if path.is_file())
    texts = ((path.name, path.read_bytes()) for path in found)
    return tuple((n, d.decode("utf-8", "replace")) for n, d in texts if len(d) <= LARGEST_SEED)


def case_of(number: int) -> tuple[str, str]:
    """Name and text of a case's file."""
    r = random.Random(number)
    name, text = r.choice(seeds())
    for _ in range(r.choice((1, 1, 2, 3, 5, 8))):
        text = changed(text, r)
    return name, text


def changed(text: str, r: random.Random) -> str:
    lines = text.split("\n")
    at, line = r.randint(0, len(text)), r.randrange(len(lines))
    words = lines[line].split(" ")
    word = r.randrange(len(words))
    match r.randrange(8):
        case 0:
            return text[:at] + r.choice(PIECES) + text[at:]
        case 1:
            return text[:at] + text[at + r.choice((1, 1, 2, 5, 40)) :]
        case 2:
            lines.insert(line, lines[r.randrange(len(lines))])
        case 3:
            del lines[line]
        case 4:
            words[word] = r.choice(PIECES)
            lines[line] = " ".join(words)
        case 5:
            words.insert(word, r.choice(PIECES))
            lines[line] = " ".join(words)
        case 6:
            lines[line] = " " * r.randint(0, 9) + lines[line].lstrip()
        case _:
            return text[:at]
    return "\n".join(lines)


def run(number: int, place: Path) -> str:
    """What becomes of a case: ``check``, or the id of an error."""
    name, text = case_of(number)
    path = place / name
    path.write_text(text, "utf-8", errors="replace", newline="")
    options = CheckOptions(budget=parse_pools("host=16GiB,CUDA0=24GiB"), assume_build=10434)
    try:
        document = check_file(path, options, cwd=place)
    except ArrieroError as error:
        message = f"{error.message} {error.hint}"
        if not error.message or not message.isprintable():
            raise WrongError(f"message with control characters: {message!r}") from None
        if len(message) > LONGEST_MESSAGE:
            raise WrongError(f"message of {len(message)} characters: {message[:200]}") from None
        return error.id
    finally:
        path.unlink()
    for line in fixed_lines(document):
        if any(map(is_hidden, line.replace("\n", ""))):
            raise WrongError(f"a line that acts on a terminal: {line[:200]!r}")
    return "check"


@dataclass
class Done:
    outcomes: Counter[str]
    failures: list[tuple[int, str]]
    slowest: tuple[float, int] = (0.0, -1)


def work(first: int, count: int) -> Done:
    """Run so many cases in one process."""
    done = Done(Counter(), [])
    allowed = limit_of_time()
    with tempfile.TemporaryDirectory() as name:
        for number in range(first, first + count):
            start = time.process_time()
            try:
                signal.setitimer(signal.ITIMER_PROF, allowed)
                try:
                    done.outcomes[run(number, Path(name))] += 1
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
            except Exception as error:  # noqa: BLE001  whatever it is, it is what is looked for
                frame = traceback.extract_tb(error.__traceback__)[-1]
                at = f"{Path(frame.filename).name}:{frame.lineno}"
                done.failures.append((number, f"{type(error).__name__} at {at}: {error}"))
            done.slowest = max(done.slowest, (time.process_time() - start, number))
    return done


@cache
def limit_of_time() -> float:
    """Seconds of CPU time that a case may take here."""

    def ring(_number: int, _frame: object) -> None:
        raise HangError(f"more than {TIMES} times what a typical case takes")

    signal.signal(signal.SIGPROF, ring)
    with tempfile.TemporaryDirectory() as name:
        start = time.process_time()
        for number in range(TYPICAL):
            try:
                run(number, Path(name))
            except Exception:  # noqa: BLE001, S112  it is found when the case is run to be judged
                continue
        return TIMES * (time.process_time() - start) / TYPICAL


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    start = time.perf_counter()
    total = Done(Counter(), [])
    end = options.first + options.cases
    step = min(500, -(-options.cases // options.workers))
    begins = range(options.first, end, step)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context) as pool:
        for done in pool.map(work, begins, [min(step, end - at) for at in begins]):
            total.outcomes += done.outcomes
            total.failures += done.failures
            total.slowest = max(total.slowest, done.slowest)
    for number, what in total.failures[:50]:
        print(f"case {number}: {what}")
    for outcome, count in total.outcomes.most_common():
        print(f"{count:8d}  {outcome}")
    print(f"{len(total.failures):8d}  failures")
    seconds, number = total.slowest
    print(
        f"{options.cases} cases in {time.perf_counter() - start:.0f} s; the slowest took "
        f"{seconds * 1000:.0f} ms of CPU time (case {number})"
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
