"""A section of a models preset names no model: its server becomes a second router

Symptom
-------
The model is listed and loads forever: a request for it waits and never gets an answer.

Root cause
----------
The router starts llama-server with the keys of the section. Without a model, that server is also a
router, and it never says that it is ready. A section may leave the model out only if the router has
a model of the section's name in its cache or in `--models-dir`. Keys before the first section form
a section called `default`.

Workaround
----------
Write `model = …` or `hf-repo = …` in the section. Put settings for all models under `[*]`.

Better fix
----------
The router could refuse a section for which it has no model.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Affects, Applies, Class, Found, Gotcha, Provenance, Severity

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-12-01",
    concepts=("router", "presets"),
    affects=Affects(flags=("--models-preset",)),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#27351",),
        builds="10434",
        command="[d] with ctx-size = 512 alone",
    ),
    related=("preset-refused",),
)


def detect(facts: Facts) -> Iterator[Found]:
    for mark in facts.around.marks:
        if mark.about == "model":
            yield Found(
                because=mark.text,
                applies=Applies.MAYBE,
                missing=("whether the router has a model of that name in its cache or directory",),
                severity=Severity.INFO if mark.mild else None,
                line=mark.line,
            )
