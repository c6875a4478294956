"""The engine refuses a quantised cache type whose block size does not divide the model's head size

Symptom
-------
`K cache type q8_0 with block size 32 does not divide n_embd_head_k=80`, then errors about the
context and the model. Exit status 1; SIGSEGV on some older builds.

Root cause
----------
Quantised types store 32 elements in a block, and flash attention reads the cache head by head. A
head of 80 elements (phi-2, stablelm-3b) is not a whole number of blocks.

Workaround
----------
Use `-ctk f16 -ctv f16` for such a model. To save memory, set a smaller context or fewer slots.

Better fix
----------
The cache could pad the heads, as other code does for other sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.format import TYPES_BY_NAME
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
    concepts=("KV cache", "quantisation"),
    affects=Affects(flags=("-ctk", "-ctv")),
    log=("K cache type q8_0 with block size 32 does not divide n_embd_head_k",),
    signs=(Sign(text=r"does not divide n_embd_head", sure=True),),
    provenance=Provenance(
        builds="seen on 10092 and 10434; on 10068 the refusal is followed by SIGSEGV",
        command="-ctk q8_0 with heads of 40 elements",
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    types = {"-ctk": params.type_k, "-ctv": params.type_v}
    blocks = {flag: TYPES_BY_NAME[t].block for flag, t in types.items() if t in TYPES_BY_NAME}
    if params.flash_attn == "off" or max(blocks.values(), default=1) == 1:
        return
    hparams = facts.hparams
    for flag, block in blocks.items():
        full, window = (
            (hparams.head_k, hparams.head_k_swa)
            if flag == "-ctk"
            else (hparams.head_v, hparams.head_v_swa)
        )
        sizes = {window if swa else full for swa in hparams.is_swa[: hparams.n_layer]}
        odd = [size for size in sizes if size % block]
        if odd:
            yield Found(
                because=f"{flag} {types[flag]} has blocks of {block} elements;"
                f" the model's heads have {odd[0]}",
                edit=(Edit(flag=flag, value="f16"),),
                flag=flag,
            )


_ODD = tiny("llama", head_dim=40, name="odd-heads")


def _refused(name: str, flag: str) -> Reproduction:
    run = EngineRun(flags=f"-c 1024 {flag} q8_0 --no-warmup")
    return Reproduction(
        name=name,
        model=_ODD,
        run=run,
        control=replace(run, flags=f"-c 1024 {flag} f16 --no-warmup"),
        shows=Signature(log=r"cache type q8_0 with block size 32 does not divide"),
    )


REPRODUCTIONS = (_refused("keys", "-ctk"), _refused("values", "-ctv"))
