"""What ends a rule that lacks a fact."""

from __future__ import annotations


class MissingError(Exception):
    """A fact that a rule needs is unknown.

    :class:`arriero.gotchas.facts.Facts` raises it; ``check`` reports it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
