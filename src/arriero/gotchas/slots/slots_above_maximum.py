"""The engine refuses more than 256 slots

Symptom
-------
`n_seq_max must be <= 256`, then `failed to create_context with model` and `exiting due to model
loading error`, as if the file were bad.

Root cause
----------
Each cell of a KV cache stores the set of sequences that use it. The size of this set is fixed when
llama.cpp is compiled (`LLAMA_MAX_SEQ`): 256, and 64 in older builds.

Workaround
----------
Use at most 256 slots. Further requests wait for a free one.

Better fix
----------
The server could refuse the flag itself, before it opens the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

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
    kind=Class.FRAMEWORK,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("slots",),
    affects=Affects(flags=("-np",)),
    log=("n_seq_max must be <= 256",),
    signs=(Sign(text=r"n_seq_max must be|n_seq_max = \d+ > \d+", sure=True),),
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#15916",), builds="seen on 10434", command="-np 300"
    ),
)
_MOST: Final = 256
"""LLAMA_MAX_SEQ (src/llama-cparams.h)."""


def detect(facts: Facts) -> Iterator[Found]:
    slots = facts.launch.params.n_seq_max
    if slots > _MOST:
        yield Found(
            because=f"-np {slots}, but a context holds at most {_MOST} sequences",
            edit=(Edit(flag="-np", value=str(_MOST)),),
            flag="-np",
        )


_RUN = EngineRun(flags="-c 1024 -np 300 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="three-hundred",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -np 256 --no-warmup"),
        shows=Signature(log=r"n_seq_max must be <= 256"),
    ),
)
