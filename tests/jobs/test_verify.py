"""What ``arriero verify URL`` makes of whatever answers there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.jobs.verify import VerifyOptions, verify_url
from arriero.store import Store


@contextmanager
def answering(props: Any, *, status: int = 200, path: str = "/props") -> Iterator[str]:
    """The address of a server that answers ``path`` with ``props`` and all else with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path == path
            self.send_response(status if found else 404)
            if 300 <= status < 400:
                self.send_header("Location", self.path)
            self.end_headers()
            if found:
                self.wfile.write(json.dumps(props).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def refused(url: str, tmp_path: Path, key: str | None = None) -> ArrieroError:
    with pytest.raises(ArrieroError) as caught:
        verify_url(url, VerifyOptions(api_key=key), store=Store(tmp_path))
    return caught.value


def told(slots: Any, n_ctx: Any) -> dict[str, Any]:
    return {"total_slots": slots, "default_generation_settings": {"n_ctx": n_ctx}}


@pytest.mark.parametrize(
    "props",
    [
        told(-1, 4096),
        told(0, 4096),
        told(100_000_000, 4096),
        told(4, 0),
        told(4, 1 << 40),
        told("many", 4096),
        told(None, None),
        [],
        "hello",
        {},
    ],
)
def test_what_does_not_say_sane_slots_gets_no_load(props: Any, tmp_path: Path) -> None:
    with answering(props) as url:
        error = refused(url, tmp_path)
    assert isinstance(error, NotFoundError)
    assert error.id == "not-llama-server"


def test_a_router_is_named_as_one(tmp_path: Path) -> None:
    props = {"role": "router", "default_generation_settings": {"params": None, "n_ctx": 0}}
    with answering(props) as url:
        error = refused(url, tmp_path)
    assert error.id == "router"


def test_a_wrong_key_is_not_called_missing(tmp_path: Path) -> None:
    with answering({}, status=401) as url:
        missing, wrong = refused(url, tmp_path), refused(url, tmp_path, "abcdefgh")
    assert isinstance(wrong, UsageError)
    assert (missing.message, wrong.message) == (
        "the server asks for an API key",
        "the server refuses this API key",
    )


def test_the_address_that_clients_are_given_is_understood(tmp_path: Path) -> None:
    with answering({"role": "router"}) as url:
        assert refused(f"{url}/v1/", tmp_path).id == "router"
    with answering({"role": "router"}, path="/proxy/props") as url:
        assert refused(f"{url}/proxy/v1", tmp_path).id == "router"


def test_a_redirect_is_told_and_not_followed(tmp_path: Path) -> None:
    with answering({}, status=302) as url:
        error = refused(url, tmp_path)
    assert error.message == f"{url} answers with a redirect (302)"


@pytest.mark.parametrize(
    "url",
    [
        "http://ana:pw-7f3@127.0.0.1:1/?api_key=pw-7f3",
        "ana:pw-7f3@127.0.0.1:1",
        "http://ana:pw-7f3/x?y#z@127.0.0.1:1/",
        "htp://ana:pw-7f3@127.0.0.1",
        "http://ana:pw-7f3@[::1",
        "http://127.0.0.1:1/?k=pw-7f3#pw-7f3",
        "http://ana:pw-7f3@127.0.0.1:99999999/#pw-7f3",
    ],
)
def test_an_address_is_told_without_user_and_password(url: str, tmp_path: Path) -> None:
    assert "pw-7f3" not in str(refused(url, tmp_path))


def test_the_target_of_a_record_has_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("arriero.jobs.verify._load", interrupted)
    store = Store(tmp_path)
    found = verify_url(
        "http://ana:pw-7f3@127.0.0.1:1/v1?api_key=pw-7f3", VerifyOptions(), store=store
    )
    assert found.target == "http://***@127.0.0.1:1/v1"
    assert store.newest() == found
