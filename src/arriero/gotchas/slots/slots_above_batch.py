"""More slots than the batch has tokens: the server aborts before it is ready

Symptom
-------
`GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed` and exit status 134 (SIGABRT) while the
context is made, often with a small `-b` that was meant to save memory.

Root cause
----------
Each slot that generates puts one token into a batch, and each of these tokens needs an output row.
The server reserves at most `-b` rows, but the worst case for which the context is built needs one
row per slot.

Workaround
----------
Make the batch at least as large as the number of slots: `-b` is the logical batch and costs next to
nothing. To save memory lower `-ub` instead: compute buffers grow with it.

Better fix
----------
The server could raise the batch to the number of slots, or refuse the two flags with a message.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Severity,
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("slots", "batch"),
    affects=Affects(flags=("-np", "-b")),
    log=("GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max) failed",),
    signs=(Sign(text=r"n_outputs_max <= cparams\.n_outputs_max", sure=True),),
    provenance=Provenance(builds="seen on 10068 and 10434", command="-np 4 -b 2"),
)


def detect(facts: Facts) -> Iterator[Found]:
    params, batch = facts.launch.params, facts.launch.batch
    if params.embeddings or not batch.given or not 0 < batch.tokens < params.n_seq_max:
        return
    auto = "" if facts.launch.slots.given else " (-np is not given)"
    yield Found(
        because=f"{params.n_seq_max} slots{auto} and -b {params.n_batch}: a batch cannot hold one"
        " token per slot",
        edit=(Edit(flag="-b", value=str(max(32, params.n_seq_max))),),
        flag="-b",
    )


_RUN = EngineRun(flags="-c 1024 -np 4 -b 2 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="four",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -np 4 -b 32 --no-warmup"),
        shows=Signature(
            exit_status=-signal.SIGABRT, log=r"GGML_ASSERT\(n_outputs_max <= cparams\.n_outputs_max"
        ),
    ),
)
