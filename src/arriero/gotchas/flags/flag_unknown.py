"""The engine does not know a flag and refuses to start

Symptom
-------
`error: invalid argument: --flag` and exit status 1, before anything is loaded.

Root cause
----------
A typing error, or a flag of another program (`llama-cli`, a fork) or of another build. llama-server
stops at the first word of its command line that it does not know.

Workaround
----------
Use the flag that was meant, if one looks like it, or remove the flag.

Better fix
----------
llama-server could name its flags that look most like it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from arriero.command import FlagTable
from arriero.command.place import fork_by_flags
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
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("flags",),
    log=("error: invalid argument",),
    provenance=Provenance(builds="seen on 10068 and 10434", command="--ctx-sise 4096"),
    related=("flag-renamed",),
)
_ALIKE = 0.72
_SAME = 0.88
"""So alike that it must be a typing error."""


def detect(facts: Facts) -> Iterator[Found]:
    flags = facts.command.flags
    for before, item in pairwise([None, *facts.command.items]):
        if item is None or item.flag is not None or renamed(item.name, facts):
            continue
        taken = before is not None and any(flags.get(value) for value in before.values)
        if taken and not item.name.startswith("-"):
            continue  # the value of a flag that the flag before it swallowed
        if not facts.own and fork_by_flags([item.name]):
            continue  # a fork's own flag is no mistake in that fork's command
        near = _near(item.name, flags)
        known = f"; did you mean {' or '.join(near)}?" if near else ""
        close = near and _likeness(item.name, near[0]) > _SAME
        edit = Edit(flag=item.name, rename=near[0]) if close else Edit(flag=item.name)
        yield Found(
            because=f"this engine has no option {item.name}{known}",
            applies=Applies.YES if facts.own else Applies.MAYBE,
            missing=() if facts.own else ("the flags of the engine that will run it",),
            edit=(edit,),
            flag=item.name,
        )


def _near(name: str, flags: FlagTable) -> list[str]:
    import difflib  # late: most commands have no such flag

    names = [n for f in flags.flags if not f.removed for n in (*f.names, *f.negatives)]
    long = [n for n in names if n.startswith("--") is name.startswith("--")]
    return difflib.get_close_matches(name, long, 3, _ALIKE)


def _likeness(name: str, other: str) -> float:
    import difflib

    return difflib.SequenceMatcher(None, name, other).ratio()


_RUN = EngineRun(flags="--ctx-sise 1024 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="slip",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="--ctx-size 1024 --no-warmup"),
        shows=Signature(exit_status=1, log=r"invalid argument: --ctx-sise"),
        unknown=("--ctx-sise",),
    ),
)
