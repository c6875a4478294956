"""The way of one flag through the rooms: what of Arriero reads it while a command runs.

    python scripts/way_of_flag.py -np n_seq_max n_parallel -- check -- llama-server -m m.gguf -np 8

Before the first ``--`` stand the flag and the names that its meaning goes by in the source; behind
it a command of ``arriero``, which is run in this process. Standard output is what that command
prints and then a table: each function that was called and that names the flag (it reads it) or its
meaning (it is on the way), by room, in the order in which the command came to it, with its calls.
Run with PYTHONPATH set to the ``src`` of another checkout, it tells of that one.
"""

from __future__ import annotations

import collections
import sys
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import arriero

SOURCE = str(Path(arriero.__file__).parent)
COMMAND = str(Path(SOURCE) / "command" / "command.py")


def _named(code: CodeType) -> set[str]:
    """Names and words in the code of a function; of what is nested in it too."""
    found = {*code.co_names, *code.co_varnames}
    todo: list[Any] = [*code.co_consts]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            found.add(one)
        elif isinstance(one, (tuple, frozenset)):
            todo += one
        elif isinstance(one, CodeType):
            todo += [*one.co_consts, *one.co_names]
    return found


class Way:
    def __init__(self, flag: str, meanings: set[str]) -> None:
        self.flag, self.meanings = flag, meanings
        self.calls: collections.Counter[CodeType] = collections.Counter()
        self.reads: collections.Counter[CodeType] = collections.Counter()
        self._kinds: dict[CodeType, str] = {}

    def kind(self, code: CodeType) -> str:
        """``names`` the flag, ``carries`` its meaning, or nothing."""
        if code not in self._kinds:
            # Modules and classes have code that runs too, once: that is no call.
            inside = code.co_filename.startswith(SOURCE) and code.co_flags & CO_OPTIMIZED
            named = _named(code) if inside else set()
            carries = "carries" if named & self.meanings else ""
            self._kinds[code] = "names" if self.flag in named else carries
        return self._kinds[code]

    def watch(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if self.kind(frame.f_code):
            self.calls[frame.f_code] += 1
        if frame.f_code.co_filename == COMMAND and self.flag in frame.f_locals.values():
            caller = frame.f_back
            while caller is not None and caller.f_code.co_filename == COMMAND:
                caller = caller.f_back
            # What goes through every flag, whichever they are, asks for none.
            if caller is not None and self.kind(caller.f_code) == "names":
                self.reads[caller.f_code] += 1

    def table(self) -> str:
        rows = [
            (Path(c.co_filename).relative_to(SOURCE), c.co_qualname,
             "reads" if self.reads[c] else self.kind(c), self.reads[c] or n)
            for c, n in self.calls.items()
        ]  # fmt: skip
        lines = [f"{kind:8} {n:7}  {path} {name}" for path, name, kind, n in rows]
        rooms = {path.parts[0].removesuffix(".py") for path, *_ in rows}
        reading = [row for row in rows if row[2] == "reads"]
        total = (
            f"{len(rows)} functions in {len(rooms)} rooms; {len(reading)} of them read {self.flag}"
            f" from the command, {sum(self.reads.values())} times"
        )
        return "\n".join([*lines, total])


def main() -> int:
    at = sys.argv.index("--")
    way = Way(sys.argv[1], {*sys.argv[2:at]})
    from arriero.__main__ import main as run

    sys.argv = ["arriero", *sys.argv[at + 1 :]]
    threading.setprofile(way.watch)
    sys.setprofile(way.watch)
    try:
        run()
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.setprofile(None)
    print(way.table())
    return int(status or 0)


if __name__ == "__main__":
    sys.exit(main())
