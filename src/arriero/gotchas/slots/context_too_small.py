"""A context or batch of one token ends the server during its warm-up

Symptom
-------
`GGML_ASSERT(n_tokens_all <= cparams.n_batch) failed` and exit status 134 (SIGABRT) before the
server listens.

Root cause
----------
A batch is never longer than the context, so `-c 1` makes a batch of one token. The warm-up reads
two tokens, the beginning and the end of a text, in one batch.

Workaround
----------
Set `-c 256` or more: the server rounds a context up to 256 tokens anyway. Set `-b` to at least 32.

Better fix
----------
Refuse so small a value when the flags are read.
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
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.ERROR,
    concepts=("context", "batch", "warm-up"),
    affects=Affects(flags=("-c", "-b")),
    signs=(Sign(text=r"n_tokens_all <= cparams\.n_batch", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#24098",), builds="b9272", hardware="CPU", command="--ctx-size 1"
    ),
    related=("slots-above-batch",),
)


def detect(facts: Facts) -> Iterator[Found]:
    launch = facts.launch
    if not launch.warmup or launch.params.embeddings:
        return
    small = "-c" if launch.context_asked == 1 else "-b" if launch.batch.tokens == 1 else None
    if small is not None:
        least = "256" if small == "-c" else "32"
        yield Found(
            because=f"{small} 1: the warm-up needs a batch of two tokens, but a batch holds one",
            edit=(Edit(flag=small, value=least),),
            flag=small,
        )


_RUN = EngineRun(flags="-c 1 -np 1")

REPRODUCTIONS = (
    Reproduction(
        name="one-token",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 256 -np 1"),
        shows=Signature(outcome=TrialOutcome.FAILED, log=r"n_tokens_all <= cparams\.n_batch"),
    ),
)
