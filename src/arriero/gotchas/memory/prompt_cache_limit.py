"""The prompt cache may take 8 GiB of host memory, however little the machine has

Symptom
-------
Everything is on the GPU, but host memory grows with each new prompt until the kernel or the
container's limit kills the server (SIGKILL, exit status 137, nothing in its log). If allocations
are refused instead, the log says `failed to allocate memory for prompt cache state`, and the cache
shrinks.

Root cause
----------
When a slot gets another prompt, the server copies the state of the old one to host memory for
later, until the copies reach `-cram`. The default is 8192 MiB per server, on a machine of 8 GiB as
on one of 256. `--fit` does not count these copies. Only a failed allocation makes the cache
smaller, and Linux grants allocations that it cannot back with memory. If each prompt is new, nobody
ever uses the copies.

Workaround
----------
Set `-cram` to the MiB that the machine can spare, or `-cram 0` if prompts do not repeat.

Better fix
----------
A default that depends on the memory that is free at the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Component, Kind
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
    concepts=("prompt cache", "host memory"),
    affects=Affects(flags=("-cram",)),
    log=("failed to allocate memory for prompt cache state", "cache size limit reduced to"),
    signs=(
        Sign(kinds=(Kind.STATE_GROWTH,), components=(Component.PROMPT_CACHE,)),
        Sign(kinds=(Kind.RUNTIME_ALLOCATION,), components=(Component.PROMPT_CACHE,)),
    ),
    reporters=4,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#22629",
            "ollama/ollama#18264",
            "ollama/ollama#17351",
            "rwlove/home-ops#13936",
        ),
        builds="2026-05 to 2026-09",
        hardware="GPUs with little host memory, containers with a limit",
        command="-cram left out, or more than the machine has",
    ),
    related=("rs-alloc-slots",),
)
_STEP = 64
"""MiB; limits are rounded down to multiples of it."""


def detect(facts: Facts) -> Iterator[Found]:
    limit = facts.launch.cache_ram
    if not limit or facts.launch.params.embeddings:  # only completions are saved
        return
    plan = facts.plan
    checkpoints = bytes_of(plan, Component.CHECKPOINTS)
    where = host(plan)
    if where is None or (checkpoints and any(facts.hparams.is_recurrent)):  # rs-alloc-slots
        return
    pool, free = where
    if not bytes_of(plan, Component.PROMPT_CACHE) or not (
        pool.at_start <= free < pool.at_start + limit
    ):
        return
    room = max(0, free - pool.margin - pool.at_start) // (2 if checkpoints else 1)
    auto = "" if facts.command.has("-cram") else " (-cram is not given)"
    yield Found(
        because=f"the prompt cache may reach {human(limit)}{auto}; {pool.name} has {human(free)},"
        f" and the start takes {human(pool.at_start)} of it",
        edit=(Edit(flag="-cram", value=str(room // (_STEP * MIB) * _STEP)),),
        flag="-cram",
    )


_WIDE = Shape(
    arch="llama", name="wide-kv", layers=1, embedding=32, heads=512, heads_kv=512, head_dim=512,
    feed_forward=32,
)  # fmt: skip
"""1 MiB of KV for each token: saved prompts of tens of MiB."""
_READY = "-c 256 -np 1 -b 64 -ub 16 --no-warmup --threads-http 2"
_RUN = EngineRun(flags=_READY, above=_READY, limit=100 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="no-room",
        model=_WIDE,
        run=_RUN,
        control=replace(_RUN, flags=f"{_READY} -cram 0"),
        shows=Signature(log=r"failed to allocate memory for prompt cache state"),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
