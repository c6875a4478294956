"""Graph metadata grows with the micro-batch, but no size line shows it and fit does not count it

Symptom
-------
A hybrid model with a large `-ub` aborts with exit status 134 (SIGABRT) at
`GGML_ASSERT(ctx->mem_buffer != NULL)`, although everything that the log counts is a fraction of the
free memory. `--fit` does not help: its own dry run aborts there.

Root cause
----------
For these architectures the scheduler reserves 40 graph nodes per token of the micro-batch, for some
160, and takes host memory for all of them as one block: 1.5 GiB for `-ub 2048`. Hardly any of it is
ever written, so it costs little memory. But a limit on address space (`ulimit -v`, batch systems),
strict overcommit (`vm.overcommit_memory=2`) or a small machine refuses it.

Workaround
----------
Set a smaller `-ub`: the default of 512 takes a quarter of what 2048 takes.

Better fix
----------
Count nodes as they are built, and report a failed allocation as an error instead of an assert.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from arriero.base.sizes import MIB, human
from arriero.base.words import Component, Kind
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts, certain
from arriero.gotchas.memory._pools import host
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Needs,
    Provenance,
    Reproduction,
    Severity,
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("micro-batch", "graph", "host memory"),
    affects=Affects(flags=("-ub",), architectures=("qwen3next", "qwen35", "qwen35moe")),
    log=("GGML_ASSERT(ctx->mem_buffer != NULL) failed",),
    signs=(Sign(kinds=(Kind.ALLOCATION,), components=(Component.GRAPH,), sure=True),),
    provenance=Provenance(builds="seen on 10068 and 10434", command="-ub 2048 -b 2048"),
)
_DEFAULT: Final = 512
"""``-ub`` by default."""
_NODES: Final = {"qwen3next": 40, "qwen35": 40, "qwen35moe": 40, "kimi-k3": 160, "glm5-next": 160}
"""Nodes per token of a micro-batch (src/llama-context.cpp)."""
_NODE: Final = 30 * 2 * 336
"""Bytes for each of them in the scheduler's one block (ggml/src/ggml-backend.cpp)."""


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    arch = facts.model.arch
    tokens = min(params.n_ubatch, params.n_batch)
    if tokens <= _DEFAULT or arch not in _NODES:
        return
    plan = facts.plan
    block = _NODES[arch] * tokens * _NODE
    where = host(plan)
    if where is None or block + certain(plan, where[0].name) <= where[1]:
        return
    yield Found(
        because=f"{arch} with -ub {tokens}: {_NODES[arch] * tokens} graph nodes in one block of"
        f" {human(block)}; {where[0].name} has {human(where[1])}",
        applies=Applies.MAYBE,
        missing=("whether address space or overcommit is limited (the block is mostly unused)",),
        edit=(Edit(flag="-ub", value=str(_DEFAULT)),),
        flag="-ub",
    )


_FLAGS = "-c 4096 -np 1 --no-warmup --threads-http 2"
_RUN = EngineRun(flags=f"{_FLAGS} -ub 2048", above=_FLAGS, limit=400 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="four-times-as-wide",
        model=tiny("qwen35"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} -ub 512"),
        shows=Signature(
            kind=Kind.ALLOCATION,
            component=Component.GRAPH,
            exit_status=-signal.SIGABRT,
            log=r"GGML_ASSERT\(ctx->mem_buffer != NULL\) failed",
        ),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
