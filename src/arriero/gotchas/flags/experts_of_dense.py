"""-cmoe or -ncmoe for a model without experts: nothing moves, and --fit may not move anything

Symptom
-------
The server takes the same memory as without the flag and says nothing about it. If memory is short,
the start fails although `--fit` would have helped: `failed to fit params to free device memory:
model_params::tensor_buft_overrides already set by user, abort`.

Root cause
----------
Both flags are patterns of tensor names, `ffn_*_exps`, and a dense model has no such tensors. A
pattern that matches nothing is not an error. But any pattern, also one of `-ot`, keeps `--fit` from
placing weights.

Workaround
----------
Leave the flag out. For a dense model, put fewer layers on the device (`-ngl`), or let `--fit` find
how many.

Better fix
----------
Warn about a pattern that matches no tensor, and let only patterns that match one stop `--fit`.
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
    Needs,
    Provenance,
    Reproduction,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("placement", "experts", "fit"),
    affects=Affects(flags=("-cmoe", "-ncmoe")),
    log=("model_params::tensor_buft_overrides already set by user, abort",),
    provenance=Provenance(builds="seen on 10092 and 10434", command="-ncmoe 2 with a dense model"),
    related=("fit-refused-layers",),
)


def detect(facts: Facts) -> Iterator[Found]:
    command = facts.command
    given = [name for name in ("-cmoe", "-ncmoe") if _is_on(facts, name)]
    if not given or not facts.header.tensors:
        return
    if not any("exps" in tensor.name for tensor in facts.header.tensors):
        told = " and ".join(f"{name} {command.value(name)}" for name in given)
        yield Found(
            because=f"{told}: the model has no expert tensors",
            edit=tuple(Edit(flag=name) for name in given),
            flag=given[0],
        )


def _is_on(facts: Facts, name: str) -> bool:
    if name == "-ncmoe":
        return (facts.command.number(name) or 0) > 0
    return facts.command.switch(name) is True


_BASE = "-c 1024 -np 1 -dev Vulkan0 -fitt 999999 --no-op-offload --no-warmup"
"""A margin larger than any device, so that --fit must act on every machine."""
_RUN = EngineRun(flags=f"{_BASE} -ncmoe 2", env=STEADY | {"GGML_VK_VISIBLE_DEVICES": "0"})

REPRODUCTIONS = (
    Reproduction(
        name="dense",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=_BASE),
        shows=Signature(log=r"tensor_buft_overrides already set by user, abort"),
        needs=(Needs.VULKAN,),
    ),
)
