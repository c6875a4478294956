"""Drafting multiplies recurrent state: one more copy for each token that may be drafted

Symptom
-------
With `--spec-type draft-mtp` a hybrid model takes several times the recurrent state that it took
before: with six drafted tokens, 149.6 MiB become 1047.4 for each slot. The log shows `n_rs_seq =
6`.

Root cause
----------
Recurrent state cannot be rolled back, but rejected tokens must be. So the engine keeps the state
after each drafted token: `1 + --spec-draft-n-max` rows in f32 for each slot. The context length and
the cache types do not change this.

Workaround
----------
Set `--spec-draft-n-max 2` or 3: later tokens are rarely accepted. Or use fewer slots (`-np 1`).

Better fix
----------
Copies in fewer bits, or one copy for several slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import human
from arriero.base.words import Component
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts, bytes_of
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
    severity=Severity.INFO,
    concepts=("speculative decoding", "recurrent state", "slots"),
    affects=Affects(flags=("--spec-type", "--spec-draft-n-max", "-np")),
    signs=(Sign(notice="rs_planes", sure=True),),
    reporters=3,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#26499", "ggml-org/llama.cpp#22673"),
        builds="since about b9130",
        hardware="any",
        command="--spec-type draft-mtp --spec-draft-n-max 6",
    ),
    related=("rs-alloc-slots", "draft-context-memory"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.launch.params.n_rs_seq or not any(facts.hparams.is_recurrent):
        return
    context = facts.plan.context
    planes = 0 if context is None else context.n_rs_seq
    if not planes:
        return
    size = bytes_of(facts.plan, Component.RS)
    yield Found(
        because=f"{planes} drafted tokens need {planes} more copies of the recurrent state:"
        f" {human(size)} instead of {human(size // (1 + planes))}",
        edit=_FEWER if planes > _FEW and not facts.has_room(()) else (),
        flag="--spec-draft-n-max",
    )


_FEW = 2
_FEWER = (Edit(flag="--spec-draft-n-max", value=str(_FEW)),)
_FLAGS = "-c 1024 -np 1 --no-warmup"
_RUN = EngineRun(flags=f"{_FLAGS} --spec-type draft-mtp --spec-draft-n-max 6")

REPRODUCTIONS = (
    Reproduction(
        name="six-tokens",
        model=tiny("qwen35", mtp=1, name="tiny-mtp"),
        run=_RUN,
        control=replace(_RUN, flags=_FLAGS),
        shows=Signature(effective={"n_rs_seq": 6}),
    ),
)
