"""Logs of these provocations, cut to what matters, read without an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arriero.logs import read_log
from tests.provoked.provoking import named

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_reading(name: str) -> None:
    (reading,) = read_log([(DATA / f"{name}.log").read_bytes()])
    assert reading.failure is not None
    assert named(reading.failure) == EXPECTED[name]


def test_every_log_has_an_answer() -> None:
    assert {path.stem for path in DATA.glob("*.log")} == set(EXPECTED)
