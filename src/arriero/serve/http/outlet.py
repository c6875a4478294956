"""Where the answer to one request is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arriero.serve.http.headers import head_of_answer
from arriero.serve.http.interface import Headers, Request


class Line(Protocol):
    """The connection as an answer sees it."""

    @property
    def draining(self) -> bool:
        """It is closed after this answer."""

    def send(self, data: bytes) -> None:
        """Write; nothing happens on a connection that has ended."""

    async def room(self) -> None: ...

    def answer_headers(self, path: str, headers: Headers) -> Headers: ...

    def soon(self, outlet: ClientOutlet) -> None:
        """Call ``outlet.flush`` when the loop comes round."""

    def abort(self) -> None: ...


class ClientOutlet:
    """Implements :class:`arriero.serve.http.interface.Outlet` for one request of a connection.

    The head waits for the first piece of the body, or for the next turn of the loop: mostly they
    come together and leave together.
    """

    def __init__(self, line: Line, request: Request) -> None:
        self.begun = False
        self.ended = False
        self.keeps = request.keep_alive
        self._line = line
        self._request = request
        self._chunked = False
        self._silent = request.method == "HEAD"
        self._left: int | None = None
        self._head = b""

    def begin(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], length: int | None
    ) -> None:
        """See :class:`Outlet`."""
        if self.begun:
            raise RuntimeError("an answer begins once")
        self.begun = True
        request = self._request
        bodiless = status in {204, 304} or status < 200
        self._silent = self._silent or bodiless
        old = request.http10 and length is None and not self._silent
        self.keeps = request.keep_alive and not self._line.draining and not old
        self._chunked = length is None and not self._silent and not request.http10
        self._left = None if self._silent else length
        self._head = head_of_answer(
            status,
            (*headers, *self._line.answer_headers(request.path, request.headers)),
            length=None if bodiless else length,
            close=not self.keeps,
            chunked=self._chunked,
        )
        self._line.soon(self)

    def write(self, data: bytes) -> None:
        """See :class:`Outlet`."""
        if not data or self._silent or self.ended:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        elif self._left is not None:
            self._left -= len(data)
            if self._left < 0:  # what follows would be taken for the next answer
                self.cut()
                return
        if self._head:
            data, self._head = self._head + data, b""
        self._line.send(data)

    async def room(self) -> None:
        """See :class:`Outlet`."""
        self.flush()
        await self._line.room()

    def end(self) -> None:
        """See :class:`Outlet`."""
        if self.ended:
            return
        if self._left:
            self.cut()
            return
        self.ended = True
        if self._chunked:
            self._head += b"0\r\n\r\n"
        self.flush()

    def cut(self) -> None:
        """See :class:`Outlet`."""
        if not self.ended:
            self.keeps = False
            self.ended = True
            self._head = b""
            self._line.abort()

    def flush(self) -> None:
        """Write the head if it still waits."""
        if self._head:
            data, self._head = self._head, b""
            self._line.send(data)
