"""A flag was renamed or removed in this build, and the engine refuses to start

Symptom
-------
`error: invalid argument: --flag`, or `the argument has been removed. use --other`, and exit status
1. The command worked before an update, or it comes from an older post.

Root cause
----------
llama.cpp renames flags without keeping the old name. The flags for drafting became `--spec-draft-*`
and `--spec-ngram-*`; the distance between checkpoints became `--checkpoint-min-step`. The reverse
happens too: an older build does not know the flags of a newer one.

Workaround
----------
Use the new name, if there is one; the value keeps its meaning.

Better fix
----------
Keep deprecated names for a while before removing them, as for `--mmap` and `--mlock`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.flags._renamed import renamed
from arriero.gotchas.model import (
    Applies,
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
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("flags", "speculative decoding"),
    log=("the argument has been removed", "error: invalid argument"),
    signs=(Sign(text=r"invalid argument: |argument has been removed"),),
    provenance=Provenance(
        builds="seen on 10068 and 10434", command="--draft-max 16; --checkpoint-every-n-tokens 8192"
    ),
    related=("flag-unknown",),
)


def detect(facts: Facts) -> Iterator[Found]:
    for item in facts.command.items:
        story = renamed(item.name, facts)
        if story is None:
            continue
        told = f"; its new name is {story.new}" if story.new else ""
        yield Found(
            because=f"{item.name}: {story.story}{told}",
            applies=Applies.YES if facts.own else Applies.MAYBE,
            missing=() if facts.own else ("the flags of the engine that will run it",),
            edit=(Edit(flag=item.name, rename=story.new),),
            flag=item.name,
        )


_RUN = EngineRun(flags="-c 1024 --draft-max 8 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="draft-max",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 --spec-draft-n-max 8 --no-warmup"),
        shows=Signature(exit_status=1, log=r"the argument has been removed"),
        unknown=("--draft-max",),
    ),
)
