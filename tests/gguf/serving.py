"""Start the real llama-server for one test and talk to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LISTENING = re.compile(r"listening on http://127\.0\.0\.1:(\d+)\s")


def disk_bytes(path: Path) -> int:
    """What a file takes on disk; its holes take nothing."""
    if sys.platform == "win32":
        return path.stat().st_size
    else:  # noqa: RET505 - mypy knows this form as a platform check
        return path.stat().st_blocks * 512


class Served:
    """A server that listens; ``log`` is everything it has said so far."""

    def __init__(self, port: int, log_file: Path, pid: int = 0) -> None:
        self.port, self._log_file, self.pid = port, log_file, pid

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
    handle, name = tempfile.mkstemp(suffix=".log", prefix=model.stem, dir=model.parent)
    log_file = Path(name)
    # A free port that is looked for before may be gone when the server starts: it takes one itself.
    argv = [str(engine), "-m", str(model), "--port", "0", "-lv", "4", "-t", "2", *flags]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(engine.parent)}
    with os.fdopen(handle, "wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
    try:
        deadline = time.monotonic() + 60
        while not (listening := _LISTENING.search(text := log_file.read_text(errors="replace"))):
            assert process.poll() is None, f"ended with {process.returncode}:\n{text[-2000:]}"
            assert time.monotonic() < deadline, text[-2000:]
            time.sleep(0.02)
        yield Served(int(listening[1]), log_file, process.pid)
    finally:
        process.kill()
        process.wait()
