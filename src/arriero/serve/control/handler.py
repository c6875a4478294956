"""Answers everything under ``/arriero/``."""

from __future__ import annotations

import msgspec

from arriero.base.redact import Redactor
from arriero.base.vocabulary import Vocabulary
from arriero.logs.telling import told_lines
from arriero.record import (
    ErrorBody,
    ErrorDocument,
    Incidents,
    Status,
    encode,
)
from arriero.serve.control import endpoints
from arriero.serve.control.figures import Figures
from arriero.serve.control.interface import View
from arriero.serve.control.page import page
from arriero.serve.http.interface import Outlet, Request

_IDLE = "update_slots: all slots are idle"
"""Printed whenever the engine is asked for its figures."""
_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Reply(msgspec.Struct, frozen=True):
    """A whole answer, small enough to be made at once."""

    status: int
    media: str
    body: bytes
    more: tuple[tuple[bytes, bytes], ...] = ()
    policy: str = _POLICY

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """What is said of it: that nobody may keep it, frame it, or read it from elsewhere."""
        return (
            (b"content-type", self.media.encode()),
            (b"cache-control", b"no-store"),
            (b"content-security-policy", self.policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            *self.more,
        )


class Control:
    """The endpoints of one server.

    Args:
        view: What there is to show.
        redactor: Knows the keys of the server and of the engine: they are in no answer.
        prefix: ``--api-prefix`` of the command; the endpoints are found below it as well.
    """

    def __init__(self, view: View, redactor: Redactor, prefix: str = "") -> None:
        self._view, self._redactor, self._prefix = view, redactor, prefix
        self._figures = Figures(view)
        self._metrics: object | None = None
        self._log: tuple[tuple[str, ...], bytes] = ((), b"")

    def owns(self, path: str) -> bool:
        """Whether a path (without query) is answered here and not by the engine."""
        return endpoints.is_ours(path, self._prefix)

    async def answer(self, request: Request, outlet: Outlet, *, allowed: bool = True) -> None:
        """Answer one request. ``allowed``: it has the key, or none is needed.

        Without the key the only thing to be had is the empty page, which asks for it.
        """
        reply = await self.reply(request.method, request.path, allowed=allowed)
        outlet.begin(reply.status, reply.headers(), len(reply.body))
        if request.method != "HEAD":
            outlet.write(reply.body)
        outlet.end()

    async def reply(self, method: str, path: str, *, allowed: bool = True) -> Reply:
        """What is answered to a method and a path."""
        place = endpoints.place_of(path, self._prefix)
        if endpoints.is_bare(path, self._prefix):
            return Reply(308, endpoints.TEXT, b"", ((b"location", b"arriero/"),))
        if place is not None and not place.endpoint.path and method in ("GET", "HEAD"):
            html, policy = page()
            return Reply(200 if allowed else 401, endpoints.HTML, html, _ask(allowed), policy)
        if not allowed:
            return _error(401, "key", "this needs the key of the server", _ask(allowed))
        if place is None:
            return _error(404, "not-found", "there is nothing at this path under /arriero/")
        if method not in ("GET", "HEAD"):
            more = ((b"allow", b"GET, HEAD"),)
            return _error(405, "method", "this can only be read, with GET or HEAD", more)
        return await self._read(place)

    async def status(self) -> Status:
        """The status, with what the engine says."""
        await self._figures.refresh()
        status = self._view.status()
        return msgspec.structs.replace(
            status,
            slots=status.slots or self._figures.slots,
            tokens=self._figures.tokens() if status.tokens.prompt is None else status.tokens,
        )

    async def _read(self, place: endpoints.Place) -> Reply:
        match place.endpoint.path:
            case "status":
                return self._document(await self.status())
            case "incidents":
                listed = (msgspec.structs.replace(one, log=()) for one in self._view.incidents())
                return self._document(Incidents(incidents=tuple(listed)))
            case "incidents/{id}":
                return self._incident(place.id)
            case "log":
                return Reply(200, endpoints.TEXT, self._log_tail())
            case "metrics":
                return Reply(200, endpoints.METRICS, await self._measured())
            case _:
                return Reply(200, endpoints.JSON, msgspec.json.encode(endpoints.openapi()))

    def _document(self, document: msgspec.Struct) -> Reply:
        return Reply(200, endpoints.JSON, encode(self._redactor.scrub(document)))

    def _incident(self, id_: str) -> Reply:
        found = next((one for one in self._view.incidents() if one.id == id_), None)
        if found is None:
            return _error(404, "no-incident", "there is no incident of this ID in this run")
        log = told_lines(map(self._redactor.share, found.log), Vocabulary())
        return self._document(msgspec.structs.replace(found, log=tuple(log)))

    def _log_tail(self) -> bytes:
        """Lines that are known to hold no text of a client; made anew when there are others."""
        lines = tuple(line for line in self._view.log() if _IDLE not in line)
        if lines != self._log[0]:
            told = told_lines(map(self._redactor.share, lines), Vocabulary())
            self._log = lines, "".join(line + "\n" for line in told).encode("utf-8", "replace")
        return self._log[1]

    async def _measured(self) -> bytes:
        from arriero.serve.control.metrics import Metrics  # late: only scrapers need it

        status = await self.status()
        if not isinstance(self._metrics, Metrics):
            self._metrics = Metrics()
        return self._metrics.text(status, self._view.incidents(), self._figures.metrics)


def _ask(allowed: bool) -> tuple[tuple[bytes, bytes], ...]:
    return () if allowed else ((b"www-authenticate", b"Bearer"),)


def _error(
    status: int, id_: str, message: str, more: tuple[tuple[bytes, bytes], ...] = ()
) -> Reply:
    hint = {
        "key": "send it as Authorization: Bearer KEY",
        "not-found": "read /arriero/openapi.json for what there is",
        "method": "send GET",
        "no-incident": "read /arriero/incidents for all of them",
    }[id_]
    document = ErrorDocument(error=ErrorBody(id=id_, message=message, hint=hint))
    return Reply(status, endpoints.JSON, encode(document), more)
