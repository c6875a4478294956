"""The router cannot read its models preset and does not start

Symptom
-------
`failed to initialize router models: failed to parse server config file`, or `option '…' not
recognized in preset '…'`, and exit status 1. The message names no line.

Root cause
----------
The preset has its own grammar, which is stricter than that of other INI files. Only comments may be
indented, a key and its value are separated by `=`, and a byte order mark is an error. Keys are
flags without their dashes, letter by letter: flags may be written with underscores, keys may not.

Workaround
----------
Write the line as the engine reads it: `key = value`, starting in the first column.

Better fix
----------
The engine could name the line, and accept underscores in keys as it does in flags.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Affects, Class, Found, Gotcha, Provenance, Severity

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-12-01",
    concepts=("router", "presets"),
    affects=Affects(flags=("--models-preset",)),
    log=(
        "failed to initialize router models: failed to parse server config file",
        "not recognized in preset",
    ),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434", command="--models-preset models.ini"
    ),
    related=("preset-misread",),
)


def detect(facts: Facts) -> Iterator[Found]:
    for mark in facts.around.marks:
        if mark.about == "preset" and mark.file:
            told = f"{mark.file}:{mark.line}: {mark.text}"
            yield Found(because=told, flag="--models-preset")
        elif mark.about == "preset":
            yield Found(because=mark.text, line=mark.line)
