"""The only maker of changes: what to change in a command, what it costs, what it is good for."""

from typing import TYPE_CHECKING

from arriero.base.late import late

if TYPE_CHECKING:
    from arriero.advice.caches import HostCaches as HostCaches
    from arriero.advice.caches import host_caches as host_caches
    from arriero.advice.changes import ARENAS as ARENAS
    from arriero.advice.changes import Change as Change
    from arriero.advice.changes import caches_bounded as caches_bounded
    from arriero.advice.changes import caches_off as caches_off
    from arriero.advice.changes import context as context
    from arriero.advice.changes import remedies as remedies
    from arriero.advice.changes import slots as slots
    from arriero.advice.changes import untried as untried
    from arriero.advice.logged import of_log as of_log
    from arriero.advice.planned import Counsel as Counsel
    from arriero.advice.planned import advise as advise
else:
    __getattr__ = late(
        __name__,
        caches="HostCaches host_caches",
        changes="ARENAS Change caches_bounded caches_off context remedies slots untried",
        logged="of_log",
        planned="Counsel advise",
    )
