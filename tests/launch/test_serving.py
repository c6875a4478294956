from __future__ import annotations

import http.client
import os
import shlex
import socket
import subprocess
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.errors import UsageError
from arriero.command import builtin_flags, parse_command
from arriero.launch import Mode, Serving, serving_of


def read(text: str, cwd: Path = Path()) -> Serving:
    return serving_of(parse_command(shlex.split(text), builtin_flags(), {}), cwd)


def test_defaults() -> None:
    served = read("llama-server -m x.gguf")
    assert served.url("/health") == "http://127.0.0.1:8080/health"
    assert served.headers() == {}
    assert (served.mode, served.router, served.metrics, served.slots) == (
        Mode.TEXT,
        False,
        False,
        True,
    )


def test_everything_set(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("from-file\n# note\n\n")
    served = read(
        "LLAMA_API_KEY=v LLAMA_ARG_API_PREFIX=/x llama-server -m x --host 0.0.0.0 --port 99"
        " --api-key a --api-key 'b,\"c,d\"' --api-key-file keys --ssl-key-file k --ssl-cert-file c"
        " --metrics --no-slots",
        tmp_path,
    )
    assert served.url("/health") == "https://127.0.0.1:99/x/health"
    assert served.api_keys == ("v", "a", "b", "c,d", "from-file")
    assert served.headers() == {"Authorization": "Bearer v"}
    assert served.metrics
    assert not served.slots
    assert "c,d" not in repr(served)


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ("--embedding", Mode.EMBEDDING),
        ("--embeddings --pooling rank", Mode.RERANK),
        ("--reranking", Mode.RERANK),
        ("--pooling mean", Mode.TEXT),
    ],
)
def test_mode(flags: str, mode: Mode) -> None:
    assert read(f"llama-server -m x {flags}").mode is mode


def test_hosts() -> None:
    assert read("llama-server --host ::").url("/") == "http://[::1]:8080/"
    assert read("llama-server --host /tmp/s.sock").socket == "/tmp/s.sock"
    with pytest.raises(UsageError, match="not a port"):
        read("llama-server --port 70000")
    with pytest.raises(UsageError, match="api-key-file"):
        read("llama-server --api-key-file missing", Path("/nonexistent"))


def status(url: str, headers: dict[str, str]) -> int | None:
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=5)
    try:
        connection.request("GET", address.path, headers=headers)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10434])
def test_prefix_and_keys_are_the_engine_s(
    build: int, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    """Every key that is foretold opens the server, and without one even /health is closed."""
    binary = engine_path(build)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "keys").write_text("k1\n#k2\n")
    words = [str(binary), "--offline", "--port", str(port), "--api-prefix", "/x"]
    words += ["--api-key", "k3", "--api-key", 'k4,"k,5"', "--api-key-file", str(tmp_path / "keys")]
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LD_LIBRARY_PATH": str(binary.parent),
        "LLAMA_API_KEY": "k6",
    }
    served = serving_of(parse_command(words, builtin_flags(), environ), tmp_path)
    server = subprocess.Popen(
        words, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while status(served.url("/health"), served.headers()) != 200:
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.05)
        assert status(served.url("/health"), {}) == 401
        for key in served.api_keys:
            assert status(served.url("/props"), {"Authorization": f"Bearer {key}"}) == 200, key
        assert len(served.api_keys) == 5
        assert status(served.url("/props"), {"Authorization": "Bearer #k2"}) == 401
    finally:
        server.kill()
        server.wait()
