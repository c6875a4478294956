"""--cache-reuse is switched off for models whose cached positions cannot be moved

Symptom
-------
The log says `cache_reuse is not supported by this context, it will be disabled` at the start (or
`by multimodal`). A prompt that changes near its beginning is read again from the change on.

Root cause
----------
`--cache-reuse N` takes pieces of at least N tokens from the cache although something before them
changed. To do so it moves their positions. That is impossible when positions have several parts
(M-RoPE: qwen35, qwen3vl, even for text), when sliding-window layers have a shorter cache of their
own, and with `--mmproj`. Reusing a common beginning of two prompts works without it.

Workaround
----------
Leave the flag out. Put whatever changes between requests (dates, open files) at the end of the
prompt.

Better fix
----------
None is known for M-RoPE. `--swa-full` makes it work for sliding windows, but their cache then takes
its full size.
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
    concepts=("prompt cache", "sliding window", "M-RoPE", "multimodal"),
    affects=Affects(flags=("--cache-reuse",)),
    log=(
        "cache_reuse is not supported by this context, it will be disabled",
        "cache_reuse is not supported by multimodal, it will be disabled",
    ),
    signs=(Sign(notice="option_dropped", text=r"cache_reuse is not supported", sure=True),),
    reporters=1,
    provenance=Provenance(
        issues=("engeldlgado/toshllm#52",),
        builds="2026-08",
        hardware="Radeon VII",
        command="-m Qwen3.6-35B-A3B --cache-reuse 256 --parallel 1",
    ),
    related=("context-shift-disabled",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if (facts.command.number("--cache-reuse") or 0) <= 0:
        return
    if why := unmovable(facts):
        yield Found(
            because=f"--cache-reuse has no effect: {why}",
            edit=(Edit(flag="--cache-reuse"),),
            flag="--cache-reuse",
        )


_RUN = EngineRun(flags="-c 4096 -np 1 --no-warmup --cache-reuse 64")
_SHOWS = Signature(log=r"cache_reuse is not supported by this context")
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
        control=replace(_RUN, flags="-c 4096 -np 1 --no-warmup"),
        shows=_SHOWS,
    ),
    Reproduction(
        name="projector",
        model=tiny("llama"),
        projector=Projector(),
        run=replace(_SEES, flags=f"{_SEES.flags} --cache-reuse 64"),
        control=_SEES,
        shows=Signature(log=r"cache_reuse is not supported by multimodal"),
    ),
)
