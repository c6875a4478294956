"""--spec-type draft-mtp for a model without NextN layers: the server does not start

Symptom
-------
`context type MTP requested but model doesn't contain MTP layers`, `failed to create MTP context`,
`exiting due to model loading error`; exit status 1.

Root cause
----------
`draft-mtp` drafts with layers that were trained for it. They are in the model's file after the
other layers (`nextn_predict_layers`). Whoever converts or quantises a model may leave them out, so
one file of a model may have them and another may not.

Workaround
----------
Use a file of the model that has `nextn` tensors, or leave `--spec-type` out. A separate draft model
is given with `-md`.

Better fix
----------
Warn and continue without drafting, as for other kinds of speculation that a model cannot do.
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
    concepts=("speculative decoding", "MTP"),
    affects=Affects(flags=("--spec-type",)),
    log=("context type MTP requested but model doesn't contain MTP layers",),
    signs=(Sign(text=r"doesn't contain MTP layers", sure=True),),
    provenance=Provenance(builds="seen on 10068, 10092 and 10434", command="--spec-type draft-mtp"),
)
_MTP = "draft-mtp"


def detect(facts: Facts) -> Iterator[Found]:
    kinds, own = facts.launch.speculation, facts.launch.draft_model
    if _MTP not in kinds or own is not None or facts.hparams.n_layer_nextn:
        return
    others = ",".join(kind for kind in kinds if kind != _MTP)
    yield Found(
        because=f"--spec-type {_MTP}, but the model's header has no"
        f" {facts.hparams.arch}.nextn_predict_layers",
        edit=(Edit(flag="--spec-type", value=others or None),),
        flag="--spec-type",
    )


_RUN = EngineRun(flags="-c 512 -np 1 --no-warmup --spec-type draft-mtp")

REPRODUCTIONS = (
    Reproduction(
        name="hybrid",
        model=tiny("qwen35"),
        run=_RUN,
        control=replace(_RUN, flags="-c 512 -np 1 --no-warmup"),
        shows=Signature(log=r"model doesn't contain MTP layers"),
    ),
)
