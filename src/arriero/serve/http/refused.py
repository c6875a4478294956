"""A request that is answered without anyone else seeing it."""

from __future__ import annotations

from arriero.serve.http.interface import Headers


class RefusedError(Exception):
    """The answer to a request that goes no further.

    Attributes:
        body: None: an error as clients of the path expect it, with the message in it.
        final: Where the next request begins is not known, or not worth knowing: the connection ends
            with this answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        headers: Headers = (),
        body: bytes | None = None,
        *,
        final: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.body = body
        self.final = final
