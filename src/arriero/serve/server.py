"""The server that stays up: listens, hands requests to the engine they are for, drains, stops."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.base.errors import ArrieroError, UsageError
from arriero.process import scratch_directory, temporary_directory
from arriero.record.event import Event
from arriero.serve.access import Access, Keys, keys_in
from arriero.serve.assignment import Assignment, Note, Tell
from arriero.serve.http.front import Listener
from arriero.serve.http.interface import Outlet, Request
from arriero.serve.served import Served, access_of
from arriero.serve.settings import Settings, changed

DRAINED: Final = 0
GAVE_UP: Final = 1


def serve(assignment: Assignment, tell: Tell, note: Note) -> int:
    """Serve an assignment until told to stop, or until its engine is given up; the exit status.

    Raises:
        UsageError: The address cannot be had, or a file of keys or of a certificate not be read.
        ArrieroError: The engine cannot be started privately.
    """
    with scratch_directory(temporary_directory()) as directory:
        server = Server(assignment, directory, tell, note)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(server.run())
        tell(Event.stopped(status))
        return status


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    if sys.platform != "win32":
        with contextlib.suppress(ImportError):
            import uvloop

            return uvloop.new_event_loop
    return None


@dataclass
class _Table:
    """The supervised engines. Today there is one, for every request."""

    entries: list[Served]

    def for_request(self, request: Request) -> Served:
        return self.entries[0]

    def __iter__(self) -> Iterator[Served]:
        return iter(self.entries)


class Server:
    """Everything that runs in the loop."""

    def __init__(self, assignment: Assignment, directory: Path, tell: Tell, note: Note) -> None:
        self._assignment, self._directory = assignment, directory
        self._tell, self._note = tell, note
        self._settings = assignment.settings
        self._table = _Table([])
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._listener: Listener

    async def run(self) -> int:
        """Until it is told to stop, or the engine is given up."""
        given = self._assignment
        tls, access = _tls(given), self._admission(self._settings)
        served = Served(given, self._directory, self._tell, self._note)
        self._table.entries.append(served)
        self._listener = Listener(self._settings, access, self._answer)
        self._listener.refused = served.ledger.refuse
        try:
            url = await self._listen(tls)
            with self._signals():
                self._tell(Event.listening(url))
                self._note(f"listening on {url}; the page is at {url.rstrip('/')}/arriero/")
                served.start()
                return await self._until_stopped(served)
        finally:
            await self._listener.close()
            await served.close()

    async def _until_stopped(self, served: Served) -> int:
        given_up = asyncio.create_task(_given_up(served))
        told = asyncio.create_task(self._stop.wait())
        await asyncio.wait({given_up, told}, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if given_up.done():
            return await self._after_giving_up(served)
        given_up.cancel()
        await asyncio.gather(given_up, told, return_exceptions=True)
        self._note("stopping once requests are answered; a second signal stops at once")
        self._listener.close_listeners()
        draining = asyncio.create_task(self._drain())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({draining, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            draining.cancel()
            await self._end_at_once()
        await asyncio.gather(draining, hurry, return_exceptions=True)
        return DRAINED

    async def _after_giving_up(self, served: Served) -> int:
        """Requests that wait are told; then there is nothing left to serve."""
        self._note(f"gave up: {served.supervisor.gave_up}")
        self._listener.close_listeners()
        await served.desk.stop()
        await served.supervisor.stop()
        return GAVE_UP

    async def _drain(self) -> None:
        await asyncio.gather(*(one.drain(self._settings.drain) for one in self._table))

    async def _end_at_once(self) -> None:
        await self._listener.close()
        await asyncio.gather(*(one.supervisor.kill() for one in self._table))

    # -- requests

    async def _answer(self, request: Request, outlet: Outlet) -> None:
        served = self._table.for_request(request)
        if served.control.owns(request.path):
            allowed = self._listener.gatekeeper.has_key(request.headers)
            await served.control.answer(request, outlet, allowed=allowed)
        else:
            await served.answer(request, outlet)

    async def _listen(self, tls: ssl.SSLContext | None) -> str:
        """Listen; the address as clients write it.

        Raises:
            UsageError: It cannot be had.
        """
        listen = self._assignment.listen
        try:
            port = await self._listener.listen(listen.host, listen.port, listen.socket, tls)
        except OSError as error:
            raise UsageError(
                f"cannot listen on {listen}: {error.strerror or error}",
                hint="choose another with --listen, or end what listens there",
                id="cannot-listen",
            ) from None
        scheme = "https" if tls is not None else "http"
        if listen.socket is not None:
            return f"unix:{listen.socket}"
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        return f"{scheme}://{host}:{port}{self._assignment.serving.prefix}"

    # -- settings

    def _admission(self, settings: Settings) -> Access:
        given = self._assignment
        files = (key for path in settings.api_key_file for key in keys_in(path))
        return access_of(given, settings, Keys.of((*given.serving.api_keys, *files)))

    def _reload(self) -> None:
        """SIGHUP: keys and settings are read again; if one cannot be, all stay as they are."""
        try:
            settings = self._assignment.sources.settings()
            access = self._admission(settings)
        except ArrieroError as error:
            self._note(f"settings are not changed: {error.message}")
            return
        now, later = changed(self._settings, settings)
        self._settings = self._listener.limits = settings
        self._listener.gatekeeper = access
        for one in self._table:
            one.reload(settings)
        names = f" (changed: {', '.join(one.name for one in now)})" if now else ""
        self._note(f"settings and keys were read again{names}")
        for setting in later:
            self._note(f"{setting.name} counts after a new start of arriero serve")

    # -- signals

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reads settings again."""
        loop = asyncio.get_running_loop()
        taken = []
        handlers: list[tuple[int, Callable[[], None]]] = [
            (signal.SIGTERM, self._told_to_stop),
            (signal.SIGINT, self._told_to_stop),
        ]
        if sys.platform != "win32":
            handlers.append((signal.SIGHUP, self._reload))
        for number, handler in handlers:
            with contextlib.suppress(NotImplementedError):
                loop.add_signal_handler(number, handler)
                taken.append(number)
        try:
            yield
        finally:
            for number in taken:
                loop.remove_signal_handler(number)

    def _told_to_stop(self) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()


async def _given_up(served: Served) -> None:
    """Back when the engine will not be started again."""
    await served.supervisor.over()


def _tls(assignment: Assignment) -> ssl.SSLContext | None:
    if assignment.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate, key = assignment.tls
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"cannot use {certificate} with {key}: {error.strerror or error}",
            hint="name a certificate and its key, in PEM",
        ) from None
    context.set_alpn_protocols(["http/1.1"])
    return context
