"""A server that wakes up loads its model again, into whatever memory is free by then

Symptom
-------
After a sleep, or when a router returns to a model, the load fails although the first one worked:
`CUDA error: out of memory`, even in `cudaMemGetInfo`, before anything is allocated. Or it works but
is slower, with fewer layers on the card and a shorter context. The router does not try again.

Root cause
----------
To sleep is to unload; to wake up is a complete start. `--fit` measures again and places what fits
now, beside other programs and the router's other models. On unified memory even the first question
to the device needs memory for a driver context.

Workaround
----------
Set `-fit off` with `-ngl` and `-c`, so that the server wakes up unchanged or says that it cannot.
Or keep memory free for it (`--models-max 1` for a router, nothing else on the card), or do not let
it sleep. A supervisor must restart a router whose model does not come back.

Better fix
----------
End the least recently used model and try again.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
    Sign,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("sleep", "fit", "router"),
    affects=Affects(flags=("--sleep-idle-seconds", "--fit", "--models-max")),
    signs=(Sign(notice="memory_query_failed"),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#24372", "ggml-org/llama.cpp#23668"),
        builds="b9305, b9570",
        hardware="GB10; CUDA",
        command="--models-preset presets.ini with sleep-idle-seconds",
    ),
    related=("sleep-forgets-prompts", "router-keeps-models"),
)


def detect(facts: Facts) -> Iterator[Found]:
    seconds = facts.command.number("--sleep-idle-seconds")
    if seconds is None or seconds < 0 or not facts.launch.fit:
        return
    yield Found(
        because=f"--sleep-idle-seconds {seconds} with --fit: after a sleep fit measures again and"
        " uses what is free then",
        flag="--sleep-idle-seconds",
    )
