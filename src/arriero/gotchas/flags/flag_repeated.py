"""A flag is given twice, or as flag and variable, with different values: only one of them counts

Symptom
-------
The server runs with another value than the one you looked at. If the same spelling appears twice it
warns (`DEPRECATED: argument '-c' specified multiple times`). For two spellings of one flag (`-c`
and `--ctx-size`), or a switch and its opposite, it says nothing. A flag wins over a variable:
`LLAMA_ARG_CTX_SIZE environment variable is set, but will be overwritten`.

Root cause
----------
The engine applies variables first, then flags in their order; the last one wins. The warning
compares the words as typed, not the flags that they stand for.

Workaround
----------
Keep only the value that you mean, above all in a command that a script puts together from parts.

Better fix
----------
Warn about the same flag instead of the same spelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    STEADY,
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
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("flags",),
    affects=Affects(flags=("-c", "--ctx-size", "-kvu", "-no-kvu")),
    log=(
        "specified multiple times, use comma-separated values instead",
        "environment variable is set, but will be overwritten by command line argument",
    ),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434", command="-c 8192 --ctx-size 4096"
    ),
)
_ONE_EACH = frozenset(
    {"-c", "-np", "-b", "-ub", "-n", "-ngl", "-t", "-tb", "-fa", "-ctk", "-ctv", "-kvu", "-cram",
     "-ctxcp", "-ncmoe", "-sm", "-ts", "-mg", "-dev", "-fit", "-m", "--host", "--port",
     "--mmap", "--mlock", "--context-shift", "--swa-full", "-kvo", "-md", "--mmproj"}
)  # fmt: skip
"""Flags with one value; values of others add up (`-ot`, `--lora`, `--rpc`)."""


def detect(facts: Facts) -> Iterator[Found]:
    command = facts.command
    for name in sorted(_ONE_EACH):
        values = command.values(name)
        yield from _beside_variable(facts, name)
        if len(set(values)) < 2:
            continue
        typed = [item for item in command.items if item.flag is command.flags.get(name)]
        told = " and ".join(" ".join((item.name, *item.values)) for item in typed)
        yield Found(
            because=f"{told}: only the last one counts",
            edit=(Edit(flag=name), Edit(flag=name, value=values[-1])),
            flag=name,
        )


def _beside_variable(facts: Facts, name: str) -> Iterator[Found]:
    command = facts.command
    flag, values = command.flags.get(name), command.values(name)
    if flag is None or not flag.arity or not flag.env or not values:
        return
    other = command.environ.get(flag.env)
    if other is None or other.strip() == values[-1]:
        return
    own = flag.env in command.env  # an edit of the command cannot remove one from outside
    yield Found(
        because=f"{name} {values[-1]} and {flag.env}={other}: only the flag counts",
        severity=Severity.INFO,
        edit=(Edit(flag=name), Edit(flag=name, value=values[-1])) if own else (),
        flag=name,
    )


_RUN = EngineRun(flags="-c 2048 -np 1 --no-warmup -c 1024")
_VARIABLE = EngineRun(
    flags="-c 1024 -np 1 --no-warmup", env=STEADY | {"LLAMA_ARG_CTX_SIZE": "4096"}
)
_OPPOSITES = EngineRun(flags="-c 4096 -np 4 -kvu --no-warmup -no-kvu")

REPRODUCTIONS = (
    Reproduction(
        name="context",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 2048 -np 1 --no-warmup"),
        shows=Signature(effective={"n_ctx": 1024}, log=r"specified multiple times"),
    ),
    Reproduction(
        name="variable",
        model=tiny("llama"),
        run=_VARIABLE,
        control=replace(_VARIABLE, env=STEADY),
        shows=Signature(
            effective={"n_ctx": 1024}, log=r"LLAMA_ARG_CTX_SIZE .* will be overwritten"
        ),
    ),
    Reproduction(
        name="opposites",
        model=tiny("llama"),
        run=_OPPOSITES,
        control=replace(_OPPOSITES, flags="-c 4096 -np 4 -kvu --no-warmup"),
        shows=Signature(effective={"n_ctx_seq": 1024}),
    ),
)
