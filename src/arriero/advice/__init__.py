"""The only maker of changes: what to change in a command, what it costs, what it is good for."""

from arriero.advice.caches import HostCaches, host_caches
from arriero.advice.changes import (
    ARENAS,
    Change,
    caches_bounded,
    caches_off,
    context,
    remedies,
    slots,
    untried,
)
from arriero.advice.logged import logged
from arriero.advice.planned import Counsel, advise

__all__ = [
    "ARENAS",
    "Change",
    "Counsel",
    "HostCaches",
    "advise",
    "caches_bounded",
    "caches_off",
    "context",
    "host_caches",
    "logged",
    "remedies",
    "slots",
    "untried",
]
