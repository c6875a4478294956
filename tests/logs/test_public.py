"""Logs that people published, with what each of them shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.logs import read_log

DATA = Path(__file__).parent / "data" / "public"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
ROUNDING = 0.006 * 1024 * 1024
"""Half of the last digit of a figure printed in MiB."""


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_published_log_is_named_right(name: str) -> None:
    want = EXPECTED[name]
    readings = read_log([(DATA / name).read_bytes()])
    failure = next((r.failure for r in readings if r.failure is not None), None)
    assert (failure.kind if failure else None) in want["kind"]
    if failure is not None:
        for key in ("component", "device"):
            if want.get(key):
                assert getattr(failure, key) in want[key]
        if want.get("bytes"):
            assert failure.bytes is not None
            assert min(abs(failure.bytes - b) for b in want["bytes"]) <= ROUNDING
        if "fatal" in want:
            assert failure.fatal is want["fatal"]
    buffers = [b for r in readings for b in r.buffers]
    for component, device, mib in want.get("buffers", []):
        assert any(
            (b.component, b.device) == (component, device)
            and abs(b.bytes - mib * 1024 * 1024) <= ROUNDING
            for b in buffers
        )
    if "notice" in want:
        assert want["notice"] in [n.id for r in readings for n in r.notices]
