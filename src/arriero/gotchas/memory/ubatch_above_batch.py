"""A micro-batch larger than the batch is silently reduced to it

Symptom
-------
With `-ub 4096` and a small `-b`, or none, compute buffers and speed do not change. In embedding or
rerank mode, an input of 3000 tokens fails with status 500, `input (3000 tokens) is too large to
process. increase the physical batch size (current batch size: 2048)`, although the command says
`-ub 4096`.

Root cause
----------
A batch is cut into micro-batches, so a micro-batch cannot be larger than the batch: 2048 tokens by
default (`-b`). llama.cpp takes the smaller of the two and logs only the result, at a verbosity that
is off by default. An embedding server must read each input in one micro-batch.

Workaround
----------
Set `-b` together with `-ub`, at least as large.

Better fix
----------
Warn when the micro-batch is reduced, or raise the batch when only `-ub` is given.
"""

from __future__ import annotations

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
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("batch", "micro-batch", "embeddings"),
    affects=Affects(flags=("-ub", "-b", "--embedding", "--rerank")),
    log=("is too large to process. increase the physical batch size",),
    provenance=Provenance(builds="seen on 10434", command="--embedding -ub 4096"),
)


def detect(facts: Facts) -> Iterator[Found]:
    batch = facts.launch.batch
    ubatch, tokens = batch.ubatch, batch.tokens
    if not batch.ubatch_given or ubatch <= tokens:
        return
    given = f"-b {tokens}" if batch.given else f"a batch of {tokens} (-b is not given)"
    told = f"-ub {ubatch} and {given}: micro-batches have {tokens} tokens"
    embedding = facts.launch.params.embeddings
    yield Found(
        because=f"{told}, and longer inputs are refused" if embedding else told,
        severity=Severity.WARNING if embedding else None,
        edit=(Edit(flag="-b", value=str(ubatch)),),
        flag="-ub",
    )


_RUN = EngineRun(flags="-c 4096 -np 1 -b 256 -ub 1024 --no-warmup")
_INPUTS = EngineRun(flags="-c 4096 -np 1 --embedding --pooling mean -ub 4096 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="small-batch",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 4096 -np 1 -b 1024 -ub 1024 --no-warmup"),
        shows=Signature(effective={"n_ubatch": 256}),
    ),
    Reproduction(
        name="embedding",
        model=tiny("llama"),
        run=_INPUTS,
        control=replace(_INPUTS, flags=f"{_INPUTS.flags} -b 4096"),
        shows=Signature(effective={"n_ubatch": 2048}),
    ),
)
