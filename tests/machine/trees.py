"""Directory trees in the kernel's formats, for machines that are not here."""

from __future__ import annotations

from pathlib import Path

GIB = 1 << 30
V1_MOUNTS = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
V2_MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max address space         {soft:<20} unlimited            bytes
Max file locks            unlimited            unlimited            locks
"""


def write(root: Path, files: dict[str, str | int]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n" if isinstance(content, int) else content)
    return root


def host(root: Path, total: int, available: int, *, address_space: int | None = None) -> Path:
    meminfo = (
        f"MemTotal:       {total >> 10} kB\nMemFree:        {available >> 11} kB\n"
        f"MemAvailable:   {available >> 10} kB\nBuffers:          51200 kB\n"
        f"HugePages_Total:       0\nHugepagesize:       2048 kB\n"
    )
    soft = "unlimited" if address_space is None else str(address_space)
    return write(root, {"proc/meminfo": meminfo, "proc/self/limits": LIMITS.format(soft=soft)})


def cgroup_v1(root: Path, member: str, limits: dict[str, tuple[int, int, int]]) -> Path:
    """``limits``: cgroup → limit, usage and inactive file cache in bytes."""
    write(
        root,
        {
            "proc/self/mountinfo": V1_MOUNTS,
            "proc/self/cgroup": f"9:name=systemd:/\n4:memory:{member}\n0::/\n",
        },
    )
    for name, (limit, usage, cache) in limits.items():
        base = f"sys/fs/cgroup/memory{name}"
        stat = (
            f"cache {cache}\nrss {usage - cache}\ninactive_file 0\nactive_file 0\n"
            f"total_inactive_file {cache}\ntotal_active_file 0\n"
        )
        write(
            root,
            {
                f"{base}/memory.limit_in_bytes": limit,
                f"{base}/memory.usage_in_bytes": usage,
                f"{base}/memory.stat": stat,
            },
        )
    return root


def cgroup_v2(root: Path, member: str, limits: dict[str, tuple[str, str, int, int]]) -> Path:
    """``limits``: cgroup → memory.max, memory.high, usage and active file cache in bytes."""
    write(
        root,
        {"proc/self/mountinfo": V2_MOUNTS, "proc/self/cgroup": f"0::{member}\n"},
    )
    for name, (most, high, usage, cache) in limits.items():
        base = f"sys/fs/cgroup{name}"
        write(
            root,
            {
                f"{base}/memory.max": f"{most}\n",
                f"{base}/memory.high": f"{high}\n",
                f"{base}/memory.current": usage,
                f"{base}/memory.stat": f"anon {usage - cache}\nfile {cache}\nactive_file {cache}\n",
            },
        )
    return root


def amd_card(
    root: Path, name: str, address: str, vram: tuple[int, int], gtt: tuple[int, int]
) -> Path:
    """A card with (total, used) of VRAM and GTT; ``device`` is a link, as in sysfs."""
    device = f"sys/devices/pci0000:00/{address}"
    write(
        root,
        {
            f"{device}/mem_info_vram_total": vram[0],
            f"{device}/mem_info_vram_used": vram[1],
            f"{device}/mem_info_gtt_total": gtt[0],
            f"{device}/mem_info_gtt_used": gtt[1],
        },
    )
    for entry in (name, f"renderD{128 + int(name[4:])}"):
        (root / "sys/class/drm" / entry).mkdir(parents=True)
        (root / "sys/class/drm" / entry / "device").symlink_to(root / device)
    (root / f"sys/class/drm/{name}-DP-1").mkdir()
    return root


def fdinfo(root: Path, pid: int, descriptor: int, target: str, text: str) -> None:
    base = root / "proc" / str(pid)
    (base / "fd").mkdir(parents=True, exist_ok=True)
    (base / "fd" / str(descriptor)).symlink_to(target)
    write(root, {f"proc/{pid}/fdinfo/{descriptor}": text})
