"""A model that was written, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
from arriero.record import SkeletonRecord, SkeletonScale
from arriero.report.terminal.lines import Line
from arriero.report.view.text import printable, wrap


def lines(doc: SkeletonRecord, width: int) -> Iterator[Line]:
    """What was written; of a model's skeleton also what was replaced, and what stayed the same."""
    disk = "" if doc.disk_bytes is None else f", {human(doc.disk_bytes)} on disk"
    parts = f" and {len(doc.paths) - 1} more" if len(doc.paths) > 1 else ""
    path = printable(doc.path)
    yield Line(f"wrote {path}{parts}: {doc.arch}, {human(doc.file_bytes)}{disk}", exact=True)
    if doc.source is None:
        return
    if doc.replaced or doc.dropped:
        yield Line("replaced or left out: name, texts, tokens; kept: numbers and shapes")
    else:
        yield Line("nothing replaced: name, texts and tokens are the model's own")
    if doc.shrunk:
        yield from map(
            Line, wrap(f"smaller: {', '.join(map(_scale, doc.shrunk))}", width, rest="  ")
        )
    yield Line(f"same memory as the model: {', '.join(doc.same_memory)}")


def _scale(scale: SkeletonScale) -> str:
    said = human if scale.what == "weights" else str
    return f"{scale.what} {said(scale.original)} to {said(scale.written)}"
