"""Values: the limit of a process, how it ended, and how much memory it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from arriero.base.errors import ArrieroError
from arriero.base.words import LimitKind


class Job(TypedDict, total=False):
    """What a guard is asked to do. Every path and argument is bytes, as the system has it."""

    scratch: bytes
    """Directory to make, lock and remove in the end."""
    command: list[bytes]
    file: bytes
    environment: dict[bytes, bytes]
    cwd: bytes
    address_space: int
    cgroup: bytes
    """Directory of the memory cgroup to make for the command and remove in the end."""
    cgroup_settings: list[tuple[str, str, bool]]
    """File, value, and whether the file must exist."""
    cgroup_peak: str
    cgroup_events: str


class ProcessError(ArrieroError):
    """A process cannot be started as requested, or does not end."""

    default_id = "process"


@dataclass(frozen=True)
class Limit:
    """A memory limit in bytes, set before the command runs its first instruction.

    ``address-space`` is ``RLIMIT_AS`` and applies to each process of the tree separately;
    ``cgroup`` is RAM of the whole tree, without swap.
    """

    bytes: int
    kind: LimitKind


@dataclass(frozen=True)
class Exit:
    """How the command ended.

    ``status`` is its exit status, negative for a signal. ``oom_kills`` counts the kernel's kills
    in the limit's cgroup: above zero means killed at the limit (always 0 for other limits).
    """

    status: int
    oom_kills: int = 0


@dataclass(frozen=True)
class MemoryUse:
    """Memory in bytes; None if the system does not report it.

    ``address_space`` (VmSize) and its peak (VmPeak) are those of the command's first process: the
    address-space limit holds for each process alone. ``rss``, ``anonymous`` (RssAnon + VmSwap) and
    ``threads`` are summed over the tree. ``rss_peak`` is VmHWM, at the end the ``ru_maxrss`` of the
    first process and the children it waited for, whichever was largest. ``anonymous_peak`` is the
    largest sum that was sampled. ``cgroup`` and ``cgroup_peak`` are the kernel's own account of the
    limit's cgroup, page cache included.

    The kernel's marks are read every hundredth of the process's age (5 to 250 ms) and once it has
    ended the last ones seen stand: what it took after the last reading is not in them.
    """

    address_space: int | None = None
    address_space_peak: int | None = None
    rss: int | None = None
    rss_peak: int | None = None
    anonymous: int | None = None
    anonymous_peak: int | None = None
    threads: int | None = None
    cgroup: int | None = None
    cgroup_peak: int | None = None


@dataclass(frozen=True)
class Completed:
    """A short run: exit status and what was printed, at most ``max_output`` bytes of each."""

    status: int
    stdout: str
    stderr: str
    truncated: bool = False
