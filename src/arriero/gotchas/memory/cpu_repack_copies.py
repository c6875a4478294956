"""The CPU backend copies quantised weights into another layout and keeps the mapped file as well

Symptom
-------
A model that just fits, or a larger one that used to be read from disk as needed, fails with
`alloc_tensor_range: failed to allocate CPU_REPACK buffer of size ...`, or with the next buffer
after it. If it starts, the process holds nearly twice the size of the file, and the log shows
`CPU_Mapped` and `CPU_REPACK` for the same weights.

Root cause
----------
For some types (q4_0, q4_K, iq4_nl and others; the processor decides which) the CPU backend has
kernels that need interleaved rows. At the load it rearranges such matrices in memory of its own.
The whole file stays mapped, so its address space is taken too. Unlike mapped pages, the copy is not
shared with other processes, and the kernel cannot drop it when memory is short.

Workaround
----------
Use `-nr` (`--no-repack`) to compute with the mapped file itself; prompts are then read more slowly.
If memory holds the model once, use `--no-mmap`: it keeps the fast layout and makes only the copy.

Better fix
----------
Unmap what was copied, and keep the file's layout when the copy would not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import MIB, human
from arriero.base.words import Kind, TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
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
    kind=Class.BACKEND,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("weights", "host memory", "mapping"),
    affects=Affects(backends=("CPU",), flags=("--repack",)),
    log=("CPU_REPACK model buffer size", "failed to allocate CPU_REPACK buffer"),
    signs=(Sign(kinds=(Kind.ALLOCATION,), device="CPU_REPACK", sure=True),),
    reporters=4,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#12149",
            "ggml-org/llama.cpp#16761",
            "ggml-org/llama.cpp#19578",
            "ggml-org/llama.cpp#23603",
            "LostRuins/koboldcpp#2207",
        ),
        builds="b4792 to b9284",
        hardware="x86 and Arm processors, models of q4_0, q4_K and iq4_nl",
        command="nothing but -m",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not (facts.launch.params.use_extra_bufts and facts.launch.mmap):
        return
    plan = facts.plan
    from arriero.machine.host import ULIMIT
    from arriero.memory.placement import MAPPED, REPACKABLE, REPACKED

    copied = sum(b.bytes or 0 for b in plan.buffers if b.device == REPACKED)
    where = host(plan)
    if not copied or where is None:
        return
    pool, free = where
    kept = pool.at_start - sum(b.bytes or 0 for b in plan.buffers if b.device == MAPPED)
    stays = kept - copied <= free < kept
    if not stays and not pool.at_start - copied <= free < pool.at_start:
        return
    types = sorted({t.type for t in facts.header.tensors} & REPACKABLE)
    yield Found(
        because=f"weights of {', '.join(types)}: a copy of up to {human(copied)} beside the mapped"
        f" file; {pool.name} has {human(free)}, and the start needs"
        f" {human(pool.at_start - copied)} without the copy",
        applies=Applies.MAYBE,
        missing=("which types this processor rearranges (`arriero plan` asks the engine)",),
        edit=(Edit(flag="--repack", value="off"),),
        # the kernel can drop pages of the file for the copy, unless address space is short
        severity=None if stays or pool.limited_by == ULIMIT else Severity.INFO,
    )


_FLAGS = "-c 512 -np 1 -ub 32 --no-warmup --threads-http 2"
_RUN = EngineRun(flags=_FLAGS, above=f"{_FLAGS} --no-repack", limit=32 * MIB)

REPRODUCTIONS = (
    Reproduction(
        name="mapped-and-copied",
        model=tiny(
            "llama", tensor_type="q4_K_M", embedding=1024, heads=8, heads_kv=8, head_dim=128,
            feed_forward=16384, name="wide-feed-forward-q4",
        ),
        weights="zeros",
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} --no-repack"),
        shows=Signature(
            outcome=TrialOutcome.FAILED, log=r"failed to allocate CPU_REPACK buffer of size"
        ),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)  # fmt: skip
