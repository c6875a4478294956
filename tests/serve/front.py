"""Arriero's front door: ``arriero serve --json -- ...`` as a process of its own, and its events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

ARRIERO = (sys.executable, "-m", "arriero")
SECONDS = 120.0
"""The longest that anything is waited for; only a failure takes that long."""


def environment(root: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
    """An environment with a home and temporary files of its own, without any graphics driver."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ARRIERO_", "LLAMA_", "GGML_"))
    }
    (root / "scratch").mkdir(parents=True, exist_ok=True)
    own = {"ARRIERO_HOME": str(root / "home"), "TMPDIR": str(root / "scratch")}
    return {**kept, **own, "GGML_VK_VISIBLE_DEVICES": "99", **more}


class Front:
    """A running ``arriero serve``. As a context manager it is drained and leaves nothing behind.

    Attributes:
        events: What it wrote to standard output so far.
        said: What it wrote to standard error.
    """

    def __init__(
        self,
        root: Path,
        command: Sequence[str | Path],
        options: Sequence[str | Path] = (),
        env: Mapping[str, str] = {},
        start: bool = True,
    ) -> None:
        self.root = root
        self.events: list[dict[str, Any]] = []
        self.said = ""
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*ARRIERO, "serve", "--json", *options, "--", *command],
            env=environment(root, env),
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if start:
            try:
                self.url = str(self.event("listening")["url"])
                self.event("ready")
            except BaseException:
                self.kill()
                raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            assert event["schema"] == "arriero.event/1", line
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said += line

    def event(self, name: str, count: int = 1, seconds: float = SECONDS) -> dict[str, Any]:
        """The ``count``-th event of this name; waits for it."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = [event for event in self.events if event["event"] == name]
                if len(found) >= count:
                    return found[count - 1]
                left = deadline - time.monotonic()
                if left <= 0 or self._process.poll() is not None:
                    raise AssertionError(f"no event {name!r}: {self.events} {self.said[-3000:]}")
                self._changed.wait(min(left, 0.5))

    def count(self, name: str) -> int:
        """How many events of this name there were."""
        return sum(event["event"] == name for event in self.events)

    def get(self, path: str, key: str = "") -> bytes:
        """The body of what is at this path."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            found: bytes = answer.read()
        return found

    def status(self, key: str = "") -> dict[str, Any]:
        """``/arriero/status``."""
        found: dict[str, Any] = json.loads(self.get("/arriero/status", key))
        return found

    def settled(self, key: str = "") -> dict[str, Any]:
        """``/arriero/status`` once it is ready and nothing is in flight."""
        deadline = time.monotonic() + SECONDS
        while True:
            status = self.status(key)
            counts = status["requests"]
            ends = ("answered", "refused", "error_events", "cancelled", "lost")
            if status["state"] == "ready" and counts["received"] == sum(map(counts.get, ends)):
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.05)

    def engine_pid(self, key: str = "") -> int:
        """The engine that answers now; waits for one."""
        deadline = time.monotonic() + SECONDS
        while True:
            status = self.status(key)
            if status["state"] == "ready" and status["engine"]["pid"]:
                return int(status["engine"]["pid"])
            assert time.monotonic() < deadline, status
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = SECONDS) -> int:
        """Its exit status, once its output is read to the end."""
        status = self._process.wait(seconds)
        for thread in self._threads:
            thread.join(10)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return status

    def stop(self) -> int:
        """Drain it."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is not None:
            self.wait()
            return
        children = psutil.Process(self.pid).children(recursive=True)
        if error is not None:
            self.kill()
            return
        status = self.stop()
        assert status == 0, (status, self.said[-3000:])
        assert "Traceback" not in self.said, self.said[-3000:]
        _gone, left = psutil.wait_procs(children, timeout=10)
        assert not left, left
        assert list((self.root / "scratch").iterdir()) == []
