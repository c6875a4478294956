"""``arriero history``: what was found out before on this machine."""

from __future__ import annotations

from typing import Any

from arriero.base.errors import UsageError
from arriero.record import Diagnosis, Explanation, History, Plan, Verification
from arriero.report import terminal
from arriero.store import Store

Document = Diagnosis | Explanation | Verification | Plan


def entries(store: Store, count: int) -> History:
    """The newest records, newest first."""
    return History(entries=store.list(count))


def document(store: Store, id_: str) -> Document:
    """One record by its ID or a prefix of it that only one has.

    Raises:
        NotFoundError: There is no such record.
    """
    found = store.get(id_)
    if not isinstance(found, Document):
        raise UsageError(f"{id_} is a record of another kind")
    return found


def text(found: Document, options: Any) -> str:
    """The record as it was printed when it was made."""
    match found:
        case Diagnosis():
            return terminal.diagnosis(found, **options)
        case Verification():
            return terminal.verification(found, **options)
        case Explanation():
            return terminal.explanation(found, **options)
        case Plan():
            return terminal.plan(found, **options)
