"""``arriero history``: what was found out before on this machine."""

from __future__ import annotations

from arriero.base.errors import UsageError
from arriero.record import Diagnosis, Explanation, History, Incident, Plan, Verification
from arriero.store import Store

Document = Diagnosis | Explanation | Verification | Plan | Incident


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
