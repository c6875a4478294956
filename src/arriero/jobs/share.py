"""``arriero report`` and the files that a diagnosis leaves: records made fit for sharing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from arriero.base.errors import RecordError, UsageError
from arriero.base.redact import Redactor
from arriero.record import Diagnosis, Explanation, Plan, Verification, write_document, write_whole
from arriero.record.sharing import shared
from arriero.report import html, markdown, upstream

Document = Diagnosis | Explanation | Verification | Plan

FORMATS: Final = ("markdown", "html", "upstream")


def render(document: Document, form: str, redactor: Redactor) -> str:
    """One document in one format, redacted whole.

    Raises:
        UsageError: This kind of document has no such format.
    """
    make = _MAKERS.get((form, type(document)))
    if make is None:
        name = type(document).__name__.lower()
        raise UsageError(f"there is no {form} report of a {name}", hint="try --format markdown")
    return make(shared(document, redactor))


_MAKERS: Final[Mapping[tuple[str, type], Callable[..., str]]] = {
    ("markdown", Diagnosis): markdown.diagnosis,
    ("markdown", Explanation): markdown.explanation,
    ("markdown", Verification): markdown.verification,
    ("markdown", Plan): markdown.plan,
    ("html", Diagnosis): html.diagnosis,
    ("html", Explanation): html.explanation,
    ("html", Verification): html.verification,
    ("html", Plan): html.plan,
    ("upstream", Diagnosis): upstream.issue,
}
_SUFFIXES: Final = {"markdown": "md", "html": "html", "upstream": "issue.md"}


def prepare(directory: Path) -> None:
    """Make the directory for the files of a record, before minutes are spent on it.

    Raises:
        RecordError: It cannot be made or written to.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"cannot make {directory}: {error.strerror}", hint="choose another directory"
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RecordError(f"cannot write into {directory}", hint="choose another directory")


def write_all(document: Diagnosis | Plan, directory: Path, redactor: Redactor) -> tuple[Path, ...]:
    """The record and every report of it that there is, all redacted, into a directory.

    Raises:
        RecordError: It cannot be written (no permission, disk full, …).
    """
    prepare(directory)
    name, document = document.id, shared(document, redactor)
    record = directory / f"{name}.json"
    write_document(record, document)
    written = [record]
    for form, suffix in _SUFFIXES.items():
        if make := _MAKERS.get((form, type(document))):
            path = directory / f"{name}.{suffix}"
            write_whole(path, make(document).encode())
            written.append(path)
    return tuple(written)
