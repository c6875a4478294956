"""A large image takes several times the memory that the warm-up reserved, and crashes the server

Symptom
-------
The server becomes ready and small images work. With a large image it logs `failed to allocate ...
buffer` and crashes: exit status 139 (SIGSEGV), or a failed `GGML_ASSERT` in `ggml-backend`.

Root cause
----------
Projectors that accept images of any size reserve compute for a small one at the start: 256 tokens
of 1024 with Pixtral, 2116 of 4096 with Qwen-VL. `--fit` counts the same; with `--no-warmup` it
counts nothing. The first larger image makes the buffer grow in proportion to its patches, or to
their square without flash attention. If the allocation fails, the server uses the buffer anyway.

Workaround
----------
Set `--image-max-tokens` to the tokens of the warm-up: larger images are then scaled down. Or keep
enough memory free: a larger `-fitt` keeps it on the device, `--no-mmproj-offload` moves the
projector to the host.

Better fix
----------
The server could reserve for the largest image, and refuse an image that it has no memory for.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from arriero.base.sizes import MIB
from arriero.base.words import Component, Kind
from arriero.gguf.presets import tiny
from arriero.gguf.projector import Projector
from arriero.gotchas.model import (
    Affects,
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
from arriero.gotchas.serving._projectors import kind
from arriero.record import Edit

if TYPE_CHECKING:
    from arriero.gotchas.facts import Facts

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("multimodal", "compute buffer", "fit"),
    affects=Affects(flags=("--mmproj", "--image-max-tokens", "--no-warmup")),
    log=("failed to allocate CPU buffer", "failed to allocate CUDA0 buffer"),
    signs=(Sign(kinds=(Kind.RUNTIME_ALLOCATION,), components=(Component.MMPROJ,)),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#13414", "ggml-org/llama.cpp#13467"),
        builds="5331",
        hardware="RTX 3080; a CPU",
        command="-m Qwen2.5-VL-7B --mmproj mmproj.gguf",
    ),
    related=("mmproj-first-device", "mmproj-image-above-ubatch"),
)


def detect(facts: Facts) -> Iterator[Found]:
    projector = facts.launch.projector
    if projector is None:
        return
    from arriero.memory.plan.projector import TOKENS

    what = kind(facts.projector)
    most, warm = TOKENS.get(what, (0, 0))
    most = projector.image_max_tokens if projector.image_max_tokens > 0 else most
    if not warm or most <= warm:
        return
    yield Found(
        because=f"{what}: an image has up to {most} tokens, but compute is reserved for {warm}",
        edit=(Edit(flag="--image-max-tokens", value=str(warm)),),
        flag="--mmproj",
    )


_FLAGS = "-c 2048 -np 1 --mmproj {mmproj}"
_RUN = EngineRun(flags=_FLAGS, above=_FLAGS, limit=64 * MIB, image=256)

REPRODUCTIONS = (
    Reproduction(
        name="four-times-as-large",
        model=tiny("llama"),
        projector=Projector(kind="pixtral", tensor_type="f32", feed_forward=16384, layers=1),
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} --image-max-tokens 256"),
        shows=Signature(
            exit_status=-signal.SIGSEGV, log=r"insufficient memory \(attempted to allocate 19"
        ),
        needs=(Needs.ADDRESS_SPACE,),
    ),
)
