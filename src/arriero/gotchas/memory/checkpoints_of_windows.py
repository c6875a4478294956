"""Checkpoints of a sliding-window model fill host memory: up to 32 windows per slot

Symptom
-------
Everything is on the GPU, but host memory climbs by hundreds of MiB per request until a request
fails with `std::bad_alloc`, the server aborts, or the kernel kills it. A lower `-cram` does not
stop it.

Root cause
----------
A sliding-window cache cannot go back to tokens that have left the window. So while the server reads
a prompt, it copies the windows of all such layers as context checkpoints, at least once per prompt:
up to `-ctxcp` for each slot, 32 by default. The limit is a number, not a size. Checkpoints are in
host memory; no size line shows them and `--fit` does not count them. A prompt that is saved in the
prompt cache takes copies of its checkpoints along.

Workaround
----------
Keep fewer checkpoints (`-ctxcp`) or use fewer slots. `-ctxcp 0` turns them off; then a slot reads a
whole prompt again if only its beginning is the same as before.

Better fix
----------
A limit in bytes, as the prompt cache has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Component, Kind, TrialOutcome
from arriero.gguf import Shape
from arriero.gotchas.facts import Facts, bytes_of
from arriero.gotchas.memory._pools import host
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
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("checkpoints", "sliding window", "host memory", "slots"),
    affects=Affects(flags=("-ctxcp", "-np", "-cram")),
    log=("created context checkpoint", "std::bad_alloc"),
    signs=(Sign(kinds=(Kind.STATE_GROWTH,), components=(Component.CHECKPOINTS,)),),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#21690",
            "ggml-org/llama.cpp#24265",
            "ollama/ollama#16744",
        ),
        builds="about b8700 to b9547",
        hardware="any",
        command="Gemma 3 and 4, -ctxcp left out or above 0",
    ),
    related=("rs-alloc-slots", "prompt-cache-limit"),
)


def detect(facts: Facts) -> Iterator[Found]:
    h = facts.hparams
    if not any(h.is_swa) or any(h.is_recurrent):  # those with recurrent state: rs-alloc-slots
        return
    plan, count = facts.plan, facts.launch.checkpoints
    size = bytes_of(plan, Component.CHECKPOINTS)
    where = host(plan)
    if not size or not count or where is None or facts.launch.params.embeddings:
        return
    pool, free = where
    if pool.at_start + size <= free or pool.at_start > free:
        return
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


_WIDE = Shape(
    arch="gemma3", name="wide-swa", layers=4, attention_every=4, window=256, embedding=32,
    heads=256, heads_kv=256, head_dim=256, feed_forward=32,
)  # fmt: skip
"""1.5 MiB of window in f32 for each token: a checkpoint of 18 MiB from a prompt of 16."""
_READY = "-c 512 -np 4 -kvu -b 64 -ub 16 -ctk f32 -ctv f32 --no-warmup --threads-http 2 -cram 0"
_RUN = EngineRun(flags=_READY, above=_READY, limit=56 * MIB)
"""Room for three of four. What fails varies: the copy itself, or the stack of a thread."""

REPRODUCTIONS = (
    Reproduction(
        name="four-slots",
        model=_WIDE,
        weights="zeros",
        run=_RUN,
        control=replace(_RUN, flags=f"{_READY} -ctxcp 0"),
        shows=Signature(outcome=TrialOutcome.READY, log=r"created context checkpoint \d"),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
