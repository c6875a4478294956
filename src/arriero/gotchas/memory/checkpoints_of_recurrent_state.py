"""Checkpoints of a hybrid model on a GPU fill the host's memory: 32 copies of its state per slot

Symptom
-------
All weights are on the GPU, but host memory climbs through a long session by 50 to 150 MiB at a
time, until the kernel kills the server. A lower `-cram` does not stop it.

Root cause
----------
Recurrent state cannot be rolled back, so the server copies all of it to the host while it reads
prompts: up to `-ctxcp` checkpoints for each slot, 32 by default. The limit is a number, not a size.
One checkpoint of a 27B model takes 149.6 MiB, whatever the context: 32 for each of four slots are
18.7 GiB.

Workaround
----------
Keep fewer checkpoints, `-ctxcp 4` to 8, or use fewer slots (`-np 1`). With `-ctxcp 0`, a prompt
that differs from the last one is read from its beginning.

Better fix
----------
A limit in bytes, as the prompt cache has.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
from arriero.base.words import Component, Kind
from arriero.gotchas.facts import Facts, bytes_of
from arriero.gotchas.memory._pools import holds, host
from arriero.gotchas.model import (
    Affects,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
    Sign,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    concepts=("checkpoints", "recurrent state", "host memory", "slots"),
    affects=Affects(flags=("-ctxcp", "-np", "-cram")),
    signs=(Sign(kinds=(Kind.STATE_GROWTH,), components=(Component.CHECKPOINTS,)),),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#25953",
            "unslothai/unsloth#11073",
            "unslothai/unsloth#10921",
        ),
        builds="b10075, about b10900",
        hardware="CUDA",
        command="defaults; ctx-checkpoints 256",
    ),
    related=("rs-alloc-slots", "checkpoints-of-windows"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not any(facts.hparams.is_recurrent) or facts.launch.params.embeddings:
        return
    plan, count = facts.plan, facts.launch.checkpoints
    size, where = bytes_of(plan, Component.CHECKPOINTS), host(plan)
    if not size or not count or where is None:
        return
    pool, free = where
    if holds(plan, pool, Component.RS) or not pool.at_start <= free < pool.at_start + size:
        return  # with the state itself on the host: rs-alloc-slots
    slots = facts.launch.params.n_seq_max
    each = size // count
    room = max(0, free - pool.margin - pool.at_start) // 2
    yield Found(
        because=f"checkpoints may reach {human(size)} = {count} × {human(each // slots)} for each"
        f" of {slots} slots; {pool.name} has {human(free)}, and the start takes"
        f" {human(pool.at_start)} of it",
        edit=(Edit(flag="-ctxcp", value=str(min(count - 1, room // each))),),
        flag="-ctxcp",
    )
