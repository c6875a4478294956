"""Recurrent state is allocated once per slot, whatever the context

Symptom
-------
A hybrid or recurrent model does not start: `failed to allocate buffer for rs cache`, after weights
and KV cache were placed. The last errors of the log (`failed to create_context`, `exiting due to
model loading error`) sound as if the file were bad. With fewer slots the server starts, but then
host memory climbs by tens of MiB with every request.

Root cause
----------
Recurrent state (RS) is one row of f32 per slot for each recurrent layer, tens of MiB in a large
model. Its size depends only on the number of slots: neither `-c` nor a quantised KV cache shrinks
it. Without `-np` the server takes 4 slots. Speculative decoding with the model's own NextN layers
keeps 1 + `--spec-draft-n-max` planes of it per slot. And since such state cannot be rolled back,
the server saves copies of it as context checkpoints while it reads prompts, up to 32 per slot. They
are in host memory; no size line shows them and `--fit` does not count them.

Workaround
----------
Use fewer slots: `-np 1` if one client is served at a time. If the server starts but its memory
climbs, limit the checkpoints with `-ctxcp` and the prompt cache with `-cram`.

Better fix
----------
Count RS and checkpoints before the start (`arriero plan`). llama.cpp could limit checkpoints in
bytes, as it does for the prompt cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human, mib
from arriero.base.words import Component, Kind
from arriero.gguf.presets import LADDER_HYBRID, LADDER_RECURRENT
from arriero.gotchas.facts import Facts, bytes_of, certain, is_in
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
    edits_of,
)
from arriero.launch import edits
from arriero.record import Edit, Plan, PlanPool

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("slots", "recurrent state", "checkpoints", "speculative decoding"),
    affects=Affects(flags=("-np", "--spec-type", "--spec-draft-n-max", "-ctxcp")),
    log=("failed to allocate buffer for rs cache", "RS buffer size"),
    signs=(Sign(kinds=(Kind.ALLOCATION,), components=(Component.RS,), sure=True),),
    reporters=4,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#22673",
            "ggml-org/llama.cpp#28813",
            "unslothai/unsloth#11073",
        ),
        builds="about b8800 to b10930",
        hardware="8 GB to 24 GB cards, CUDA and HIP",
        command="a hybrid model (qwen35, qwen3next), -np left out or above 1",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    hparams = facts.hparams
    if not any(hparams.is_recurrent):
        return
    plan = facts.plan
    for pool in plan.pools:
        if pool.free is None or not pool.usable or not _rs_in(plan, pool):
            continue
        surely = certain(plan, pool.name)
        told = f"{_rs(facts, plan)}; {pool.name} has {human(pool.free)}"
        if max(surely, pool.at_start) > pool.free:
            yes = surely > pool.free
            yield Found(
                because=told,
                applies=Applies.YES if yes else Applies.MAYBE,
                missing=()
                if yes
                else ("the compute buffer, which is only a bound without the engine",),
                edit=_fewer_slots(facts, plan),
                flag="-np",
            )
        elif pool.planned > pool.free and (size := bytes_of(plan, Component.CHECKPOINTS)):
            yield Found(
                because=f"{told}, and the start takes {human(pool.at_start)} of it; checkpoints may"
                f" reach {human(size)} (-ctxcp {facts.launch.checkpoints} per slot)",
                severity=Severity.WARNING,
                edit=_bounded(facts, plan, pool),
                flag="-ctxcp",
            )


def _rs_in(plan: Plan, pool: PlanPool) -> bool:
    return any(
        b.component is Component.RS and is_in(b.device, plan, pool.name) for b in plan.buffers
    )


def _rs(facts: Facts, plan: Plan) -> str:
    """``RS 4020.00 MiB = 64 slots × 62.81 MiB``, and where those numbers come from."""
    size = bytes_of(plan, Component.RS)
    context = plan.context
    if context is None:
        return f"RS {mib(size)} MiB"
    planes = 1 + context.n_rs_seq
    each = size // (context.n_seq_max * planes)
    slots = "slot" if context.n_seq_max == 1 else "slots"
    told = f"RS {mib(size)} MiB = {context.n_seq_max} {slots} × {mib(each)} MiB"
    if planes > 1:
        told += f" × {planes} planes (to roll back drafted tokens)"
    if not facts.launch.slots.given:
        told += " (-np is not given)"
    return told


def _fewer_slots(facts: Facts, plan: Plan) -> tuple[Edit, ...]:
    """Halve the slots until every pool holds them at the start."""
    slots = facts.launch.params.n_seq_max
    found: tuple[Edit, ...] = ()
    while slots > 1:
        slots //= 2
        found = edits_of(edits.slots(facts.command, slots))
        changed = facts.plan_of(facts.with_edits(found).command)
        if all(p.free is None or p.at_start + p.margin <= p.free for p in changed.pools):
            break
    return found


def _bounded(facts: Facts, plan: Plan, pool: PlanPool) -> tuple[Edit, ...]:
    """Half of the free memory for checkpoints, the rest for saved prompts, in steps of 64 MiB."""
    room = max(0, (pool.free or 0) - pool.margin - pool.at_start)
    count = facts.launch.checkpoints
    each = bytes_of(plan, Component.CHECKPOINTS) // max(1, count)
    kept = min(count, room // 2 // each) if each else count
    cache = facts.launch.cache_ram
    left = (room - kept * each) // (64 * MIB) * 64
    settings: dict[str, str | None] = {}
    if kept < count:
        settings["-ctxcp"] = str(kept)
    if cache is None or cache > left * MIB:
        settings["-cram"] = str(left)
    return edits_of(settings)


_RUN = EngineRun(flags="-c 4096 -np 64 --no-warmup --threads-http 2", limit=3584 * MIB)

_SHOWS = Signature(
    kind=Kind.ALLOCATION, component=Component.RS, log=r"failed to allocate buffer for rs cache"
)
_QUIET = "--no-warmup --threads-http 2 -cram 0 -ctxcp 0"
_AUTO = EngineRun(flags=f"-c 1024 {_QUIET}", above=f"-c 1024 -np 1 {_QUIET}", limit=256 * MIB)
_PLANES = EngineRun(
    flags=f"-c 4096 -np 8 --spec-type draft-mtp {_QUIET}",
    above=f"-c 4096 -np 8 {_QUIET}",
    limit=512 * MIB,
)

REPRODUCTIONS = (
    Reproduction(
        name="slots",
        model=LADDER_HYBRID,
        run=_RUN,
        control=replace(_RUN, flags="-c 4096 -np 8 --no-warmup --threads-http 2 -cram 0 -ctxcp 0"),
        shows=_SHOWS,
        needs=(Needs.ADDRESS_SPACE,),
    ),
    Reproduction(
        name="slots-left-to-the-server",
        model=replace(LADDER_RECURRENT, layers=48, name="deep-recurrent"),
        weights="zeros",
        run=_AUTO,
        control=replace(_AUTO, flags=f"-c 1024 -np 1 {_QUIET}"),
        shows=_SHOWS,
        needs=(Needs.ADDRESS_SPACE,),
    ),
    Reproduction(
        name="planes-for-drafts",
        model=replace(LADDER_HYBRID, mtp=1, name="ladder-mtp"),
        weights="zeros",
        run=_PLANES,
        control=replace(_PLANES, flags=f"-c 4096 -np 8 {_QUIET}"),
        shows=_SHOWS,
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
