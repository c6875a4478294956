"""`--swa-full` gives sliding-window layers a cache for the whole context

Symptom
-------
A model with a sliding window needs several times the KV cache that it should: `using full-size SWA
cache`, then `failed to allocate buffer for kv cache`.

Root cause
----------
A layer with a window of 1024 tokens needs a cache for only these tokens and one micro-batch.
`--swa-full` makes its cache as long as the context, so that a slot can go back to any earlier token
of its prompt. Most layers of such models have a window, so nearly the whole cache grows. Programs
that use llama.cpp's API get it unless they turn it off.

Workaround
----------
Leave the flag out: the server then goes back to context checkpoints (`-ctxcp`), each of which is
one window in host memory.

Better fix
----------
None: this is what the flag is for. A plan shows the cost before the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Component, Kind
from arriero.gguf.presets import LADDER_SWA
from arriero.gotchas.facts import Facts, bytes_of, certain
from arriero.gotchas.memory._pools import known
from arriero.gotchas.model import (
    Affects,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Needs,
    Provenance,
    Reproduction,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("sliding window", "KV cache"),
    affects=Affects(flags=("--swa-full",)),
    log=("using full-size SWA cache",),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#14123", "ggml-org/llama.cpp#13194"),
        builds="b5630",
        hardware="CUDA",
        command="-c 31000 -fa --swa-full",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.launch.params.swa_full or not any(facts.hparams.is_swa):
        return
    edit = (Edit(flag="--swa-full"),)
    plan, spared = facts.plan, facts.plan_of(facts.with_edits(edit).command)
    for pool, free in known(plan):
        if certain(spared, pool.name) <= free < certain(plan, pool.name):
            more, less = bytes_of(plan, Component.KV), bytes_of(spared, Component.KV)
            yield Found(
                because=f"--swa-full: KV cache of {human(more)} instead of {human(less)};"
                f" {pool.name} has {human(free)}",
                edit=edit,
                flag="--swa-full",
            )
            return


_QUIET = "--no-warmup --threads-http 2 -ctxcp 0 -cram 0"
_FLAGS = f"-c 8192 -np 1 -ub 128 {_QUIET}"
_RUN = EngineRun(flags=f"{_FLAGS} --swa-full", above=_FLAGS, limit=256 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="six-layers",
        model=replace(LADDER_SWA, layers=6, name="short-swa"),
        weights="zeros",
        run=_RUN,
        control=replace(_RUN, flags=_FLAGS),
        shows=Signature(
            kind=Kind.ALLOCATION,
            component=Component.KV,
            log=r"failed to allocate buffer for kv cache",
        ),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
