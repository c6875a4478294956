"""Refusals for lack of context, as three builds give them, and whose fault they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.serve.refusals import Fault, Refusal, is_crowded, is_out_of_memory, refusal_of
from tests.gguf.serving import Served, serve

FULL = "Context size has been exceeded."


def test_an_engine_that_fails_for_another_reason_is_none_of_these() -> None:
    assert refusal_of(500, b'{"error":{"code":500,"message":"out of memory"}}') is None
    assert refusal_of(200, FULL.encode()) is None


def test_text_that_quotes_the_message_ends_no_stream() -> None:
    quoted = json.dumps({"content": f'it says "{FULL}"', "stop": False})
    assert not is_crowded(b"data: " + quoted.encode() + b"\n\n")
    nested = json.dumps({"choices": [{"delta": {"content": FULL}}]})
    assert not is_crowded(b"data: " + nested.encode() + b"\n\n")
    assert not is_crowded(b"data: " + json.dumps([FULL]).encode() + b"\n\n")
    assert not is_crowded(b"data: " + FULL.encode() + b"\n\n")


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"code":500,"message":"%s","type":"server_error"}}\n\n',
        b'event: error\ndata: {"code":500,"message":"%s","type":"server_error"}\n\n',
        b'event: error\ndata: {"error":{"code":500,"message":"%s"}}\n\n',
    ],
)
def test_the_event_of_each_api_that_ends_a_stream(event: bytes) -> None:
    assert is_crowded(event % FULL.encode())


# --- the real engine ------------------------------------------------------------------------------


def ask(server: Served, path: str, body: dict[str, object]) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "m.gguf", tiny("llama"))


def tokens(count: int, first: int = 0) -> list[int]:
    return [(7919 * (first + n)) % 200 + 3 for n in range(count)]


BUILDS = [10068, pytest.param(10092, marks=pytest.mark.slow), 10434]


@pytest.mark.engine
@pytest.mark.parametrize("build", BUILDS)
def test_a_prompt_longer_than_its_slot_is_refused_by_the_engine_with_the_numbers(
    build: int, model: Path, engine_path: Callable[[int], Path]
) -> None:
    with serve(engine_path(build), model, "-np", "1", "-c", "512", "--no-warmup") as server:
        for path in ("/completion", "/v1/completions"):
            for stream in (False, True):
                asked = {"prompt": tokens(600), "max_tokens": 1, "stream": stream}
                status, body = ask(server, path, asked)
                error = json.loads(body)["error"]
                assert (status, error["n_prompt_tokens"], error["n_ctx"]) == (400, 600, 512)


@pytest.mark.engine
@pytest.mark.parametrize("build", BUILDS)
def test_an_input_above_the_batch_is_the_clients_fault(
    build: int, model: Path, engine_path: Callable[[int], Path]
) -> None:
    flags = ("--embedding", "-np", "1", "-c", "1024", "-ub", "64", "--no-warmup")
    with serve(engine_path(build), model, *flags) as server:
        status, body = ask(server, "/embedding", {"content": tokens(100)})
    assert status == 500, "if not, the engine says it itself by now"
    refused = refusal_of(status, body)
    assert refused == Refusal(Fault.TOO_LONG, 100, 64)
    assert refused.status == 400
    told = json.loads(refused.body())["error"]
    assert (told["n_prompt_tokens"], told["n_ctx"]) == (100, 64)


@pytest.mark.engine
@pytest.mark.parametrize("build", BUILDS)
def test_requests_that_fill_a_shared_cache_together_are_nobodys_fault(
    build: int, model: Path, engine_path: Callable[[int], Path]
) -> None:
    """Each fits alone. Together they do not, and the engine ends all that are in work."""
    flags = ("-np", "2", "-kvu", "-c", "512", "--no-warmup", "-cram", "0")
    asked: dict[str, object] = {"n_predict": 150, "ignore_eos": True}
    with serve(engine_path(build), model, *flags) as server:
        for first in (0, 300):
            assert ask(server, "/completion", {**asked, "prompt": tokens(300, first)})[0] == 200
        both = {**asked, "prompt": [tokens(300), tokens(300, 300)]}
        whole = ask(server, "/completion", both)
        status, events = ask(server, "/completion", {**both, "stream": True})
    assert refusal_of(*whole) == Refusal(Fault.CROWDED)
    last = events.rstrip(b"\n").rpartition(b"\n\n")[2]
    assert is_crowded(last) if status == 200 else refusal_of(status, events)


TEMPLATE = "Unable to generate parser for this template. Automatic parser generation failed: "


@pytest.mark.parametrize(
    ("error", "out"),
    [
        (f'{{"error":{{"code":400,"message":"{TEMPLATE}\\nError: std::bad_alloc"}}}}', True),
        ('data: {"error":{"code":500,"message":"std::bad_alloc"}}', True),
        ('event: error\ndata: {"type":"error","error":{"message":"std::bad_alloc"}}', True),
        ('{"error":{"message":"cannot parse \'std::bad_alloc\'"}}', False),
        ('{"content":"std::bad_alloc"}', False),
        ("std::bad_alloc", False),
    ],
)
def test_an_engine_without_memory_is_known_by_its_error(error: str, out: bool) -> None:
    assert is_out_of_memory(error.encode()) is out
