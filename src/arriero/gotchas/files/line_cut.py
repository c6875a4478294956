"""Lines that begin with a flag are not part of the command: the server starts without them

Symptom
-------
Flags have no effect. The shell says `--flag: command not found` (127) once the server has ended, or
at once if the server runs in the background.

Root cause
----------
A command continues on the next line only after a backslash that is the very last character of its
line. A missing backslash, a space after it, or a comment line in between ends the command.

Workaround
----------
End every line except the last with a backslash, and put no comments between the lines.

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
