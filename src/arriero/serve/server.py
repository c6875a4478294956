"""The server: a table of supervised engines, clients in front, signals, the end."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from arriero.base.errors import ArrieroError, UsageError
from arriero.process import scratch_directory, temporary_directory
from arriero.record import Event, Incident
from arriero.serve.access import Access, Keys, keys_in
from arriero.serve.apis import registry
from arriero.serve.apis.interface import Defaults
from arriero.serve.assignment import Assignment, Note, Tell
from arriero.serve.control.handler import Control
from arriero.serve.control.view import ServerView
from arriero.serve.http.front import Listener
from arriero.serve.http.interface import Outlet, Request
from arriero.serve.http.upstream import Pool
from arriero.serve.requests.exchange import Desk, Rules
from arriero.serve.requests.ledger import Ledger
from arriero.serve.requests.lobby import Lobby
from arriero.serve.settings import Listen, Settings
from arriero.serve.supervisor.interface import State
from arriero.serve.supervisor.log import RotatingLog
from arriero.serve.supervisor.options import Hooks, Options
from arriero.serve.supervisor.policy import Policy
from arriero.serve.supervisor.supervisor import Supervisor

_LOG: Final = "engine.log"
_LAST_WORDS: Final = 0.5
"""Seconds that clients have to read what they are told at the end."""


def serve(assignment: Assignment, tell: Tell, note: Note) -> int:
    """Serve until told to stop, or until the engine is given up; the exit status.

    Raises:
        ArrieroError: It cannot listen, or a certificate cannot be used. Nothing runs then.
    """
    with (
        scratch_directory(temporary_directory()) as scratch,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        return runner.run(Server(assignment, tell, note, scratch).run())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: it takes a fifth off each request."""
    if sys.platform == "win32":
        return None
    else:  # noqa: RET505 - each platform's checker sees one branch
        try:
            import uvloop
        except ImportError:
            return None
        return uvloop.new_event_loop


class Supervised:
    """One entry of the table: an engine, its desk and what shows both."""

    def __init__(
        self, assignment: Assignment, log: RotatingLog, ledger: Ledger, tell: Tell
    ) -> None:
        self.assignment = assignment
        settings = assignment.settings
        self.supervisor = Supervisor(
            assignment.command,
            assignment.engine,
            Pool,
            log,
            Options(
                cwd=assignment.cwd,
                policy=Policy(settings.restarts.count, settings.restarts.seconds),
                hang_after=settings.hang_after,
                grace=settings.drain,
            ),
            Hooks(event=tell, incident=self._keep),
        )
        self.rules = Rules(prefix=assignment.serving.prefix, defaults=self._defaults)
        self.apply(settings)
        lobby = Lobby(settings.queue, self.supervisor.working)
        self.desk = Desk(self.supervisor, self.rules, ledger, lobby)
        self.view = ServerView(assignment, self.supervisor, ledger.told)
        self.note: Note = lambda _: None
        self._last = Defaults(build=assignment.build, prefix=assignment.serving.prefix)

    def apply(self, settings: Settings) -> None:
        """Take settings that can change while it runs."""
        self.rules.hold = settings.hold
        self.rules.comment = settings.keepalive_comment
        self.rules.continue_ = settings.continue_

    def _defaults(self) -> Defaults:
        run = self.supervisor.run
        if run is not None and run.live is not None:
            self._last = run.live.defaults
        return self._last

    def _keep(self, incident: Incident) -> None:
        """An incident as a record. What cannot be kept must not end the server."""
        try:
            self.assignment.store.save(incident, self.assignment.redactor)
        except ArrieroError as error:
            self.note(f"an incident is not kept: {error.message}")


