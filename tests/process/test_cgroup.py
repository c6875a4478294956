"""Where the memory cgroup is, on machines that are not here: trees in the kernel's format."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from arriero.process import cgroup
from arriero.process.model import ProcessError

V1_MOUNTS = """\
24 23 0:22 / /proc rw - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:12 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2_MOUNTS = """\
24 23 0:22 / /proc rw - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate
"""


def machine(root: Path, mounts: str, members: str, *cgroups: str) -> Path:
    proc = root / "proc" / "self"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text(mounts)
    (proc / "cgroup").write_text(members)
    for name in cgroups:
        directory = root / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "cgroup.procs").touch()
    return root


def test_version_1_beside_an_empty_version_2(tmp_path: Path) -> None:
    """A hybrid machine: the memory controller is on version 1."""
    root = machine(
        tmp_path,
        V1_MOUNTS,
        "5:memory:/user.slice/user-1000\n1:cpu,cpuacct:/\n0::/user.slice\n",
        "sys/fs/cgroup/memory/user.slice/user-1000",
        "sys/fs/cgroup/unified/user.slice",
    )
    found = cgroup.own(root)
    assert found is not None
    assert (found.version, found.path) == (1, root / "sys/fs/cgroup/memory/user.slice/user-1000")
    names = [str(path.relative_to(root / "sys/fs/cgroup")) for path in found.ancestry()]
    assert names == ["memory/user.slice/user-1000", "memory/user.slice", "memory"]
    assert cgroup.place(root) == found


def test_version_1_in_a_container_that_sees_the_hosts_path(tmp_path: Path) -> None:
    mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    root = machine(tmp_path, mounts, "5:memory:/docker/abc/inner\n", "sys/fs/cgroup/memory/inner")
    found = cgroup.own(root)
    assert found is not None
    assert found.path == root / "sys/fs/cgroup/memory/inner"


def test_version_1_seen_from_elsewhere_is_taken_at_the_mount(tmp_path: Path) -> None:
    mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    root = machine(tmp_path, mounts, "5:memory:/docker/other\n", "sys/fs/cgroup/memory")
    found = cgroup.own(root)
    assert found is not None
    assert found.ancestry() == (root / "sys/fs/cgroup/memory",)


USER = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service"
SCOPE = "/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope"


def test_version_2_uses_a_sibling_under_the_cgroup_that_hands_memory_down(tmp_path: Path) -> None:
    root = machine(
        tmp_path, V2_MOUNTS, f"0::{SCOPE}\n", f"{USER}/app.slice/term.scope", f"{USER}/app.slice"
    )
    (root / USER / "app.slice/cgroup.subtree_control").write_text("cpu memory pids\n")
    (root / USER / "app.slice/term.scope/cgroup.subtree_control").write_text("\n")
    place = cgroup.place(root)
    assert (place.version, place.path) == (2, root / USER / "app.slice")
    assert cgroup.settings(place, 4096) == [
        ("memory.max", "4096", True),
        ("memory.swap.max", "0", False),
    ]


def test_version_2_that_hands_nothing_down_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    root = machine(tmp_path, V2_MOUNTS, "0::/\n", "sys/fs/cgroup")
    (root / "sys/fs/cgroup/cgroup.subtree_control").write_text("\n")
    with pytest.raises(ProcessError, match="passes on the memory") as caught:
        cgroup.place(root)
    assert "address-space" in caught.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_version_1_that_may_not_be_written(tmp_path: Path) -> None:
    root = machine(tmp_path, V1_MOUNTS, "5:memory:/a\n", "sys/fs/cgroup/memory/a")
    (root / "sys/fs/cgroup/memory/a").chmod(0o555)
    with pytest.raises(ProcessError, match="may not write"):
        cgroup.place(root)


def test_no_controller_at_all(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="no memory controller"):
        cgroup.place(machine(tmp_path, "", ""))


def test_damaged_files_are_no_controller(tmp_path: Path) -> None:
    assert cgroup.own(machine(tmp_path, "x - cgroup\n\xff\n - \n", "memory\n::::\n")) is None


def test_blanks_in_a_mount_point(tmp_path: Path) -> None:
    mounts = "35 31 0:32 / /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw\n"
    root = machine(tmp_path, mounts, "0::/\n", "sys/fs/my cgroup")
    found = cgroup.own(root)
    assert found is not None
    assert found.path == root / "sys/fs/my cgroup"
