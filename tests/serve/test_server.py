"""The server as a process: signals, settings read again, the end, what its command has closed."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.store import Store
from tests.serve.fake_engine import Home, Order
from tests.serve.front import ARRIERO, SECONDS, Front, environment

SLOW = 2.0
"""Words per second of an engine that is still at it when the test has done its part."""


class Place:
    """Where an engine that does no work, its model and Arriero live."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root / "engine")
        self.home.install()
        self.model = write_model(root / "tiny.gguf", tiny("llama"))

    def front(self, *more: str | Path, start: bool = True, options: tuple[str, ...] = ()) -> Front:
        command = [self.home.program, "-m", self.model, "-c", "4096", "-np", "1", *more]
        port = () if "--port" in more or "--host" in more else ("--port", "0")
        return Front(self.root, [*command, *port], options, start=start)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "engine").mkdir()
    return Place(tmp_path)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def asked(front: Front, words: int, *, stream: bool = True) -> http.client.HTTPConnection:
    """A request that has been written; its answer is for the test to read."""
    client = http.client.HTTPConnection("127.0.0.1", front.port, timeout=SECONDS)
    body = {"prompt": f"job:j1x:{words} ", "n_predict": 500, "temperature": 0, "stream": stream}
    client.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    return client


def status_of(front: Front, path: str, method: str = "GET", key: str = "") -> tuple[int, bytes]:
    client = http.client.HTTPConnection("127.0.0.1", front.port, timeout=SECONDS)
    try:
        client.request(method, path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = client.getresponse()
        return answer.status, answer.read()
    finally:
        client.close()


def test_a_signal_lets_requests_finish(place: Place) -> None:
    place.home.set(rate=20)
    front = place.front()
    client = asked(front, 12)
    answer = client.getresponse()
    first = answer.readline()
    front.signal(signal.SIGTERM)
    whole = first + answer.read()
    client.close()
    assert b'"stop":true' in whole
    assert whole.count(b"data: ") == 13
    assert front.wait() == 0
    assert front.events[-1] == {"schema": "arriero.event/1", "event": "stopped", "status": 0}
    assert front.count("incident") == 0


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_who_does_not_come_to_the_end_is_told_so(place: Place, stream: bool) -> None:
    place.home.set(rate=SLOW)
    front = place.front(options=("--drain", "1s"))
    client = asked(front, 400, stream=stream)
    until(lambda: front.status()["requests"]["in_flight"])
    if stream:
        answer = client.getresponse()
        answer.readline()
    front.signal(signal.SIGTERM)
    answer = answer if stream else client.getresponse()
    body = answer.read()
    client.close()
    assert answer.status == (200 if stream else 503)
    assert b"stopping" in body
    assert front.wait() == 0


def test_a_second_signal_ends_at_once(place: Place) -> None:
    place.home.set(rate=SLOW)
    front = place.front(options=("--drain", "1h"))
    engine = psutil.Process(front.engine_pid())
    client = asked(front, 1000)
    client.getresponse().readline()
    front.signal(signal.SIGTERM)
    until(lambda: "stopping" in front.said)
    front.signal(signal.SIGTERM)
    assert front.wait() == 0
    client.close()
    assert not psutil.pid_exists(engine.pid) or not engine.is_running()


def test_the_end_of_arriero_is_the_end_of_its_engine(place: Place) -> None:
    front = place.front()
    engine = psutil.Process(front.engine_pid())
    front.kill()
    _, left = psutil.wait_procs([engine], timeout=SECONDS)
    assert not left


def test_keys_are_read_again_and_a_mistake_changes_nothing(place: Place) -> None:
    keys = place.root / "keys.txt"
    keys.write_text("old-key\n")
    with place.front(options=("--api-key-file", str(keys))) as front:
        assert status_of(front, "/props")[0] == 401
        assert status_of(front, "/props", key="old-key")[0] == 200
        keys.write_text("new-key\n")
        front.signal(signal.SIGHUP)
        until(lambda: "read again" in front.said)
        assert status_of(front, "/props", key="old-key")[0] == 401
        assert status_of(front, "/props", key="new-key")[0] == 200
        keys.unlink()
        front.signal(signal.SIGHUP)
        until(lambda: "not changed" in front.said)
        assert status_of(front, "/props", key="new-key")[0] == 200
        assert "new-key" not in front.said


@pytest.mark.slow
def test_an_engine_that_cannot_load_is_given_up(place: Place) -> None:
    front = place.front(start=False)
    for _ in range(20):
        place.home.order(Order("load", "exit"))
    assert front.wait() == 1
    assert front.events[-1]["status"] == 1
    assert "gave up" in front.said


def test_an_address_that_is_taken_is_said_in_one_line_and_nothing_starts(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["serve", "--", place.home.program, "-m", place.model, "--port", str(port)]
        ended = subprocess.run(
            [*ARRIERO, *map(str, words)],
            env=environment(place.root),
            capture_output=True,
            timeout=SECONDS,
        )
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.decode().splitlines() if "cannot listen" in line]
    assert f"127.0.0.1:{port}" in line
    assert not place.home.ledger()


def test_what_the_command_has_closed_stays_closed(place: Place) -> None:
    with place.front() as front:
        for path, method, flag in (
            ("/metrics", "GET", "--metrics"),
            ("/slots/0?action=save", "POST", "--slot-save-path"),
            ("/%73lots/0?action=save", "POST", "--slot-save-path"),
        ):
            status, body = status_of(front, path, method)
            assert status == 501, path
            assert flag in json.loads(body)["error"]["message"]
        assert front.settled()["requests"]["answered"] == 3


def test_health_is_told_at_once_while_the_engine_is_away(place: Place) -> None:
    place.home.set(load_s=3600)
    front = place.front(start=False)
    front.url = str(front.event("listening")["url"])
    status, body = status_of(front, "/health")
    assert (status, json.loads(body)["error"]["message"]) == (503, "Loading model")
    assert front.status()["state"] == "starting"
    assert front.stop() == 0


def test_an_incident_is_kept_with_what_became_of_the_requests(place: Place) -> None:
    with place.front() as front:
        place.home.order(Order("accepted"))
        client = asked(front, 3, stream=False)
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.headers["X-Arriero-Replayed"] == "1"
        answer.read()
        client.close()
        (told,) = json.loads(front.get("/arriero/incidents"))["incidents"]
        assert told["requests"]["replayed"] == 1
    store = Store(place.root / "home")
    (entry,) = store.list(schema="arriero.incident/1")
    kept = store.get(entry.id)
    assert kept.requests.replayed == 1  # type: ignore[attr-defined]


def test_a_socket_instead_of_a_port(place: Place) -> None:
    path = place.root / "front.sock"
    front = place.front("--host", str(path), start=False)
    front.event("ready")
    assert front.event("listening")["url"] == f"unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert front.stop() == 0
    with pytest.raises((urllib.error.URLError, OSError)), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
