"""A flag has a number that the engine cannot use: negative, zero, or larger than 32 bits

Symptom
-------
`-c -1` or `-b 0`: SIGABRT (exit status 134) with `GGML_ASSERT(n_outputs >= 1)` or
`GGML_ASSERT(n_outputs_max <= cparams.n_outputs_max)` and a backtrace. `-c -1 -np 1`: `n_ctx_seq ==
0` (exit status 1; SIGSEGV on 10068). `-np 0`: exit status 1 with `invalid value for n_parallel`. A
number of more than 31 bits: exit status 1, and the only reason given is `stoi`.

Root cause
----------
The engine reads numbers as signed and uses them as unsigned. So -1 becomes a context of four
billion tokens, or of none after rounding up. For other flags -1 does mean "as many as there are"
(`-n`, `-ngl`, `-cram`). Nothing checks the range, and an assertion far from the flag fails.

Workaround
----------
Use `-c 0` for the model's own context. Leave `-b` and `-np` out to get their defaults (2048, and a
number of slots that the server chooses).

Better fix
----------
Check the range of each number when its flag is read.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("flags", "numbers", "context", "batch"),
    affects=Affects(flags=("-c", "-b", "-np")),
    log=(
        "GGML_ASSERT(n_outputs >= 1) failed",
        "error: invalid value for n_parallel",
        'error while handling argument "-c": stoi',
    ),
    provenance=Provenance(builds="seen on 10068, 10092 and 10434", command="-c -1"),
    related=("number-suffix",),
)
_WHOLE = ("-c", "-n", "-b", "-ub", "-np", "-ngl", "-cram", "-ctxcp", "-t", "-tb", "--port")
_LIMIT = 1 << 31


def detect(facts: Facts) -> Iterator[Found]:
    number = facts.command.number
    for name in _WHOLE:
        value = number(name)
        if value is not None and not -_LIMIT <= value < _LIMIT:
            yield Found(because=f"{name} {value} does not fit in 32 bits", flag=name)
            return  # it ends the server before any other number counts
    context, batch = number("-c"), number("-b")
    if number("-np") == 0:
        edit = Edit(flag="-np", value="1")
        yield Found(because="-np 0: the server needs at least one slot", edit=(edit,), flag="-np")
    if context is not None and context < 0:
        yield Found(
            because=f"-c {context} is read as {context % (1 << 32)} tokens",
            edit=(Edit(flag="-c", value="0"),),
            flag="-c",
        )
    if batch is not None and batch <= 0:
        yield Found(
            because=f"-b {batch}: a batch needs at least one token",
            edit=(Edit(flag="-b", value="2048"),),
            flag="-b",
        )


def _stopped(name: str, flags: str, mended: str, shows: Signature) -> Reproduction:
    run = EngineRun(flags=f"{flags} --no-warmup")
    control = replace(run, flags=f"{mended} --no-warmup")
    return Reproduction(
        name=name, model=tiny("llama", context_train=2048), run=run, control=control, shows=shows
    )


REPRODUCTIONS = (
    _stopped(
        "context",
        "-c -1",
        "-c 0",
        Signature(exit_status=-signal.SIGABRT, log=r"GGML_ASSERT\(n_outputs >= 1\)"),
    ),
    _stopped(
        "batch",
        "-c 512 -b 0",
        "-c 512 -b 2048",
        Signature(exit_status=-signal.SIGABRT, log=r"GGML_ASSERT\(n_outputs_max <="),
    ),
    _stopped(
        "slots",
        "-c 512 -np 0",
        "-c 512 -np 1",
        Signature(exit_status=1, log=r"invalid value for n_parallel"),
    ),
    _stopped(
        "beyond-32-bits",
        "-c 4294967296",
        "-c 4096",
        Signature(exit_status=1, log=r'handling argument "-c": stoi'),
    ),
)
