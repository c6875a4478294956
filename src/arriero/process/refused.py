"""Why a command could not be started, in words, and what to do about it."""

from __future__ import annotations

import errno
import os
import platform
from pathlib import Path
from typing import Final

from arriero.base.errors import ArrieroError, NotFoundError
from arriero.process.model import Job, ProcessError


def start_error(step: str, code: int, detail: str, file: str, job: Job) -> ArrieroError:
    """The error of a command that could not be started."""
    reason = os.strerror(code)
    match step:
        case "scratch":
            return scratch_error(os.fsdecode(job["scratch"]), detail or reason)
        case "cgroup":
            return ProcessError(
                f"cannot limit memory by cgroup: {detail or 'cgroup.procs'}: {reason}",
                hint="use --limit-kind address-space instead",
                id="cgroup-unavailable",
            )
        case "cwd":
            return ProcessError(
                f"cannot enter {os.fsdecode(job['cwd'])}: {reason}", id="not-executable"
            )
        case "limit":
            return ProcessError(f"cannot set the address-space limit: {reason}", id="limit")
        case _:
            return _exec_error(code, file, os.fsdecode(job["cwd"]))


def _exec_error(code: int, file: str, cwd: str) -> ArrieroError:
    path = Path(cwd, file)
    match code:
        case errno.ENOENT | errno.ENOTDIR if not path.exists():
            return NotFoundError(
                f"there is no program {file}",
                hint="check the path, from this directory",
                id="no-program",
            )
        case errno.ENOENT:
            reason = f"its interpreter {interpreter(path) or ''} is missing".replace("  ", " ")
            hint = "use a build for this system (musl or glibc, distribution)"
        case errno.EACCES if path.is_dir():
            reason, hint = "it is a directory", "give the path of the program in it"
        case errno.EACCES:
            reason = "permission denied"
            hint = f"run chmod +x {file}, and check that its file system is not mounted noexec"
        case errno.ENOEXEC:
            made_for = machine_of(path)
            reason, hint = "it is not a program for this machine", "check that the file is complete"
            if made_for is not None:
                reason += f" but for {made_for}"
                hint = f"use a build for {platform.machine()}"
        case errno.E2BIG:
            reason = "the arguments and the environment are too long"
            hint = "shorten the command, or unset large variables"
        case errno.ENOMEM:
            reason = "not enough memory to start it"
            hint = "raise the limit"
        case _:
            reason, hint = os.strerror(code), ""
    return ProcessError(f"cannot execute {file}: {reason}", hint=hint, id="not-executable")


_MACHINES: Final = {
    3: "x86 of 32 bit", 8: "MIPS", 20: "POWER of 32 bit", 21: "POWER", 22: "s390x",
    40: "ARM of 32 bit", 62: "x86-64", 183: "aarch64 (ARM)", 243: "RISC-V", 258: "LoongArch",
}  # fmt: skip
"""``e_machine`` of an ELF file."""
_OTHER_SYSTEMS: Final = {
    b"MZ": "Windows",
    b"\xcf\xfa\xed\xfe": "macOS",
    b"\xca\xfe\xba\xbe": "macOS",
}


def machine_of(path: Path) -> str | None:
    """The machine for which a program was compiled, from its first bytes; None if unknown."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return None
    for magic, system in _OTHER_SYSTEMS.items():
        if head.startswith(magic):
            return system
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    return _MACHINES.get(int.from_bytes(head[18:20], "big" if head[5] == 2 else "little"))


def interpreter(path: Path) -> str | None:
    """The interpreter that a script or an ELF program names."""
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return None
    if head.startswith(b"#!"):
        return head[2:].split(b"\n", 1)[0].strip().split(b" ", 1)[0].decode(errors="replace")
    if head[:4] != b"\x7fELF" or len(head) < 64 or head[4] != 2 or head[5] != 1:
        return None
    table = int.from_bytes(head[32:40], "little")
    size, count = (int.from_bytes(head[at : at + 2], "little") for at in (54, 56))
    for at in range(table, table + size * count, max(size, 1)):
        entry = head[at : at + 56]
        if entry[:4] == b"\x03\0\0\0":  # PT_INTERP
            offset = int.from_bytes(entry[8:16], "little")
            return head[offset : offset + 4096].split(b"\0", 1)[0].decode(errors="replace")
    return None


def scratch_error(path: Path | str, reason: str) -> ProcessError:
    return ProcessError(
        f"cannot create the scratch directory {path}: {reason}",
        hint="set TMPDIR to a directory with free space",
        id="scratch",
    )
