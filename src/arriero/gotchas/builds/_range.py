"""Builds of which a failure was reported."""

from __future__ import annotations

from arriero.gotchas.facts import Facts


def within(facts: Facts, first: int, last: int) -> bool:
    """Whether the build is known and one of these: of an unknown one nothing is said."""
    return facts.build is not None and first <= facts.build <= last


def told(facts: Facts) -> str:
    """The build, for the evidence of a finding."""
    return f"build {facts.build}"
