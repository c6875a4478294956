"""`--fit` does nothing with `-sm tensor`: the context stays as given, or is the model's own

Symptom
-------
`failed to fit params to free device memory: llama_params_fit is not implemented for
SPLIT_MODE_TENSOR, abort`. The start goes on and runs out of memory on one of the devices.

Root cause
----------
Fit moves whole layers between devices. `-sm tensor` cuts every tensor, so there is nothing to move.
Fit then does not shorten the context either.

Workaround
----------
Set `-c` and `-np` to values that fit, instead of waiting for `--fit` to find them. Or use `-sm
layer`.

Better fix
----------
Let fit shorten the context in this mode.
"""

from __future__ import annotations

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
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("fit", "placement", "context"),
    affects=Affects(flags=("-sm", "--fit", "-c")),
    signs=(Sign(notice="fit_refused", text=r"SPLIT_MODE_TENSOR", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#22616",), builds="b9xxx", hardware="CUDA", command="-sm tensor"
    ),
    related=("fit-refused-layers", "split-mode-refused", "tensor-split-whole-buffers"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if facts.launch.params.split_mode == "tensor" and facts.launch.fit:
        given = facts.launch.context_asked
        yield Found(
            because="-sm tensor with --fit on: "
            + (f"-c {given} is taken as it is" if given else "the context is the model's own"),
            edit=(Edit(flag="-fit", value="off"),),
            flag="-sm",
        )


_RUN = EngineRun(flags="-sm tensor -c 512 -np 1 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="without-a-device",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-sm layer -c 512 -np 1 --no-warmup"),
        shows=Signature(log=r"not implemented for SPLIT_MODE_TENSOR"),
    ),
)
