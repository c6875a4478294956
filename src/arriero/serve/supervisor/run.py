"""One start of the engine: its process, its log, its connections."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from arriero.base.errors import ArrieroError
from arriero.command import Command
from arriero.process import Exit, Limit, MemoryUse, Running, start
from arriero.serve.http.interface import Upstream
from arriero.serve.supervisor.interface import Live
from arriero.serve.supervisor.log import StartLog
from arriero.serve.supervisor.private import Private
from arriero.serve.supervisor.verdict import Condemned


class Run:
    """One start. Everything but ``log`` is used in the event loop alone."""

    def __init__(
        self,
        generation: int,
        command: Command,
        private: Private,
        log: StartLog,
        upstream: Upstream,
    ) -> None:
        self.generation = generation
        self.argv = command.safe_argv()
        """As it was given, without secrets."""
        self.private = private
        self.log = log
        self.upstream = upstream
        self.live: Live | None = None
        self.began = time.monotonic()
        self.ready_s: float | None = None
        self.ready_at: float | None = None
        self.exit: Exit | None = None
        self.refused: ArrieroError | None = None
        self.condemned: Condemned | None = None
        """Why it is ended, if Arriero does it."""
        self.memory = MemoryUse()
        self.progress = 0
        """Pieces of answers that came from it."""
        self._running: Running | None = None
        self._kill: float | None = None

    @property
    def pid(self) -> int | None:
        return self._running.pid if self._running is not None and self.exit is None else None

    @property
    def alive(self) -> bool:
        """Whether the process runs, as far as is known."""
        running = self._running
        return running is not None and self.exit is None and running.poll() is None

    async def launch(self, cwd: Path, limit: Limit | None, on_end: Callable[[], None]) -> None:
        """Start it; ``on_end`` is called once, in this loop, when it is gone."""
        loop = asyncio.get_running_loop()
        try:
            running = await asyncio.to_thread(
                start,
                self.private.command.exec_argv,
                env=self.private.environ,
                on_line=self.log.on_line,
                cwd=cwd,
                limit=limit,
                scratch=self.private.scratch,
            )
        except ArrieroError as error:
            self.refused = error
            on_end()
            return
        self._running = running

        def ended() -> None:
            self.exit = running.poll() or Exit(-9)
            self.upstream.close()
            on_end()

        def wait() -> None:
            try:
                running.wait()
            finally:
                running.close()
                with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                    loop.call_soon_threadsafe(ended)

        threading.Thread(target=wait, name=f"engine {running.pid}", daemon=True).start()
        if self._kill is not None:
            await self.stop(self._kill)

    def sample(self) -> None:
        """Look at its memory."""
        if self._running is not None and self.exit is None:
            seen = self._running.memory()
            if seen.rss is not None or self.memory.rss is None:
                self.memory = seen

    async def stop(self, grace: float) -> None:
        """End it: asked first if there is grace. Its end is told as any other is."""
        self._kill = grace
        if self._running is not None:
            await asyncio.to_thread(self._running.stop, grace)
