"""Models whose sizes people published, with what the engine printed and how the start ended."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from arriero.base.sizes import MIB
from arriero.base.words import Component
from arriero.command import builtin_flags, parse_command
from arriero.gguf import Header
from arriero.gguf.header import Part
from arriero.machine import Pool
from arriero.memory import Planner
from arriero.record import Plan
from tests.memory.planning import LINE, ROOMY

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "found.json").read_text(encoding="utf-8")
)["cases"]


def header(case: dict[str, Any]) -> Header:
    """Numbers alone: a model without tensors, whose weights take nothing."""
    keys = {
        f"{case['arch']}.{key}": tuple(value) if isinstance(value, list) else value
        for key, value in case["keys"].items()
    }
    return Header(
        version=3,
        big_endian=False,
        metadata={
            "general.architecture": case["arch"],
            f"{case['arch']}.vocab_size": case["vocab"],
            **keys,
        },
        tensors=(),
        data_offset=0,
        alignment=32,
        file_bytes=0,
        parts=(Part("found", 0, 0),),
    )


def plan(case: dict[str, Any], room: dict[str, float] | None = None) -> Plan:
    """In so many MiB of each device, as they were left when the weights had been loaded."""
    room = room or {}
    words = ["llama-server", "-m", "m.gguf", *shlex.split(case["args"])]
    devices = {device for _, device, _ in case["logged"]} - {"CPU"}
    pools = [
        Pool(device, (device,), int(mib), int(mib), "a log")
        for device in sorted(devices)
        for mib in [room.get(device, 1 << 20) * MIB]
    ]
    planner = Planner(header(case), [*pools, ROOMY], model=Path("m.gguf"), build=case["build"])
    return planner.plan(parse_command(words, builtin_flags(), {}))


def planned(of: Plan, component: str, device: str | None = None) -> float:
    return sum(
        (buffer.bytes or 0) / MIB
        for buffer in of.buffers
        if buffer.component is Component(component) and device in (None, buffer.device)
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_sizes_are_what_the_engine_printed(case: dict[str, Any]) -> None:
    found = plan(case)
    for component, device, mib in case["logged"]:
        assert planned(found, component, device) == pytest.approx(mib, abs=LINE * 2), component
    for component, mib in case["totals"].items():
        assert planned(found, component) == pytest.approx(mib, abs=LINE * 2), component
    for component in ("compute", "draft"):
        for device, mib in case[component].items():
            assert planned(found, component, device) >= mib - LINE, component


ENDED = [case for case in CASES if case["room"]]


@pytest.mark.parametrize("case", ENDED, ids=lambda case: case["name"])
def test_a_verdict_is_never_the_opposite_of_what_happened(case: dict[str, Any]) -> None:
    found = plan(case, case["room"])
    if case["ended"] == "served":
        assert found.starts is not False
    else:
        assert found.starts is not True
        assert found.fits is not True
