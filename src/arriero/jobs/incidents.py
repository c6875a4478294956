"""``arriero incidents``: when and why engines were lost."""

from __future__ import annotations

import re

import msgspec

from arriero.base.errors import NotFoundError, UsageError
from arriero.jobs.status import asked
from arriero.record import Incident, Incidents
from arriero.store import Store

_SCHEMA = "arriero.incident/1"


def incidents(store: Store, count: int) -> Incidents:
    """The newest incidents in the history, newest first, without their logs."""
    found = (store.get(entry.id) for entry in store.list(count, _SCHEMA))
    return Incidents(
        incidents=tuple(
            msgspec.structs.replace(one, log=()) for one in found if isinstance(one, Incident)
        )
    )


def incident(store: Store, id_: str) -> Incident:
    """One incident in the history, by its ID or a beginning of it that only one has.

    Raises:
        NotFoundError: There is none.
        UsageError: The record is of another kind.
    """
    try:
        found = store.get(id_)
    except NotFoundError:
        raise NotFoundError(
            f"there is no incident {id_}", hint="run arriero incidents to see all", id="no-record"
        ) from None
    if not isinstance(found, Incident):
        raise UsageError(f"{id_} is a record of another kind", hint=f"run arriero history {id_}")
    return found


def incidents_at(url: str, *, api_key: str | None = None) -> Incidents:
    """The incidents of a running server, newest first, without their logs.

    Raises:
        NotFoundError: Nothing answers there, or no server of Arriero's.
        UsageError: It asks for a key.
    """
    return asked(url, "/arriero/incidents", Incidents, api_key)


def incident_at(url: str, id_: str, *, api_key: str | None = None) -> Incident:
    """One incident of a running server, by its whole ID.

    Raises:
        NotFoundError: Nothing answers there, or there is no such incident.
        UsageError: It asks for a key.
    """
    if not re.fullmatch(r"[a-z0-9-]{1,64}", id_):
        raise NotFoundError(
            f"there is no incident {id_}", hint="run arriero incidents --url to see all"
        )
    return asked(url, f"/arriero/incidents/{id_}", Incident, api_key)
