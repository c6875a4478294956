"""`--fit` does nothing when `-ngl`, `-ts` or `-ot` is set

Symptom
-------
The log warns `failed to fit params to free device memory: n_gpu_layers already set by user to 99,
abort`, and the load goes on unchanged. A moment later it runs out of memory, or the driver swaps
device memory and everything crawls.

Root cause
----------
Fit only changes what the command leaves at its default. With `-ngl 99`, which nearly every forum
post has, it may not move a layer to the host; if `-c` is set too, nothing is left to change. Its
refusal is a warning, not an error.

Workaround
----------
Leave `-ngl` out: the server then puts as many layers on the devices as they hold.

Better fix
----------
Treat a number larger than the model's layers as "as many as fit".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import human
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    STEADY,
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
    kind=Class.CONFIGURATION,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("fit", "offload"),
    affects=Affects(flags=("--fit", "-ngl", "-ts", "-ot")),
    log=("failed to fit params to free device memory",),
    signs=(
        Sign(notice="fit_refused", text=r"already set by user", sure=True),
        Sign(notice="fit_refused", text=r"device memory$"),
    ),
    reporters=3,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#18111",), builds="since b7407", command="-ngl 999"
    ),
)
_SET = ("-ngl", "-ts", "-ot")


def detect(facts: Facts) -> Iterator[Found]:
    given = [name for name in _SET if facts.command.has(name)]
    left_open = "-ngl" in given and facts.launch.layers_open
    if not given or left_open or not facts.launch.fit:
        return
    if not facts.header.tensors:
        return
    flag = given[0]
    for pool in facts.plan.pools:
        if pool.free is None or not pool.usable or pool.name == "host" or not pool.at_start:
            continue
        lacks = pool.at_start - pool.free
        if lacks > 0:
            what, severity = f"lacks {human(lacks)} at the start", None
        elif lacks + pool.margin > 0:
            left = f"{human(-lacks)} of the {human(pool.margin)} that fit keeps"
            what, severity = f"has {left} left at the start", Severity.INFO
        else:
            continue
        open_ = lacks > 0 and pool.starts is not False
        yield Found(
            because=f"{pool.name} {what}, and with {facts.typed(flag)} fit may not move any layer",
            severity=severity,
            applies=Applies.MAYBE if open_ else Applies.YES,
            missing=("the compute buffer, which is only a bound without the engine",)
            if open_
            else (),
            edit=(Edit(flag=flag),) if severity is None else (),
            flag=flag,
        )


_ENV = STEADY | {"GGML_VK_VISIBLE_DEVICES": "0"}
_MARGIN = "-c 1024 -np 1 -dev Vulkan0 -fitt 999999 --no-op-offload --no-warmup"
"""A margin larger than any device, so that --fit must act on every machine."""
_RUN = EngineRun(flags=f"{_MARGIN} -ngl 99", env=_ENV)

REPRODUCTIONS = (
    Reproduction(
        name="vulkan",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=_MARGIN),
        shows=Signature(log=r"n_gpu_layers already set by user to 99, abort"),
        needs=(Needs.VULKAN,),
    ),
)
