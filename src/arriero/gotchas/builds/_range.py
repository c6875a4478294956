"""Builds of which a failure was reported."""

from __future__ import annotations

from arriero.gotchas.facts import Facts


def within(facts: Facts, first: int, last: int) -> bool:
    """Whether the build is known and in this range; false for an unknown build."""
    return facts.build is not None and first <= facts.build <= last


def told(facts: Facts) -> str:
    """The build, as a finding names it."""
    return f"build {facts.build}"
