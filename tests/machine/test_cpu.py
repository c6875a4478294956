"""The CPU as the kernel and the dynamic loader describe it, and engines compiled for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.machine import CpuFeatures, Misfit, cpu_behind, misfit, this_cpu
from arriero.machine.cpu import parse_diagnostics
from tests.machine.trees import write

HASWELL = "fpu sse sse2 pni ssse3 fma avx f16c avx2 bmi2"
ZEN_4 = f"{HASWELL} avx512f avx512_bf16 avx512vbmi avx512_vnni"
WHEEL = ("AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI", "AMX_INT8")
"""What builds 10092 and 10434 were compiled for, shortened."""


def _cpu(root: Path, flags: str, kernel: str = "6.1.0-30-amd64") -> CpuFeatures | None:
    write(
        root,
        {
            "proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n",
            "proc/sys/kernel/osrelease": f"{kernel}\n",
        },
    )
    return this_cpu(root)


def test_what_the_kernel_says(tmp_path: Path) -> None:
    cpu = _cpu(tmp_path, HASWELL)
    assert cpu is not None
    assert {"AVX2", "FMA", "BMI2", "F16C"} <= cpu.has
    assert {"AVX512", "AVX512_VNNI", "AVX_VNNI", "AMX_INT8"} <= cpu.lacks


def test_an_old_kernel_does_not_know_what_it_has_no_word_for(tmp_path: Path) -> None:
    cpu = _cpu(tmp_path, ZEN_4, "5.10.0")
    assert cpu is not None
    assert not {"AVX_VNNI", "AMX_INT8"} & (cpu.lacks | cpu.has)
    assert misfit(WHEEL, cpu) is None
    assert not cpu.knows(WHEEL)


def test_what_is_no_description_of_an_x86(tmp_path: Path) -> None:
    assert this_cpu(tmp_path / "nothing") is None
    write(tmp_path, {"proc/cpuinfo": "Features\t: fp asimd evtstrm aes\n"})
    assert this_cpu(tmp_path) is None


@pytest.mark.parametrize(
    ("flags", "lacks", "sure"),
    [
        (HASWELL, ("AVX512", "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI", "AMX_INT8"), True),
        (ZEN_4, ("AVX_VNNI", "AMX_INT8"), False),
        (f"{HASWELL} avx_vnni", ("AVX512", "AVX512_VNNI", "AVX512_BF16", "AMX_INT8"), True),
        (f"{ZEN_4} avx_vnni", None, None),  # AMX is asked for before it is used
        (f"{ZEN_4} avx_vnni amx_int8", None, None),
    ],
)
def test_what_an_engine_lacks(
    flags: str, lacks: tuple[str, ...] | None, sure: bool | None, tmp_path: Path
) -> None:
    found = misfit(WHEEL, _cpu(tmp_path, flags))
    assert found == (None if lacks is None else Misfit(WHEEL, lacks, sure=bool(sure)))


def test_what_is_not_known_is_no_finding(tmp_path: Path) -> None:
    assert misfit(None, _cpu(tmp_path, HASWELL)) is None
    assert misfit(WHEEL, None) is None


# Of glibc 2.36 in qemu-x86_64 -cpu Haswell, and the words of leaf 7 on a CPU with AVX-512.
HASWELL_SAYS = """\
dl_hwcap=0x2
x86.cpu_features.features[0x0].cpuid[0x2]=0xfed83203
x86.cpu_features.features[0x0].active[0x2]=0x7ed83203
x86.cpu_features.features[0x1].active[0x1]=0x328
x86.cpu_features.features[0x1].active[0x2]=0x0
x86.cpu_features.features[0x1].active[0x3]=0x0
x86.cpu_features.features[0x6].active[0x0]=0x0
"""
NEWER_SAYS = """\
x86.cpu_features.features[0x1].active[0x1]=0xf1af0328
x86.cpu_features.features[0x1].active[0x2]=0x405f42
x86.cpu_features.features[0x6].active[0x0]=0x20
"""


def test_what_the_loader_says() -> None:
    haswell = parse_diagnostics(HASWELL_SAYS)
    assert haswell is not None
    assert {"AVX", "AVX2", "FMA", "F16C", "BMI2", "SSE3", "SSSE3"} == haswell.has
    assert {"AVX512", "AVX_VNNI", "AMX_INT8"} <= haswell.lacks
    newer = parse_diagnostics(NEWER_SAYS)
    assert newer is not None
    assert {"AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"} <= newer.has
    assert newer.lacks == {"AVX_VNNI"}, "what is not told of (AMX, AVX) is unknown"
    assert parse_diagnostics("dl_platform=aarch64\n") is None


def test_an_emulator_that_is_not_here_says_nothing() -> None:
    assert cpu_behind(["/nowhere/qemu-x86_64", "-cpu", "Haswell"], {}) is None
    assert cpu_behind(["nice"], {}) == this_cpu()
