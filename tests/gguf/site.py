"""A web server in a thread, for reading models over HTTP: it does what a test tells it to."""

from __future__ import annotations

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

_RANGE = re.compile(r"bytes=(\d+)-(\d+)\Z")


@dataclass(frozen=True)
class Asked:
    """One request: its path with the query, the range and the credentials."""

    path: str
    range: tuple[int, int] | None
    authorization: str | None


@dataclass
class Site:
    """``files`` by path are served by range; ``odd`` paths by a function of the handler."""

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    odd: dict[str, Callable[[Handler], None]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0
    latency: float = 0.0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    site: Site
    range: tuple[int, int] | None

    def do_GET(self) -> None:
        found = _RANGE.match(self.headers.get("Range", ""))
        self.range = (int(found[1]), int(found[2])) if found else None
        site = self.site
        site.asked.append(Asked(self.path, self.range, self.headers.get("Authorization")))
        time.sleep(site.latency)
        path = self.path.partition("?")[0]
        if path in site.odd:
            site.odd[path](self)
        elif path in site.files:
            self.part(site.files[path])
        else:
            self.answer(404)

    def part(self, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """The range that is asked for, as a good server answers."""
        assert self.range is not None
        first, last = self.range[0], min(self.range[1], len(data) - 1)
        if first >= len(data):
            self.answer(416, headers={"Content-Range": f"bytes */{len(data)}"})
            return
        where = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.answer(206, data[first : last + 1], where | dict(headers or {}))

    def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
            self.site.sent += len(body)
        except OSError:  # the client has had enough
            self.close_connection = True

    def send_part_of(self, data: bytes, length: int) -> None:
        """Promise everything, send so many bytes and break the connection."""
        self.send_response(206)
        self.send_header("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:length])
        self.reset()

    def reset(self) -> None:
        """Break the connection without a further word."""
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that leave early are what is tested."""


@contextmanager
def site(
    files: Mapping[str, bytes] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[Site]:
    """A site at a free port of the loopback interface."""
    here = Site(files=dict(files or {}))
    handler = type("OneSite", (Handler,), {"site": here})
    with Server(("127.0.0.1", 0), handler) as server:
        here.port = server.server_port
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield here
        finally:
            server.shutdown()
            thread.join()
