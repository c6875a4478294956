"""``arriero report`` and the files that a diagnosis leaves: records made fit for sharing."""

from __future__ import annotations

import os
from pathlib import Path

from arriero.base.errors import RecordError
from arriero.base.paths import StrPath
from arriero.base.redact import Redactor
from arriero.base.words import ReportFormat
from arriero.record import (
    Diagnosis,
    Explanation,
    Incident,
    Plan,
    Verification,
    write_document,
    write_whole,
)
from arriero.record.sharing import shared
from arriero.report.formats import layout_of

Document = Diagnosis | Explanation | Verification | Plan | Incident


def render(document: Document, form: ReportFormat, redactor: Redactor) -> str:
    """One document in one format, redacted whole.

    Raises:
        UsageError: This kind of document has no such format.
    """
    return layout_of(form).render(shared(document, redactor))


def prepare(directory: StrPath) -> None:
    """Make the directory for the files of a record, before minutes are spent on it.

    Raises:
        RecordError: It cannot be made or written to.
    """
    directory = Path(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"cannot make {directory}: {error.strerror}", hint="choose another directory"
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RecordError(f"cannot write into {directory}", hint="choose another directory")


def write_all(
    document: Diagnosis | Plan, directory: StrPath, redactor: Redactor
) -> tuple[Path, ...]:
    """The record and every report of it that there is, all redacted, into a directory.

    Raises:
        RecordError: It cannot be written (no permission, disk full, …).
    """
    directory = Path(directory)
    prepare(directory)
    name, document = document.id, shared(document, redactor)
    record = directory / f"{name}.json"
    write_document(record, document)
    written = [record]
    for layout in map(layout_of, ReportFormat):
        if layout.has(document):
            path = directory / f"{name}.{layout.suffix}"
            write_whole(path, layout.render(document).encode())
            written.append(path)
    return tuple(written)
