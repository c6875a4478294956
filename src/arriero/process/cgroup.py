"""Where a memory cgroup for one command can be created, and with which settings.

Version 1 (a memory controller with its own mount) was tested for real, version 2 only with
directory trees in the kernel's format.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from arriero.process.model import ProcessError

_FILE_CEILING = 1 << 20


@dataclass(frozen=True)
class MemoryCgroup:
    """An existing cgroup of the memory controller.

    ``path`` is its directory, ``root`` the directory where the controller is mounted.
    """

    path: Path
    root: Path
    version: int

    @property
    def usage_file(self) -> str:
        return "memory.usage_in_bytes" if self.version == 1 else "memory.current"

    @property
    def limit_file(self) -> str:
        return "memory.limit_in_bytes" if self.version == 1 else "memory.max"

    @property
    def peak_file(self) -> str:
        return "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"

    @property
    def events_file(self) -> str:
        """The file with the ``oom_kill`` counter."""
        return "memory.oom_control" if self.version == 1 else "memory.events"

    def usage(self) -> int | None:
        """Bytes now, page cache included."""
        return _number(self.path / self.usage_file)

    def peak(self) -> int | None:
        """The highest use so far; None if the kernel does not record it."""
        return _number(self.path / self.peak_file)

    def ancestry(self) -> tuple[Path, ...]:
        """This cgroup and every one above it that is visible, itself first."""
        if not self.path.is_relative_to(self.root):
            return (self.path,)
        depth = len(self.path.relative_to(self.root).parts)
        return (self.path, *list(self.path.parents)[:depth])


def own(root: Path = Path("/"), pid: str = "self") -> MemoryCgroup | None:
    """The memory cgroup that a process is in, or None without a memory controller.

    Mount points and the cgroup come from ``/proc/PID/mountinfo`` and ``/proc/PID/cgroup``
    below ``root``. On a machine that has both versions, memory belongs to version 1 if that is
    mounted with the memory controller.
    """
    members = _read(root / "proc" / pid / "cgroup")
    mounts = _read(root / "proc" / pid / "mountinfo")
    paths: dict[int, str] = {}
    for line in members.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if "memory" in controllers.split(","):
            paths[1] = path
        elif hierarchy == "0" and not controllers:
            paths[2] = path
    found: dict[int, MemoryCgroup] = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        version = {"cgroup": 1, "cgroup2": 2}.get(kind[0])
        if version is None or version not in paths or version in found:
            continue
        if version == 1 and "memory" not in kind[2].split(","):
            continue
        mount = root / _unescape(fields[4]).lstrip("/")
        found[version] = MemoryCgroup(
            path=_below(mount, _unescape(fields[3]), paths[version]), root=mount, version=version
        )
    return found.get(1) or found.get(2)


def _below(mount: Path, mounted: str, path: str) -> Path:
    """The directory of cgroup ``path`` where the hierarchy's part ``mounted`` is mounted.

    A path outside that part (a container that shares the host's view) is shown at the mount.
    """
    inside = path if mounted == "/" else path.removeprefix(mounted)
    if mounted != "/" and inside == path:
        return mount
    parts = [part for part in inside.split("/") if part not in ("", ".", "..")]
    directory = mount.joinpath(*parts)
    return directory if directory.is_dir() else mount


def _unescape(text: str) -> str:
    """Blanks and backslashes in mountinfo are octal escapes."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_CEILING).decode(errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


def place(root: Path = Path("/")) -> MemoryCgroup:
    """The cgroup under which one with a memory limit can be created; nothing is created yet.

    In version 2 a cgroup cannot both hold processes and limit children. So the new one is usually a
    sibling of Arriero's own cgroup, under the nearest writable cgroup that passes on the memory
    controller.

    Raises:
        ProcessError: There is no memory controller, or this user may not create a cgroup.
    """
    hint = "use --limit-kind address-space instead"
    here = own(root)
    if here is None:
        raise ProcessError(
            "cannot use a memory cgroup: this system has no memory controller mounted",
            hint=hint,
            id="cgroup-unavailable",
        )
    candidates = here.ancestry() if here.version == 2 else (here.path,)
    for parent in candidates:
        hands_down = here.version == 1 or "memory" in _read(parent / "cgroup.subtree_control")
        if hands_down and _writable(parent):
            return MemoryCgroup(path=parent, root=here.root, version=here.version)
    reason = (
        f"this user may not write to {here.path}"
        if here.version == 1
        else f"no writable cgroup at or above {here.path} passes on the memory controller"
    )
    raise ProcessError(
        f"cannot create a memory cgroup: {reason}", hint=hint, id="cgroup-unavailable"
    )


def _writable(parent: Path) -> bool:
    return os.access(parent, os.W_OK) and os.access(parent / "cgroup.procs", os.W_OK)


def settings(cgroup: MemoryCgroup, limit: int) -> list[tuple[str, str, bool]]:
    """Files to write, in order, so that ``limit`` bytes of RAM and no swap may be used.

    Each is a name, a value and whether the file must exist: a kernel without swap accounting has
    no file for swap.
    """
    if cgroup.version == 2:
        return [("memory.max", str(limit), True), ("memory.swap.max", "0", False)]
    return [
        ("memory.limit_in_bytes", str(limit), True),
        ("memory.memsw.limit_in_bytes", str(limit), False),
    ]
