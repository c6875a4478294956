"""A server that went to sleep has lost every prompt: the next request reads everything again

Symptom
-------
With `--sleep-idle-seconds`, the first request after a pause takes as long as a fresh start: the
model is loaded again and the whole prompt is read (`cache_n` is 0), however much of it was cached.

Root cause
----------
To sleep, the server unloads the model and frees its contexts. The KV cache, recurrent state, saved
prompts and checkpoints are lost; nothing is saved before.

Workaround
----------
Set a time longer than the usual pause between two turns, or no sleep if nothing else needs the
memory. The client can save slots that must survive to files (`--slot-save-path`).

Better fix
----------
Keep the saved prompts in host memory during a sleep; they do not need the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Affects, Class, Found, Gotcha, Provenance, Severity

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("prompt cache", "sleep"),
    affects=Affects(flags=("--sleep-idle-seconds",)),
    provenance=Provenance(
        builds="seen on 10434: after a sleep 300 of 300 tokens were read again",
        hardware="CPU",
        command="--sleep-idle-seconds 2",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    seconds = facts.command.number("--sleep-idle-seconds")
    if seconds is None or seconds < 0:
        return
    yield Found(
        because=f"--sleep-idle-seconds {seconds}: after a pause of {seconds} s every prompt is read"
        " again from its start",
        flag="--sleep-idle-seconds",
    )