class Server:
    """Clients in front, engines behind."""

    def __init__(self, assignment: Assignment, tell: Tell, note: Note, scratch: Path) -> None:
        self._assignment, self._tell, self._note = assignment, tell, note
        settings = assignment.settings
        directory = settings.log_dir or scratch
        self._log = RotatingLog(directory / _LOG, settings.log_size)
        self._ledger = Ledger()
        entry = Supervised(assignment, self._log, self._ledger, tell)
        entry.note = note
        self._engines: dict[str, Supervised] = {assignment.model: entry}
        self._control = Control(entry.view, assignment.redactor, assignment.serving.prefix)
        self._listener = Listener(settings, self._access(settings), self._answer)
        self._listener.refused = self._ledger.refuse
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()

    # -- requests

    def engine_of(self, request: Request) -> Supervised:
        """Whose request it is. There is one engine today."""
        return next(iter(self._engines.values()))

    async def _answer(self, request: Request, outlet: Outlet) -> None:
        if self._control.owns(request.path):
            allowed = self._listener.gatekeeper.has_key(request.headers)
            await self._control.answer(request, outlet, allowed=allowed)
            return
        await self.engine_of(request).desk.answer(request, outlet)

    def _access(self, settings: Settings) -> Access:
        given = self._assignment
        files = (key for path in settings.api_key_file for key in keys_in(path))
        keys = (*given.serving.api_keys, *files)
        own = {given.listen.host.lower()} - {"", "0.0.0.0", "::"}  # noqa: S104 - taken out
        return Access(
            keys=Keys.of(keys),
            hosts=frozenset({*own, *settings.allow_host}),
            origins=frozenset(settings.allow_origin),
            prefix=given.serving.prefix,
            error_body=registry.error_body,
        )

    # -- the life of the server

    async def run(self) -> int:
        """From the first connection to the last; the exit status."""
        tls = _context(self._assignment.tls) if self._assignment.tls else None
        listen = self._assignment.listen
        try:
            port = await self._listener.listen(listen.host, listen.port, listen.socket, tls)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"cannot listen on {listen}: {reason}",
                hint="end what listens there, or use --listen with another address",
                id="cannot-listen",
            ) from None
        url = _url(listen, port, tls is not None, self._assignment.serving.prefix)
        self._note(f"listening on {url}; the page is at {url.rstrip('/')}/arriero/")
        self._tell(Event.listening(url))
        try:
            with self._signals():
                for entry in self._engines.values():
                    entry.supervisor.start()
                status = await self._until_over()
        finally:
            await self._end()
        self._tell(Event.stopped(status))
        return status

    async def _until_over(self) -> int:
        """Wait for a signal or for an engine that is given up; drain."""
        gone = [asyncio.create_task(_gone(e.supervisor)) for e in self._engines.values()]
        told = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({told, *gone}, return_when=asyncio.FIRST_COMPLETED)
        given_up = next((task.result() for task in gone if task.done()), "")
        for task in (told, *gone):
            task.cancel()
        if given_up:
            self._note(f"given up: {given_up}")
            await self._drain(_LAST_WORDS)
            return 1
        self._note("stopping: requests in work are answered first")
        await self._drain(self._assignment.settings.drain)
        return 0

    async def _drain(self, seconds: float) -> None:
        for entry in self._engines.values():
            entry.rules.draining = True
            entry.supervisor.draining = True
        self._listener.close_listeners()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._ledger.in_flight and loop.time() < until and not self._at_once.is_set():
            await asyncio.sleep(0.02)

    async def _end(self) -> None:
        for entry in self._engines.values():
            if self._at_once.is_set():
                await entry.supervisor.kill()
            else:
                await entry.supervisor.stop()
        await self._listener.close()
        self._log.close()

    def _signals(self) -> _Handled:
        return _Handled(
            {
                signal.SIGTERM: self._stop,
                signal.SIGINT: self._stop,
                getattr(signal, "SIGHUP", signal.SIGTERM): self._reload,
            }
            if sys.platform != "win32"
            else {}
        )

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    def _reload(self) -> None:
        """Read keys and settings again; with a mistake in them, those from before stay."""
        try:
            settings = self._assignment.sources.settings()
            access = self._access(settings)
        except ArrieroError as error:
            self._note(f"settings are not changed: {error.message}")
            return
        self._listener.gatekeeper = access
        for entry in self._engines.values():
            entry.apply(settings)
        self._note("settings and keys were read again")


class _Handled:
    """Signals that are handled in the event loop for a while."""

    def __init__(self, handlers: Mapping[signal.Signals, Callable[[], None]]) -> None:
        self._handlers = handlers

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._handlers.items():
            loop.add_signal_handler(number, handler)

    def __exit__(self, *exc: Any) -> None:
        loop = asyncio.get_running_loop()
        for number in self._handlers:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(number)


async def _gone(supervisor: Supervisor) -> str:
    """Why it is given up, once it is."""
    while supervisor.state is not State.FAILED:
        await asyncio.sleep(0.1)
    return supervisor.gave_up or "the engine is not started again"


def _context(files: tuple[Path, Path]) -> ssl.SSLContext:
    certificate, key = files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"cannot use the certificate {certificate} with {key}: {error}",
            hint="name a certificate and its key in PEM form",
        ) from None
    return context


def _url(listen: Listen, port: int, tls: bool, prefix: str) -> str:
    if listen.socket is not None:
        return f"unix:{listen.socket}"
    shown = Listen(listen.host, port)
    return f"{'https' if tls else 'http'}://{shown}{prefix}"
