"""An embedding server accepts inputs of one micro-batch at most: 512 tokens unless -ub says more

Symptom
-------
Status 500, `input (700 tokens) is too large to process. increase the physical batch size (current
batch size: 512)`, although the context and the model take thousands. The log says at the start
`embeddings enabled with n_batch (2048) > n_ubatch (512)` and `setting n_batch = n_ubatch = 512`.

Root cause
----------
In embedding and rerank mode the server must read a whole input in one piece, because every token
attends to every other. That piece is the micro-batch, and its default is 512 whatever `-c` says.

Workaround
----------
Set `-b` and `-ub` as large as the longest input: `-b 8192 -ub 8192`. The compute buffers grow with
it.

Better fix
----------
Use the context as the micro-batch in this mode, or split the input if the model is causal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import TrialOutcome
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
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("embeddings", "micro-batch", "batch"),
    affects=Affects(flags=("--embedding", "--rerank", "-ub", "-b")),
    log=(
        "embeddings enabled with n_batch",
        "is too large to process. increase the physical batch size",
    ),
    signs=(Sign(text=r"increase the physical batch size", sure=True),),
    reporters=4,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#12295",
            "ggml-org/llama.cpp#12836",
            "lemonade-sdk/lemonade#3591",
            "containers/ramalama#2852",
        ),
        builds="2025-03 to 2026-09",
        hardware="CUDA, ROCm, Vulkan",
        command="--embeddings -c 8192",
    ),
)
_USUAL = 8192
"""Tokens; the edit raises the micro-batch at most to this, the usual training context."""


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    limit = params.n_batch  # already reduced to the micro-batch
    if not params.embeddings or params.n_ubatch > limit:
        return
    slots = 1 if params.kv_unified else params.n_seq_max
    context = params.n_ctx // slots or facts.model.n_ctx_train or 0
    trained = facts.header_or_none and facts.model.n_ctx_train
    longest = min(context, trained or context)
    if longest <= limit:
        return
    given = "" if facts.launch.batch.ubatch_given else " (-ub is not given)"
    more = (Edit(flag="-b", value=str(longest)), Edit(flag="-ub", value=str(longest)))
    fits = longest <= _USUAL and facts.header_or_none is not None and facts.has_room(more)
    yield Found(
        because=f"inputs of more than {limit} tokens{given} are refused; a slot holds {longest}",
        edit=more if fits else (),
        flag="-ub",
    )


_RUN = EngineRun(flags="-c 2048 -np 1 --embedding --pooling mean --no-warmup", shared=600)

REPRODUCTIONS = (
    Reproduction(
        name="embedding",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_RUN.flags} -b 2048 -ub 2048"),
        shows=Signature(
            outcome=TrialOutcome.READY, log=r"input \(\d+ tokens\) is too large to process"
        ),
    ),
)
