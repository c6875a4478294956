"""Lines that begin with a flag belong to no command: the server starts without them

Symptom
-------
Flags have no effect, and the shell says `--flag: command not found` (127) once the server has
ended, or at once where it runs in the background.

Root cause
----------
A command goes on in the next line only behind a backslash that is the very last character. One
that is missing, one with a space behind it, or a line of comment in between ends the command.

Workaround
----------
A backslash at the end of each line but the last, and no comments among them.

Better fix
----------
`shellcheck` finds such lines in a script.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Class, Found, Gotcha, Provenance, Severity

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.WARNING,
    updated="2026-12-01",
    concepts=("scripts",),
    log=("command not found",),
    provenance=Provenance(
        builds="any: the shell's doing",
        command="docker run … image with lines that lack a backslash",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    for mark in facts.around.marks:
        if mark.about == "cut":
            yield Found(because=f"{mark.text}; checked as if it were there", line=mark.line)
