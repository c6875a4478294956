"""What the control endpoints need of the server that they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arriero.record import Incident, Status


class View(Protocol):
    """One supervised engine and its requests, to be looked at.

    Every method is called in the event loop of the server and answers at once from what is known.
    Keys are in none of it: what was learnt from the engine's log, command or environment has gone
    through a ``Redactor``.
    """

    @property
    def asleep(self) -> bool:
        """Whether the engine sleeps (``--sleep-idle-seconds``): asking would wake it."""

    def status(self) -> Status:
        """All that is known without asking the engine; ``slots`` and ``tokens`` may be left out.

        ``incidents`` has the IDs of ``incidents()``.
        """

    def incidents(self) -> Sequence[Incident]:
        """The incidents of this run, newest first; a bounded number of them."""

    def log(self) -> Sequence[str]:
        """The last lines that the engine printed, oldest first; a few hundred at most."""

    async def ask(self, path: str) -> bytes | None:
        """GET a path (without prefix) from the engine that serves now.

        None where none does, where it answers anything but 200, or where it does not answer within
        about a second. It is no request of a client: it is counted nowhere and starts no recovery.
        """
