"""Start the real llama-server for one test and talk to it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def disk_bytes(path: Path) -> int:
    """What a file takes on disk; its holes take nothing."""
    if sys.platform == "win32":
        return path.stat().st_size
    else:  # noqa: RET505 - mypy knows this form as a platform check
        return path.stat().st_blocks * 512


class Served:
    """A server that listens; ``log`` is everything it has said so far."""

    def __init__(self, port: int, log_file: Path) -> None:
        self.port, self._log_file = port, log_file

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer: dict[str, Any] = json.load(response)
            assert response.status == 200, answer
            return answer
        finally:
            connection.close()


@contextmanager
def serve(engine: Path, model: Path, *flags: str) -> Iterator[Served]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log_file = model.with_suffix(f".{port}.log")
    argv = [str(engine), "-m", str(model), "--port", str(port), "-lv", "4", "-t", "2", *flags]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(engine.parent)}
    with log_file.open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
    served = Served(port, log_file)
    try:
        deadline = time.monotonic() + 60
        while "listening on http" not in served.log:
            assert process.poll() is None, f"ended with {process.returncode}:\n{served.log[-2000:]}"
            assert time.monotonic() < deadline, served.log[-2000:]
            time.sleep(0.02)
        yield served
    finally:
        process.kill()
        process.wait()
