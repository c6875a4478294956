"""Metrics as Prometheus reads them, and the page that names them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from arriero.base.redact import Redactor
from arriero.base.words import Kind
from arriero.record import Incident
from arriero.serve.control.handler import Control
from arriero.serve.control.metrics import Metrics, documented
from tests.report import served
from tests.serve.control.test_figures import metrics as engine_metrics
from tests.serve.control.viewing import Seen

PAGE = Path(__file__).parents[3] / "docs" / "serve.md"


def read(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Name → label values → value, of everything that is there; each line once."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            values = found.setdefault(sample.name, {})
            labels = tuple(value for _, value in sorted(sample.labels.items()))
            assert labels not in values, sample
            values[labels] = sample.value
    return found


def scraped(view: Seen) -> dict[str, dict[tuple[str, ...], float]]:
    reply = asyncio.run(Control(view, Redactor()).reply("GET", "/arriero/metrics"))
    return read(reply.body)


def test_the_account_of_requests_is_there() -> None:
    found = scraped(Seen())
    requests = served.status().requests
    ended = found["arriero_requests_ended_total"]
    assert ended[("answered",)] == requests.answered
    assert found["arriero_requests_received_total"][()] == (
        sum(ended.values()) + found["arriero_requests_in_flight"][()]
    )
    assert found["arriero_state"][("ready",)] == 1
    assert sum(found["arriero_state"].values()) == 1
    assert found["arriero_memory_planned_bytes"][("host",)] == 900 << 20
    assert found["arriero_slots"] == {("true",): 1, ("false",): 1}
    assert found["arriero_context_tokens"][()] == 3632


def test_every_metric_of_its_own_is_documented_and_nothing_else() -> None:
    named = {name for name in scraped(Seen()) if name.startswith("arriero_")}
    assert named == set(documented())
    section = PAGE.read_text("utf-8").partition("\n## Metrics\n")[2].partition("\n## ")[0]
    assert [name for name in documented() if f"| `{name}` |" not in section] == []
    rows = [line for line in section.splitlines() if line.startswith("| `arriero_")]
    assert len(rows) == len(documented())


def test_the_engine_s_own_stand_behind_them() -> None:
    view = Seen()
    view.answers = {"/slots": b"[]", "/metrics": engine_metrics(100, 10, 50, 1)}
    found = scraped(view)
    assert found["llamacpp:prompt_tokens_total"] == {(): 100}
    assert "arriero_state" in found


def test_what_is_not_known_is_left_out() -> None:
    view = Seen()
    engine = msgspec.structs.replace(view.now.engine, ready_s=None, build=None)
    view.now = msgspec.structs.replace(view.now, engine=engine, memory=(), slots=())
    found = scraped(view)
    assert found["arriero_build_info"] == {("", "0.1.0"): 1}
    for name in ("engine_ready_seconds", "slots", "context_tokens", "memory_total_bytes"):
        assert f"arriero_{name}" not in found


def incident(id_: str, kind: Kind, down: float | None) -> Incident:
    verdict = msgspec.structs.replace(served.failure(), kind=kind)
    return msgspec.structs.replace(served.incident(), id=id_, verdict=verdict, down_s=down)


def test_incidents_stay_counted_when_they_are_no_longer_listed() -> None:
    metrics, status = Metrics(), served.status()
    first, second = incident("a", Kind.KILLED, None), incident("b", Kind.HANG, 2.0)
    metrics.text(status, [first])
    metrics.text(status, [incident("a", Kind.KILLED, 1.5), second])
    found = read(metrics.text(status, [second]))
    assert found["arriero_incidents_total"] == {("killed",): 1, ("hang",): 1}
    assert found["arriero_down_seconds_total"] == {(): 3.5}
