"""Quantised weights on the CPU are copied into a layout of its own, beside the mapped file

Symptom
-------
A model that just fits, or one larger than memory that used to be read from disk as needed, fails
with `alloc_tensor_range: failed to allocate CPU_REPACK buffer of size ...`, or with the next buffer
after it. Where it starts, the process holds nearly twice the size of the file, and the log has
`CPU_Mapped` and `CPU_REPACK` for the same weights.

Root cause
----------
For some types (q4_0, q4_K, iq4_nl and others, which ones is up to the processor) the CPU backend
has kernels that want rows interleaved. Such matrices are rearranged at the load into memory of the
process. The file stays mapped whole, so that its address space is taken too, and unlike mapped
pages the copy is shared with no other process and cannot be dropped when memory is short.

Workaround
----------
`-nr` (`--no-repack`) computes with the mapped file itself; prompts are read more slowly. Where
memory holds the model once, `--no-mmap` keeps the fast layout: then only the copy is made.

Better fix
----------
Unmap what was copied, and leave the layout of the file where the copy would not fit.
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
        f" file; {pool.name} has {human(free)}, and without the copy"
        f" {human(pool.at_start - copied)} is needed at the start",
        applies=Applies.MAYBE,
        missing=("which types this processor rearranges: `arriero plan` asks the engine",),
        edit=(Edit(flag="--repack", value="off"),),
        # pages of the file can make room for the copy unless address space is what is short
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
