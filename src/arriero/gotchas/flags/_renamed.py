"""Flags that some builds have and others do not, and their new names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.command.flags import BUILTIN, builtin_flags, normalise
from arriero.gotchas.facts import Facts

_SUCCESSORS: Final = {
    "--draft": "--spec-draft-n-max",
    "--draft-n": "--spec-draft-n-max",
    "--draft-max": "--spec-draft-n-max",
    "--draft-min": "--spec-draft-n-min",
    "--draft-n-min": "--spec-draft-n-min",
    "--checkpoint-every-n-tokens": "--checkpoint-min-step",
    "-cpent": "-cms",
    "--spec-ngram-size-n": None,
    "--spec-ngram-size-m": None,
    "--spec-ngram-min-hits": None,
    "--ctx-size-draft": None,
    "-cd": None,
    "--grp-attn-n": None,
    "-gan": None,
    "--grp-attn-w": None,
    "-gaw": None,
    "--log-format": None,
    "--system-prompt-file": None,
    "-spf": None,
}
"""Old name → new name; None if there is no successor. Builds 10068 and later refuse them all (their
own ``--help`` names the successors of those that it still lists)."""


@dataclass(frozen=True)
class Renamed:
    """What happened to a flag. ``new`` is its new name in this engine, or None."""

    new: str | None
    story: str


def renamed(name: str, facts: Facts) -> Renamed | None:
    """What happened to a flag that this engine refuses; None if no build ever had it."""
    flags, spelling = facts.command.flags, normalise(name)
    if flags.knows(name):
        return None
    if spelling in _SUCCESSORS:
        new = _SUCCESSORS[spelling]
        known = new if new and flags.knows(new) else None
        return Renamed(known, f"removed in build {_OLDEST} or earlier")
    elsewhere = [build for build in BUILTIN if builtin_flags(build).knows(name)]
    if not elsewhere:
        return None
    here = facts.build or BUILTIN[-1]
    if elsewhere[0] > here:
        return Renamed(None, f"newer builds have it (seen in {elsewhere[0]}), this one does not")
    gone = next((b for b in BUILTIN if b > elsewhere[-1]), here)
    return Renamed(None, f"last seen in build {elsewhere[-1]}, removed in {gone}")


_OLDEST: Final = 10068
