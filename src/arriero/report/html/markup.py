"""HTML and SVG elements as text that cannot be forgotten to be escaped."""

from __future__ import annotations

import html
from typing import Final

from arriero.report.view.text import printable

_VOID: Final = frozenset({"meta", "br", "hr"})


class Markup(str):
    """Text that is markup already. Every other ``str`` is escaped when it becomes a child."""

    __slots__ = ()


def el(tag: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element. ``stroke_width`` is written ``stroke-width``; a trailing ``_`` is dropped.

    An attribute that is None is left out. Numbers are written with at most three decimals.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: str) -> Markup:
    """Children one after the other, escaped where they are not markup."""
    return Markup(
        "".join(child if isinstance(child, Markup) else _escaped(child) for child in children)
    )


def _escaped(text: str) -> str:
    # Line feeds stay: they matter inside <pre>.
    return html.escape("\n".join(map(printable, text.split("\n"))))


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return _escaped(value)
    return f"{value:.3f}".rstrip("0").rstrip(".")
