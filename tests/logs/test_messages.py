"""Each kind of message, era by era: lines as an engine prints them, and what they mean."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from arriero.logs import read_log

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "data" / "messages.toml").read_text(encoding="utf-8")
)["case"]
MIB = 1024 * 1024


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_messages_mean_what_the_source_says(case: dict[str, Any]) -> None:
    (reading,) = read_log([case["log"].encode()])
    failure = reading.failure
    if case["kind"] == "none":
        assert failure is None
    else:
        assert failure is not None
        assert failure.kind == case["kind"]
        fields = (
            "component",
            "device",
            "bytes",
            "buffer_bytes",
            "phase",
            "fatal",
            "evidence",
            "line",
        )
        for name in fields:
            if name in case:
                want = None if case[name] == "none" else case[name]
                assert getattr(failure, name) == want, name
        if "mib" in case:
            assert failure.bytes == round(case["mib"] * MIB)
        if "needs" in case:
            assert failure.cpu is not None
            assert (list(failure.cpu.needs), failure.cpu.lacks) == (case["needs"], None)
        else:
            assert failure.cpu is None
        if "not_this" in case:
            assert list(failure.not_this) == case["not_this"]
    for name in ("outcome", "era"):
        if name in case:
            assert getattr(reading, name) == case[name]
    if "secondary" in case:
        assert [f.kind for f in reading.secondary] == case["secondary"]
    if "secondary_fatal" in case:
        assert [f.fatal for f in reading.secondary] == case["secondary_fatal"]
    if "secondary_phase" in case:
        assert [f.phase for f in reading.secondary] == case["secondary_phase"]
    if "buffers" in case:
        got = [(b.component, b.device, b.bytes) for b in reading.buffers]
        assert got == [(c, d, round(mib * MIB)) for c, d, mib in case["buffers"]]
    assert set(case.get("notices", [])) <= {notice.id for notice in reading.notices}
    if "restarts" in case:
        assert [n.count for n in reading.notices if n.id == "restart_loop"] == [case["restarts"]]
    if "n_ctx" in case:
        assert reading.effective.n_ctx == case["n_ctx"]


def test_a_first_try_is_no_second_one() -> None:
    log = b"""\
level=INFO source=runner.go:1290 msg=load request="{Operation:fit LoraPath:[] Parallel:1}"
level=INFO source=server.go:1 msg="llama runner started in 2.1 seconds"
"""
    (reading,) = read_log([log])
    assert "attempt_repeated" not in {notice.id for notice in reading.notices}
