"""A server that wakes up loads its model again, into whatever memory is left by then

Symptom
-------
After a sleep, or when a router comes back to a model, the load fails where the first one had
worked: `CUDA error: out of memory`, even in `cudaMemGetInfo`, before anything is allocated. Or it
works and is slower, with fewer layers on the card and a shorter context. The router does not try
again.

Root cause
----------
To sleep is to unload; to wake is a whole start. `--fit` measures again, and places what fits now,
with other programs and other models of the router in the memory. On unified memory even the first
question to the device needs memory for a context of the driver's.

Workaround
----------
`-fit off` with `-ngl` and `-c` given, so that it wakes as it was or says that it cannot; keep
memory free for it (`--models-max 1` for a router, nothing else on the card); or no sleep. Something
must restart a router whose child does not come back.

Better fix
----------
Try again after ending the least recently used model.
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
        because=f"--sleep-idle-seconds {seconds} with --fit: after a sleep it measures again, and"
        " takes what is left then",
        flag="--sleep-idle-seconds",
    )
