"""Files of commands that are broken: each must give a check or one clear error.

    python bench/fuzz_files.py [--cases 10000] [--first 0] [--workers 2]

Every case is made from its number alone: a file of the seeds in tests/, in which bytes, lines and
words were changed, doubled, cut or replaced by what a shell, YAML or INI reads as more than text.
A case fails if it raises anything but an ArrieroError, if what it says cannot be shown, or if it
takes many times what a typical case takes.
"""

from __future__ import annotations

import random
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import _cases
from _cases import WrongError

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


def work(first: int, count: int) -> _cases.Done:
    """Run so many cases in one process."""
    with tempfile.TemporaryDirectory() as name:

        def in_place(number: int) -> str:
            return run(number, Path(name))

        return _cases.work(int, in_place, range(first, first + count), limit_of_time())


@cache
def limit_of_time() -> float:
    """Seconds of CPU time that a case may take here."""
    with tempfile.TemporaryDirectory() as name:
        return _cases.limit_of_time(lambda n: run(n, Path(name)), typical=TYPICAL, times=TIMES)


def main() -> int:
    options = _cases.parser(__doc__, 10_000).parse_args()
    numbers = range(options.first, options.first + options.cases)
    done = _cases.run_all(work, numbers, options.workers, most=500)
    return 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
