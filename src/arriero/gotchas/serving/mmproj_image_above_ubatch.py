"""An image with more tokens than -ub aborts the server

Symptom
-------
A failed `GGML_ASSERT` says `non-causal attention requires n_ubatch >= n_tokens`, and the first
image ends the server with exit status 134 (SIGABRT). Text alone is served.

Root cause
----------
In Gemma 3 and Gemma 4 the tokens of an image attend to each other, so they must be computed in one
piece. One micro-batch, 512 tokens by default, must hold all tokens of the image, or `-b` tokens if
that is less. An image of Gemma 3 has 256 tokens; of Gemma 4 up to 280, in newer builds 1120, or as
many as `--image-max-tokens` allows. The newest builds lower that limit to the micro-batch
themselves, but they cannot shrink images of a fixed size.

Workaround
----------
Make the micro-batch as large as an image: `-ub 256`, or the value of `--image-max-tokens`. The
compute buffers grow with it.

Better fix
----------
The server could refuse the two values at the start, when it knows both.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

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
    Signature,
)
from arriero.gotchas.serving._projectors import kind, number
from arriero.record import Edit

if TYPE_CHECKING:
    from arriero.gotchas.facts import Facts

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("multimodal", "batch"),
    affects=Affects(architectures=("gemma3", "gemma4"), flags=("--mmproj", "-ub")),
    log=("non-causal attention requires n_ubatch >= n_tokens",),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#23409",
            "ggml-org/llama.cpp#21816",
            "unslothai/unsloth#10559",
        ),
        builds="b8766, b10840",
        hardware="RTX 3060, RX 9070",
        command="-m gemma-4-12B --mmproj mmproj-F16.gguf",
    ),
    related=("mmproj-image-memory", "embedding-input-limit"),
)

_GEMMA4 = {0: 280, 10436: 1120, 10841: 0}
"""First build → most tokens of an image by default; 0 if the limit follows the micro-batch."""


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    micro = min(params.n_ubatch, params.n_batch)
    projector = facts.launch.projector
    given = max(0, projector.image_max_tokens) if projector is not None else 0
    if projector is None or micro >= max(given, *_GEMMA4.values()):
        return
    what, tokens = kind(facts.projector), 0
    if what == "gemma3":
        side = number(facts.projector, "clip.vision.image_size")
        patch = number(facts.projector, "clip.vision.patch_size")
        merge = number(facts.projector, "clip.vision.projector.scale_factor") or 4
        tokens = (side // patch // merge) ** 2 if patch else 0
    elif what in ("gemma4v", "gemma4uv"):
        build = max(_GEMMA4) if facts.build is None else facts.build
        most = _GEMMA4[max(since for since in _GEMMA4 if since <= build)]
        tokens = most and (given or most)
    if min(tokens, params.n_batch) <= micro:
        return
    yield Found(
        because=f"an image of {what} has up to {tokens} tokens, which need one micro-batch;"
        f" -ub {micro} is smaller",
        edit=(Edit(flag="-ub", value=str(tokens)),),
        flag="-ub" if facts.launch.batch.ubatch_given else "--mmproj",
    )


_FLAGS = "-c 512 -np 1 --no-warmup --mmproj {mmproj}"
_RUN = EngineRun(flags=f"{_FLAGS} -ub 8", image=64)

REPRODUCTIONS = (
    Reproduction(
        name="sixteen-tokens",
        model=tiny("llama"),
        projector=Projector(),
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} -ub 16"),
        shows=Signature(
            exit_status=-signal.SIGABRT,
            log=r"non-causal attention requires n_ubatch >= n_tokens",
        ),
    ),
)
