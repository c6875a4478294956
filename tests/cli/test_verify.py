"""``arriero verify`` on the real engine: a command, and servers that already run."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Place

pytestmark = pytest.mark.engine

SMALL = ("-c", "1024", "-np", "2", "--no-warmup")
KEY = "planted-key-1"


@contextlib.contextmanager
def serving(place: Place, model: Path, *words: str, prefix: str = "") -> Iterator[str]:
    """The address of a llama-server that is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    engine = place.engine
    environment = {**place.environment(), "LD_LIBRARY_PATH": str(engine.parent)}
    process = subprocess.Popen(
        [engine, "-m", model, *SMALL, "--port", str(port), *words], env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}{prefix}"
    try:
        deadline = time.monotonic() + 60
        while not _answers(f"{url}/health"):
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait(30)


def _answers(url: str) -> bool:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {KEY}"})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:  # noqa: S310
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_a_command(place: Place, model: Path) -> None:
    command = ("llama-server", "-m", model, *SMALL)
    said = place.run("verify", "--json", "--requests", "6", "--limit", "4GiB", "--", *command)
    found = said.document("verification")
    assert said.status == 0
    assert found["failure"] is None
    assert found["complete"]
    assert found["requests"]["ok"] == found["requests"]["sent"] >= 6
    assert found["trial"]["outcome"] == "served"
    assert 0 < found["headroom"] < 4 << 30
    assert place.run("history", found["id"]).status == 0
    shared = place.run("report", found["id"])
    assert shared.status == 0
    assert str(model.parent) not in shared.out


@pytest.mark.parametrize(
    "mode",
    [["--embedding", "--pooling", "mean"], ["--rerank", "--pooling", "rank"]],
    ids=["embedding", "rerank"],
)
def test_servers_that_do_not_complete_text(place: Place, model: Path, mode: list[str]) -> None:
    sizes = ("-b", "512", "-ub", "512")
    command: list[str | Path] = ["llama-server", "-m", model, *SMALL, *sizes, *mode]
    said = place.run("verify", "--json", "--requests", "4", "--", *command)
    found = said.document("verification")
    assert found["requests"]["sent"] >= 4
    assert (said.status, found["failure"]) == (0, None)


def test_a_server_that_runs_behind_a_key_and_a_prefix(place: Place, model: Path) -> None:
    words = ("--api-key", KEY, "--api-prefix", "/deep/er")
    with serving(place, model, *words, prefix="/deep/er") as url:
        ways: list[tuple[list[str], dict[str, str]]]
        ways = [(["--api-key", KEY], {}), ([], {"LLAMA_API_KEY": KEY})]
        for option, env in ways:
            said = place.run("verify", "--json", "--requests", "4", url, *option, env=env)
            found = said.document("verification")
            assert (said.status, found["failure"]) == (0, None)
            assert found["requests"]["ok"] == found["requests"]["sent"] >= 4
            assert KEY not in said.out + said.err
        assert "VERIFIED" in place.run("history", found["id"]).out
        refused = place.run("verify", url)
        assert refused.status == 2
        assert "API key" in refused.only_complaint()
    assert KEY.encode() not in (place.home / "history.sqlite3").read_bytes()
    gone = place.run("verify", url)
    assert gone.status == 3
    assert "Connection refused" in gone.only_complaint()


def test_what_answers_and_is_no_llama_server(place: Place) -> None:
    import http.server
    import threading

    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        said = place.run("verify", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert said.status == 3
    assert "not a llama-server" in said.only_complaint()
