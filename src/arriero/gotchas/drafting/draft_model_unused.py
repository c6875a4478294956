"""`-md` without `--spec-type`: the draft model is loaded, takes memory and drafts nothing

Symptom
-------
The server is no faster than before; `draft_n` is missing from the timings. The log says `loading
draft model` and shows its weights and its KV cache. Only with `-lv 4` it says `no implementations
specified for speculative decoding`, which it also says without a draft model.

Root cause
----------
A separate flag, `--spec-type`, chooses how to draft, and its default is `none`. `-md` alone loads
the model. Documentation and older commands use `-md` by itself.

Workaround
----------
Add `--spec-type draft-simple` for an ordinary small model. A model that was trained to draft has
its own type (`draft-eagle3`, `draft-dflash`, `draft-mtp`). Or leave `-md` out to save the memory.

Better fix
----------
Warn, or use `draft-simple` when a draft model is given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import TrialOutcome
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
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("speculative decoding", "draft model"),
    affects=Affects(flags=("-md", "--spec-type")),
    log=("no implementations specified for speculative decoding",),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#25345",),
        builds="July 2026; seen on 10068, 10092 and 10434",
        command="-md draft.gguf --spec-draft-n-max 16",
    ),
    related=("draft-model-missing",),
)
_TRAINED = re.compile(r"mtp|eagle|dflash|dspark", re.IGNORECASE)
"""Names of models that need their own way to draft."""


def detect(facts: Facts) -> Iterator[Found]:
    command, launch = facts.command, facts.launch
    model = launch.draft_source
    if not model or launch.speculation or not command.flags.knows("--spec-type"):
        return
    flag = "-md" if launch.draft_model else "-hfd"
    said = f"--spec-type is {'none' if command.has('--spec-type') else 'not given'}"
    simple = Edit(flag="--spec-type", value="draft-simple")
    yield Found(
        because=f"{flag} {model} is loaded, but {said}: nothing drafts with it",
        edit=() if _TRAINED.search(model) else (simple,),
        flag=flag,
    )


_RUN = EngineRun(flags="-c 512 -np 1 --no-warmup -md {model}")

REPRODUCTIONS = (
    Reproduction(
        name="itself",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_RUN.flags} --spec-type draft-simple"),
        shows=Signature(
            outcome=TrialOutcome.SERVED, log=r"no implementations specified for speculative"
        ),
    ),
)
