"""Logs of real engines (builds 10068 and 10434) that were made to fail, or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.logs import read_log

DATA = Path(__file__).parent / "data" / "captured"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_an_engine_was_made_to_do_is_what_is_read(name: str) -> None:
    (reading,) = read_log([(DATA / name).read_bytes()])
    want = EXPECTED[name]
    failure = reading.failure
    for field in ("kind", "component", "device", "bytes", "phase", "fatal", "evidence", "line"):
        assert (None if failure is None else getattr(failure, field)) == want[field], field
    assert reading.outcome == want["outcome"]
    assert [[b.component, b.device, round(b.bytes / 2**20, 2)] for b in reading.buffers] == want[
        "buffers"
    ]
    assert sorted({n.id for n in reading.notices}) == want["notices"]
    assert [[f.kind, f.component, f.phase] for f in reading.secondary] == want["secondary"]


def test_every_log_has_an_answer() -> None:
    assert {path.name for path in DATA.glob("*.txt")} == set(EXPECTED)
