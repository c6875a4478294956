"""Excerpts as people paste them into issues and notes, cut and prefixed as they were."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from arriero.logs import overall, read_log

CASES: list[dict[str, Any]] = [
    case
    for name in ("pasted.toml", "found.toml")
    for case in tomllib.loads((Path(__file__).parent / "data" / name).read_text(encoding="utf-8"))[
        "case"
    ]
]
MIB = 1024 * 1024
ROUNDING = 0.006 * MIB
"""Half of the last digit of a figure printed in MiB."""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_pasted_excerpt_is_named_right(case: dict[str, Any]) -> None:
    reading = overall(read_log([case["log"].encode()]))
    failure = reading.failure
    assert ("none" if failure is None else failure.kind) in case["kind"]
    if failure is not None:
        for name in ("component", "device"):
            if name in case:
                assert (getattr(failure, name) or "none") in case[name], name
        if "bytes" in case:
            size = failure.bytes
            assert any(
                size is None if want == "none" else size and abs(size - want) <= ROUNDING
                for want in case["bytes"]
            )
        if "fatal" in case:
            assert failure.fatal is case["fatal"]
        if "phase" in case:
            assert failure.phase == case["phase"]
        if "line" in case:
            assert failure.line in case["line"]
    if "outcome" in case:
        assert reading.outcome == case["outcome"]
    if "secondary" in case:
        assert sorted(f.kind for f in reading.secondary) == sorted(case["secondary"])
    for component, device, mib in case.get("buffers", []):
        assert any(
            (b.component, b.device) == (component, device) and abs(b.bytes - mib * MIB) <= ROUNDING
            for b in reading.buffers
        )
    assert set(case.get("notices", [])) <= {notice.id for notice in reading.notices}
