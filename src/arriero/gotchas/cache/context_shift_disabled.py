"""--context-shift does nothing for models whose cached positions cannot be moved

Symptom
-------
The log says `KV cache shifting is not supported for this context, disabling KV cache shifting` at
the start. An answer then ends when the slot's context is full (`"truncated": true`), as if the flag
were not there.

Root cause
----------
A shift drops old tokens and moves the positions of the others. That is impossible when positions
have several parts (M-RoPE: qwen35, qwen3vl, even for text), when sliding-window layers have a
shorter cache of their own, and with `--mmproj`. Recurrent state has no positions and does not
prevent a shift.

Workaround
----------
Expect the context to end: set a larger `-c`, or let the client shorten its history. For a sliding
window, `--swa-full` makes both caches equally long; the window's cache then takes its full size.

Better fix
----------
Refuse the flag for a model that cannot use it, or say in the reply why the answer ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gguf.projector import Projector
from arriero.gotchas.cache._shift import unmovable
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
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("context shift", "sliding window", "M-RoPE", "multimodal"),
    affects=Affects(flags=("--context-shift",)),
    log=(
        "KV cache shifting is not supported for this context, disabling KV cache shifting",
        "ctx_shift is not supported by multimodal, it will be disabled",
    ),
    signs=(Sign(notice="option_dropped", text=r"disabling KV cache shifting", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#27515", "ggml-org/llama.cpp#11053"),
        builds="build 10542",
        hardware="two RTX 2080 Ti",
        command="-m Qwen3.8-27B-Q4_K_M.gguf --context-shift",
    ),
    related=("cache-reuse-disabled",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if facts.command.switch("--context-shift") is not True:
        return
    if why := unmovable(facts):
        yield Found(
            because=f"--context-shift has no effect: {why}",
            edit=(Edit(flag="--context-shift"),),
            flag="--context-shift",
        )


_RUN = EngineRun(flags="-c 4096 -np 1 --no-warmup --context-shift")
_SHOWS = Signature(log=r"KV cache shifting is not supported for this context")
_SEES = EngineRun(flags="-c 1024 -np 1 --no-warmup --mmproj {mmproj}", image=64)

REPRODUCTIONS = (
    Reproduction(
        name="positions-of-several-parts",
        model=tiny("qwen35"),
        run=_RUN,
        control=replace(_RUN, flags="-c 4096 -np 1 --no-warmup"),
        shows=_SHOWS,
    ),
    Reproduction(
        name="sliding-window",
        model=tiny("gemma3"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_RUN.flags} --swa-full"),
        shows=_SHOWS,
    ),
    Reproduction(
        name="projector",
        model=tiny("llama"),
        projector=Projector(),
        run=replace(_SEES, flags=f"{_SEES.flags} --context-shift"),
        control=_SEES,
        shows=Signature(log=r"ctx_shift is not supported by multimodal"),
    ),
)
