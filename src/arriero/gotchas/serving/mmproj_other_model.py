"""The projector belongs to another model: the server ends after everything is loaded

Symptom
-------
`mismatch between text model (n_embd = N) and mmproj (n_embd = M)`, `failed to load multimodal
model` and exit status 1, when weights and context are already in memory.

Root cause
----------
A projector turns an image into embeddings as wide as those of one text model. Models of one family
but different sizes have projectors with the same name, and a directory may hold several. The server
compares the two last of all.

Workaround
----------
Use the projector that was published with this very model, or none: without `--mmproj` the model
serves text. A projector of the right width may still belong to another model; then the answers are
nonsense.

Better fix
----------
The server could compare the two headers before it loads anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from arriero.base.words import TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gguf.projector import Projector
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
from arriero.gotchas.serving._projectors import embedding, kind
from arriero.record import Edit

if TYPE_CHECKING:
    from arriero.gotchas.facts import Facts

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("multimodal",),
    affects=Affects(flags=("--mmproj",)),
    log=("mismatch between text model (n_embd", "you may be using wrong mmproj"),
    signs=(Sign(text=r"mismatch between text model", sure=True),),
    provenance=Provenance(
        builds="seen on 10068, 10434 and 11434", command="-m M --mmproj mmproj-of-another.gguf"
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if facts.launch.projector is None:
        return
    given = embedding(facts.projector)
    arch = str(facts.header.metadata.get("general.architecture"))
    wanted = facts.header.metadata.get(f"{arch}.embedding_length")
    stacked = f"{arch}.n_deepstack_layers" in facts.header.metadata
    if given is None or not isinstance(wanted, int) or stacked or given == wanted:
        return
    yield Found(
        because=f"the {kind(facts.projector)} projector's embeddings are {given} wide; the model"
        f" needs {wanted}",
        edit=(Edit(flag="--mmproj"),),
        flag="--mmproj",
    )


_RUN = EngineRun(flags="-c 512 -np 1 --no-warmup --mmproj {mmproj}")

REPRODUCTIONS = (
    Reproduction(
        name="half-as-wide",
        model=tiny("llama"),
        projector=Projector(projection=64),
        run=_RUN,
        control=replace(_RUN, flags="-c 512 -np 1 --no-warmup"),
        shows=Signature(
            outcome=TrialOutcome.FAILED,
            log=r"mismatch between text model \(n_embd = 128\) and mmproj \(n_embd = 64\)",
        ),
    ),
)
