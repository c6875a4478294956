"""A models preset says something else to the engine than to its reader

Symptom
-------
A model is not found though its path is right, a switch that was turned off is on, settings of a
section have no effect. The router starts and says nothing.

Root cause
----------
`#` and `;` begin a comment anywhere, in the middle of a path, of quotes or of JSON too, and nothing
escapes them. Quotes are part of the value. A switch is turned off by `off`, `false`, `disabled` and
`0` alone; every other word turns it on, `no` included. A section that is there twice counts as its
second half: the first is dropped whole.

Workaround
----------
Values without quotes, `#` and `;`. Rename the file, or give what needs them as a variable of the
router: models inherit its environment.

Better fix
----------
The engine could take quotes off, and refuse words that are no truth.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Affects, Class, Found, Gotcha, Provenance, Severity

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.WARNING,
    updated="2026-12-01",
    concepts=("router", "presets"),
    affects=Affects(flags=("--models-preset",)),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434", command='model = "/models/a b.gguf"'
    ),
    related=("preset-refused",),
)


def detect(facts: Facts) -> Iterator[Found]:
    for mark in facts.around.marks:
        if mark.about == "misread":
            yield Found(because=mark.text, line=mark.line)
