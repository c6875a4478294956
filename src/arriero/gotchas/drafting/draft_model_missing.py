"""`--spec-type draft-...` without a draft model: no drafting, or a crash in older builds

Symptom
-------
The log says `failed to initialize speculative decoding context: draft-simple requires a draft
context`. The server then listens and serves as if nothing were wrong, without drafting. Builds some
weeks older die there with SIGSEGV and no message; their last line, if it is not lost, shows the
settings for drafting with `ctx_tgt=no, ctx_dft=no`. `draft-eagle3` and `draft-dflash` say nothing
at all and serve.

Root cause
----------
These types draft with a second model, and nothing checks that one was given. For the server it is
not an error if drafting cannot be set up.

Workaround
----------
Give the draft model with `-md`. `draft-mtp`, for a model that has the layers for it, and the types
that begin with `ngram-` need none.

Better fix
----------
Refuse the command when its flags are read.
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
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("speculative decoding", "draft model"),
    affects=Affects(flags=("--spec-type", "-md")),
    log=("draft-simple requires a draft context",),
    signs=(Sign(text=r"requires a draft context", sure=True),),
    provenance=Provenance(
        builds="crashes on 10068 and 10092, serves without drafting on 10434",
        command="--spec-type draft-simple",
    ),
    related=("draft-model-unused",),
)
_NEED_MODEL = ("draft-simple", "draft-eagle3", "draft-dflash")
_CRASHES_UNTIL = 10092


def detect(facts: Facts) -> Iterator[Found]:
    kinds = facts.launch.speculation
    needing = [kind for kind in kinds if kind in _NEED_MODEL]
    if not needing or facts.launch.draft_source:
        return
    others = [kind for kind in kinds if kind not in _NEED_MODEL]
    crashes = facts.build is not None and facts.build <= _CRASHES_UNTIL
    yield Found(
        because=f"--spec-type {needing[0]} needs a draft model, but there is no -md",
        severity=Severity.ERROR if crashes and "draft-simple" in needing else None,
        edit=(Edit(flag="--spec-type", value=",".join(others) or None),),
        flag="--spec-type",
    )


_RUN = EngineRun(flags="-c 512 -np 1 --no-warmup --spec-type draft-simple")

REPRODUCTIONS = (
    Reproduction(
        name="simple",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 512 -np 1 --no-warmup"),
        shows=Signature(log=r"draft-simple requires a draft context|ended with SIGSEGV"),
    ),
)
