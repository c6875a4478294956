"""A router counts the models that it keeps, not their memory: the next model may not fit

Symptom
-------
One model works; switching to another fails with out of memory and status 500, and keeps failing
until the router is restarted. Each model works alone.

Root cause
----------
Without a model llama-server is a router that starts a server for each requested model. It ends the
least recently used one only when there are `--models-max` of them (4 by default, 0 means no limit).
It does not look at free memory. `models-max` under `[*]` in a preset is not the router's own flag
and has no effect there.

Workaround
----------
Set `--models-max 1` on the router's command line if only one model fits at a time.

Better fix
----------
End the least recently used model when a load fails, or keep a margin of free memory (both proposed
upstream).
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.command import ModelSource
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Affects, Applies, Class, Found, Gotcha, Provenance, Severity
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("router", "memory"),
    affects=Affects(flags=("--models-max", "--models-dir", "--models-preset")),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#25326",
            "ggml-org/llama.cpp#23668",
            "ggml-org/llama.cpp#24960",
        ),
        builds="9305 to 9775 and 2026-07",
        hardware="CUDA",
        command="--models-preset models.ini with models-max = 1 inside",
    ),
)
_DEFAULT = 4


def detect(facts: Facts) -> Iterator[Found]:
    command = facts.command
    if any(mark.about in ("preset", "model") and not mark.file for mark in facts.around.marks):
        return  # a models preset, not the router's own command
    source, _ = command.model_source()
    if source is not ModelSource.ROUTER or command.flags.get("--models-max") is None:
        return
    given = command.number("--models-max")
    most = _DEFAULT if given is None else given
    if most == 1:
        return
    auto = " (--models-max is not given)" if given is None else ""
    count = f"up to {most}" if most > 0 else "any number of"
    yield Found(
        because=f"the router keeps {count} models{auto}, however much memory they take",
        applies=Applies.MAYBE,
        missing=("the memory of the models that clients will request",),
        edit=(Edit(flag="--models-max", value="1"),) if most <= 0 else (),
        flag="--models-max",
    )
