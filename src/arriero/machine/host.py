"""Host memory: what the system, all enclosing cgroups and the ulimit leave free."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.machine import files
from arriero.machine.model import Pool
from arriero.process.cgroup import MemoryCgroup, own

_NO_LIMIT: Final = 1 << 60
"""cgroup version 1 shows "no limit" as the largest number of whole pages."""
ROOT: Final = Path("/")
ULIMIT: Final = "ulimit -v"
"""The name of the bound on address space, which is not RAM."""


@dataclass(frozen=True)
class Bound:
    """One thing that limits host memory, in bytes."""

    name: str
    total: int
    free: int


def host_pool(root: Path = ROOT) -> Pool:
    """Host memory that a new process may take, and what limits it.

    Free is the least of: ``MemAvailable``; for every cgroup from our own upwards, its limit minus
    its use without reclaimable page cache; the address space of ``ulimit -v``, which is not RAM but
    also makes allocations fail. Swap does not count. cgroup v1 and the ulimit were tested for real,
    version 2 only with directory trees in the kernel's format.
    """
    bounds = list(host_bounds(root))
    if not bounds:
        return Pool("host", ("host",), None, None, "unknown", usable=False, note="not readable")
    least = min(bounds, key=lambda bound: bound.free)
    return Pool("host", ("host",), least.total, least.free, least.name)


def host_bounds(root: Path = ROOT) -> Iterator[Bound]:
    """Everything that limits host memory on this machine, in no particular order."""
    if _has_proc(root):
        meminfo = files.table(root / "proc/meminfo", ":")
        if "MemTotal" in meminfo:
            # Kernels before 3.14 have no MemAvailable.
            free = meminfo.get("MemAvailable", meminfo.get("MemFree", 0) + meminfo.get("Cached", 0))
            yield Bound("MemAvailable", meminfo["MemTotal"], free)
        group = own(root)
        if group is not None:
            yield from _cgroup_bounds(group)
        yield from _ulimit(root)
    else:
        import psutil  # late: not needed on Linux

        memory = psutil.virtual_memory()
        yield Bound("available memory", int(memory.total), int(memory.available))


def _has_proc(root: Path) -> bool:
    return sys.platform == "linux" or root != ROOT


def physical_total(root: Path = ROOT) -> int | None:
    """The RAM that the kernel manages; None if unknown."""
    if _has_proc(root):
        return files.table(root / "proc/meminfo", ":").get("MemTotal")
    import psutil

    return int(psutil.virtual_memory().total)


def _cgroup_bounds(group: MemoryCgroup) -> Iterator[Bound]:
    for path in group.ancestry():
        relative = path.relative_to(group.root) if path.is_relative_to(group.root) else Path()
        shown = "/" if relative == Path() else f"/{relative}"
        used = files.number(path / group.usage_file)
        if used is None:
            continue
        kept = max(used - _reclaimable(path, group.version), 0)
        # memory.high slows a process down until it hardly moves, which is as bad as a limit.
        names = [group.limit_file] if group.version == 1 else [group.limit_file, "memory.high"]
        for name in names:
            limit = files.number(path / name)
            if limit is not None and limit < _NO_LIMIT:
                label = f"cgroup v{group.version} {name} {shown}"
                yield Bound(label, limit, max(limit - kept, 0))


def _reclaimable(path: Path, version: int) -> int:
    """Page cache that the kernel drops before it kills. Sums include the cgroups below."""
    stat = files.table(path / "memory.stat")
    prefix = "total_" if version == 1 else ""
    names = [f"{prefix}inactive_file", f"{prefix}active_file"]
    if version == 2:
        names.append("slab_reclaimable")
    return sum(stat.get(name, 0) for name in names)


def _ulimit(root: Path) -> Iterator[Bound]:
    for line in files.text(root / "proc/self/limits").splitlines():
        if line.startswith("Max address space"):
            soft = line.removeprefix("Max address space").split()[0]
            if soft.isdecimal():
                yield Bound(ULIMIT, int(soft), int(soft))
