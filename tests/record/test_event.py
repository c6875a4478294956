"""Events are lines: each has the fields that belong to it and no others."""

from __future__ import annotations

import json

import pytest

from arriero.record import Event, decode
from tests.report.served import failure

EVENTS = {
    "event url": Event.listening("http://127.0.0.1:8080"),
    "event engine_pid seconds": Event.ready(12, 0.5),
    "event id verdict": Event.incident("inci-1", failure()),
    "event change why": Event.gate("-cram 0", "it would\nabort"),
    "event status": Event.stopped(0),
}


@pytest.mark.parametrize("fields", EVENTS)
def test_an_event_is_one_line_with_its_own_fields(fields: str) -> None:
    line = EVENTS[fields].line()
    assert line.count(b"\n") == 1
    assert list(json.loads(line)) == ["schema", *fields.split()]
    assert decode(line, "it") == EVENTS[fields]
