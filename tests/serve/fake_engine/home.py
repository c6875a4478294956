"""How a test and the engine that does no work talk: orders, settings and a ledger."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).resolve().parent.parent.parent.parent


@dataclass(frozen=True)
class Order:
    """What it is to do when a request comes to a phase.

    Attributes:
        phase: ``load`` (before it listens), ``accepted`` (the request is in the ledger, nothing is
            answered), ``prompt`` (half of the prompt is read), ``head`` (the head is written),
            ``words`` (so many words are written), ``inside`` (an event is cut in two), ``last``
            (all but the end is written), ``done`` (the answer is whole).
        act: ``kill``, ``segv``, ``abort``, ``exit``, ``hang`` (the whole process stops), ``sick``
            (500 to every completion from now on, while ``/health`` is fine), ``drop`` (the
            connection alone ends), ``500`` (this request alone), ``busy`` (seconds of progress).
        job: The job it is meant for; empty for any.
        words: How many words, with the phase ``words``.
        always: It is not used up.
        log: Lines to log first.
    """

    phase: str
    act: str = "kill"
    job: str = ""
    words: int = 0
    always: bool = False
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Home:
    """The directory by which a test and the engine talk."""

    path: Path

    @property
    def program(self) -> Path:
        return self.path / "llama-server"

    def install(self, **settings: Any) -> Path:
        """Write the program and how it behaves; its path.

        Settings: ``rate`` (words per second, 0 for as fast as they go), ``load_s``, ``unix``
        (whether ``--host x.sock`` is known).
        """
        (self.path / "orders").mkdir(parents=True, exist_ok=True)
        (self.path / "settings.json").write_text(json.dumps(settings))
        self.program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(_ROOT)!r})\n"
            "from tests.serve.fake_engine.program import main\n"
            f"main({str(self.path)!r}, sys.argv[1:])\n"
        )
        self.program.chmod(0o700)
        return self.program

    def set(self, **settings: Any) -> None:
        """Change how the next start behaves."""
        (self.path / "settings.json").write_text(json.dumps({**self.settings(), **settings}))

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "settings.json").read_text())
        return found

    def order(self, order: Order) -> None:
        """Give an order; orders are looked at in the order in which they were given."""
        name = f"{time.monotonic_ns():020}"
        part = self.path / f".{name}"
        part.write_text(json.dumps(asdict(order)))
        part.rename(self.path / "orders" / name)

    def pending(self) -> list[Order]:
        """Orders that are not used up."""
        return [order for _, order in self._orders()]

    def take(self, phase: str, job: str, words: int) -> Order | None:
        """The order for this moment, which is used up."""
        for file, order in self._orders():
            if order.phase != phase or (order.job and order.job != job):
                continue
            if phase == "words" and order.words != words:
                continue
            if not order.always:
                file.unlink()
            return order
        return None

    def _orders(self) -> Iterator[tuple[Path, Order]]:
        for file in sorted((self.path / "orders").iterdir()):
            read = json.loads(file.read_text())
            yield file, Order(**{**read, "log": tuple(read["log"])})

    def note(self, **entry: Any) -> None:
        """One line into the ledger, on the disk before this returns."""
        line = json.dumps({"pid": os.getpid(), **entry}) + "\n"
        descriptor = os.open(self.path / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def ledger(self) -> list[dict[str, Any]]:
        """What was noted: accepted, done, and starts."""
        file = self.path / "ledger"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
