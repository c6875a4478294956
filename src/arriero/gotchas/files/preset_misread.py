"""The engine reads a models preset differently from what its writer meant

Symptom
-------
A model is not found although its path is right, a switch that was turned off is on, or the settings
of a section have no effect. The router starts and says nothing.

Root cause
----------
`#` and `;` begin a comment anywhere, even inside a path, quotes or JSON, and nothing escapes them.
Quotes become part of the value. Only `off`, `false`, `disabled` and `0` turn a switch off; every
other word turns it on, even `no`. If a section appears twice, only the second one counts: the first
is dropped whole.

Workaround
----------
Write values without quotes, `#` and `;`. If a value needs them, rename the file, or set the value
as an environment variable of the router: its models inherit it.

Better fix
----------
The engine could remove quotes, and refuse words that are neither true nor false.
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
