"""A path is what the engine takes it for."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.serve.http.targets import canonical
from tests.gguf.serving import serve


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"/slots/0?action=save", b"/slots/0?action=save"),
        (b"/%73lots/0?action=save", b"/slots/0?action=save"),
        (b"/slots%2f0?action=save", b"/slots/0?action=save"),
        (b"/%61rriero/%73tatus", b"/arriero/status"),
        (b"/v1/models?x=%73%0a", b"/v1/models?x=%73%0a"),
        (b"/caf%c3%a9", b"/caf%C3%A9"),
        (b"/a%20b", None),
        (b"/slots%00/0", None),
        (b"/slots%0d%0aX:", None),
        (b"/slots%3faction", None),
        (b"/slots%23", None),
        (b"/%2573lots", None),
        (b"/%7", None),
        (b"/%zz", None),
        (b"/%u0073lots", None),
        (b"/slots#/0", None),
        (b"/slots?x#y", None),
    ],
)
def test_what_is_read(sent: bytes, read: bytes | None) -> None:
    assert canonical(sent) == read


@given(st.binary(max_size=40))
def test_it_changes_nothing_a_second_time(path: bytes) -> None:
    once = canonical(b"/" + path)
    assert once is None or canonical(once) == once


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, pytest.param(10092, marks=pytest.mark.slow), 10434])
def test_the_engine_reads_it_so(
    build: int, tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    """If one day it does not, decoding is not needed any more, and does no harm."""
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    with serve(engine_path(build), model, "-np", "1", "-c", "256", "--no-warmup") as server:
        for path in ("/%70rops", "/props#x", "/%2570rops"):
            connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
            try:
                connection.request("GET", path)
                response = connection.getresponse()
                found = (response.status, "total_slots" in json.load(response))
            finally:
                connection.close()
            assert found == ((404, False) if "%25" in path else (200, True)), path
