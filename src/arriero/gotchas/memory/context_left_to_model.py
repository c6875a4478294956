"""Without `-c` the server takes the model's whole training context, whatever it costs

Symptom
-------
A model that runs elsewhere does not start here: `failed to allocate buffer for kv cache`, often for
hundreds of GiB. Or it starts, and the machine runs out of memory a little later.

Root cause
----------
`-c 0`, or `--fit off` without `-c`, takes the training context from the model's file: 128 Ki tokens
or a million are common. With `--fit on` and no `-c`, the server shortens the context until
everything fits. The result is as large as possible, not as large as needed: without a GPU it may
take all of the machine's memory but 1 GiB, even what other processes hold. `-c 0` counts as a
number that the user set, so fit does not change it.

Workaround
----------
Set `-c` to the tokens that the longest prompt and its answer need.

Better fix
----------
Fit could use the free memory instead of the total.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from arriero.base.sizes import MIB, human
from arriero.base.words import Component, Kind
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts, certain
from arriero.gotchas.memory._pools import holds, known
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
    Sign,
    Signature,
)
from arriero.launch.context import PAD
from arriero.record import Edit, Plan

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("context", "KV cache", "fit"),
    affects=Affects(flags=("-c", "--fit")),
    log=("failed to allocate buffer for kv cache", "cannot meet free memory target"),
    signs=(Sign(kinds=(Kind.ALLOCATION,), components=(Component.KV,)),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#8101", "ggml-org/llama.cpp#8817"),
        builds="b3184 and about b3500",
        hardware="CPU, GPU",
        command="-c left out, by the model 163840 or 1048576 tokens",
    ),
)
_LEAST: Final = 1024
"""Tokens of a slot; a shorter context would be of no use."""


def detect(facts: Facts) -> Iterator[Found]:
    asked = facts.launch.context_asked
    if asked or (asked is None and facts.launch.context_given):
        return
    plan = facts.plan
    context = plan.context
    if context is None:
        return
    for pool, free in known(plan):
        size = holds(plan, pool, Component.KV)
        if not size or certain(plan, pool.name) <= free:
            continue
        tokens = _that_fits(facts, context.n_ctx, context.n_seq_max)
        if not tokens:  # a shorter context would not make it fit either
            return
        given = "no -c" if asked is None else "-c 0"
        whose = "--fit leaves" if asked is None and facts.launch.fit else "the model's own is"
        yield Found(
            because=f"{given}: {whose} {context.n_ctx} tokens, whose KV cache takes {human(size)};"
            f" {pool.name} has {human(free)}",
            edit=(Edit(flag="-c", value=str(tokens)),),
            flag="-c",
        )
        return


def _that_fits(facts: Facts, tokens: int, slots: int) -> int:
    """Halve the context until every pool holds it; 0 if none does."""
    tokens = 1 << (tokens - 1).bit_length()
    while tokens > max(_LEAST, PAD) * slots:
        tokens //= 2
        edit = Edit(flag="-c", value=str(tokens))
        if _fits(facts.plan_of(facts.with_edits((edit,)).command)):
            return tokens
    return 0


def _fits(plan: Plan) -> bool:
    return all(pool.at_start + pool.margin <= free for pool, free in known(plan))


_QUIET = "--no-warmup --threads-http 2"
_LONG = tiny("llama", context_train=1 << 20, name="long-trained")
"""1 KiB of KV for each token: 1 GiB for its training context."""
_SHORT = f"-c 4096 -np 1 {_QUIET}"
_SHOWS = Signature(
    kind=Kind.ALLOCATION, component=Component.KV, log=r"failed to allocate buffer for kv cache"
)
_NONE = EngineRun(flags=f"-np 1 --fit off {_QUIET}", above=_SHORT, limit=512 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="without-fit",
        model=_LONG,
        run=_NONE,
        control=replace(_NONE, flags=_SHORT),
        shows=_SHOWS,
        needs=(Needs.ADDRESS_SPACE,),
    ),
    Reproduction(
        name="zero",
        model=_LONG,
        run=replace(_NONE, flags=f"-c 0 -np 1 {_QUIET}"),
        control=replace(_NONE, flags=_SHORT),
        shows=_SHOWS,
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
