"""A quantised V cache needs flash attention

Symptom
-------
`quantized V cache requires flash_attn to be enabled` (older builds: `V cache quantization requires
flash_attn`), then errors about the context and the model. Some older builds die of SIGSEGV a moment
later instead of ending with exit status 1.

Root cause
----------
Without flash attention the engine stores V transposed, element by element, and a quantised block
cannot be written that way. `-fa auto` turns flash attention on by itself; only `-fa off` forbids
it.

Workaround
----------
Set `-fa on`, or leave `-fa` out. If flash attention is not available, keep V at f16 and quantise
only K.

Better fix
----------
Nothing needs a fix except the later errors, which blame the model.
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
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("KV cache", "flash attention", "quantisation"),
    affects=Affects(flags=("-ctv", "-fa")),
    log=("quantized V cache requires flash_attn", "V cache quantization requires flash_attn"),
    signs=(Sign(text=r"V cache quantization requires|V cache was requested, but", sure=True),),
    provenance=Provenance(
        builds="refused on 10434; on 10068 the refusal is followed by SIGSEGV",
        command="-ctv q8_0 -fa off",
    ),
)
_WHOLE = frozenset({"f32", "f16", "bf16"})


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if params.type_v in _WHOLE or params.flash_attn != "off":
        return
    yield Found(
        because=f"-ctv {params.type_v} with -fa off",
        edit=(Edit(flag="-fa", value="on"),),
        flag="-fa",
    )


_RUN = EngineRun(flags="-c 1024 -ctv q8_0 -fa off --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="off",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -ctv q8_0 -fa on --no-warmup"),
        shows=Signature(
            log=r"quantized V cache requires flash_attn|V cache quantization requires flash_attn"
        ),
    ),
)
