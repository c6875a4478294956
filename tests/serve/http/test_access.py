"""Who may ask: keys, public paths, pages of other origins, names of this server."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from arriero.base.errors import UsageError
from arriero.serve.access import Access, Keys, keys_in
from arriero.serve.http.interface import Headers

KEY, OTHER = "sk-one", "sk-zwei-ß"


def error_body(path: str, status: int, message: str, kind: str) -> tuple[Headers, bytes]:
    return (), f"{path} {status} {kind}".encode()


def access(
    *keys: str, origins: tuple[str, ...] = (), hosts: tuple[str, ...] = (), prefix: str = ""
) -> Access:
    return Access(Keys.of(keys), frozenset(hosts), frozenset(origins), prefix, error_body)


def headers(**named: str) -> Headers:
    named.setdefault("host", "127.0.0.1:8080")
    return tuple((k.replace("_", "-").encode(), v.encode()) for k, v in named.items())


def status(made: Access, path: str = "/props", method: str = "GET", **named: str) -> int:
    refused = made.admit(method, path, headers(**named))
    return 200 if refused is None else refused.status


@pytest.mark.parametrize("named", [
    {"authorization": f"Bearer {KEY}"},
    {"authorization": f"bearer  {KEY} "},
    {"x_api_key": KEY},
    {"authorization": f"Bearer {OTHER}"},
    {"authorization": "Basic abc", "x_api_key": OTHER},
])  # fmt: skip
def test_each_key_opens(named: dict[str, str]) -> None:
    assert status(access(KEY, OTHER), **named) == 200


@pytest.mark.parametrize("named", [
    {},
    {"authorization": "Bearer"},
    {"authorization": "Bearer "},
    {"authorization": KEY},
    {"authorization": f"Basic {KEY}"},
    {"authorization": f"Bearer {KEY}x"},
    {"authorization": f"Bearer {KEY[:-1]}"},
    {"authorization": f"Bearer {KEY},{OTHER}"},
    {"x_api_key": ""},
    {"x_api_key": f"Bearer {KEY}"},
    {"cookie": f"key={KEY}"},
])  # fmt: skip
def test_nothing_else_does(named: dict[str, str]) -> None:
    made = access(KEY, OTHER)
    assert status(made, **named) == 401
    assert status(made, "/v1/chat/completions", "POST", **named) == 401
    assert not made.has_key(headers(**named))


def test_without_keys_everybody_is_let_in() -> None:
    assert status(access()) == 200
    assert access().has_key(())


@pytest.mark.parametrize("path", ["/", "/health", "/v1/health", "/models", "/v1/models"])
def test_public_paths_as_the_engine_has_them(path: str) -> None:
    assert status(access(KEY), path) == 200
    assert status(access(KEY), path, "HEAD") == 200
    assert status(access(KEY), path, "POST") == 401  # a router loads models by it
    assert status(access(KEY), path + "/") == 401
    assert status(access(KEY, prefix="/api"), "/api" + path) == 401
    assert status(access(KEY, prefix="/api"), path) == 401


def test_what_asks_for_the_key_itself() -> None:
    """The page comes without, and asks for it."""
    assert status(access(KEY), "/arriero/") == 200
    assert status(access(KEY), "/arriero/status", "POST") == 401


BROWSER = {"accept_language": "en"}


@pytest.mark.parametrize("host", [
    "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "192.168.1.5:8080",
    "x.localhost", "llama.example.org", "llama.example.org:8080", socket.gethostname(),
])  # fmt: skip
def test_names_by_which_browsers_may_know_it(host: str) -> None:
    made = access(hosts=("llama.example.org",))
    assert status(made, host=host, **BROWSER) == 200
    assert status(made, host=host, origin=f"http://{host.lower()}", **BROWSER) == 200
    assert status(made, host=host, origin="https://evil.example", **BROWSER) == 403


@pytest.mark.parametrize("host", [
    "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "xlocalhost",
    "llama.example.org.evil.example",
])  # fmt: skip
@pytest.mark.parametrize("sign", [
    "origin", "sec_fetch_site", "sec_fetch_mode", "accept_language", "referer",
])  # fmt: skip
def test_other_names_are_an_attack(host: str, sign: str) -> None:
    """A page's own name was made to point here: for the browser it is the same origin."""
    made = access(hosts=("llama.example.org",))
    named = {sign: f"http://{host}"}
    assert status(made, host=host, **named) == 403
    assert status(made, "/arriero/", host=host, **named) == 403
    assert status(made, "/health", host=host, **named) == 403
    assert status(made, host=host) == 200  # a program: it may know this machine by any name


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://127.0.0.1:8081", "x"])
def test_no_other_origin_reads(origin: str) -> None:
    made = access(KEY)
    named = {"origin": origin, "authorization": f"Bearer {KEY}"}
    for path in ("/props", "/health", "/arriero/", "/arriero/status"):
        assert status(made, path, **named) == 403
        assert status(made, path, "OPTIONS", **named) == 403
        assert made.answer_headers(path, headers(**named)) == ()


@pytest.mark.parametrize("origins", [("https://chat.example",), ("*",)])
def test_an_origin_that_is_allowed(origins: tuple[str, ...]) -> None:
    made = access(KEY, origins=origins)
    named = {"origin": "https://chat.example", "host": "llama.example.org"}
    assert status(made, **named) == 401
    assert status(made, **named, authorization=f"Bearer {KEY}") == 200
    told = dict(made.answer_headers("/props", headers(**named)))
    assert told[b"access-control-allow-origin"] == b"https://chat.example"
    assert told[b"vary"] == b"origin"
    preflight = made.admit(
        "OPTIONS", "/props", headers(**named, access_control_request_headers="authorization")
    )
    assert preflight is not None
    assert preflight.status == 204
    assert (b"access-control-allow-headers", b"authorization") in preflight.headers
    if origins != ("*",):
        assert status(made, origin="https://other.example") == 403
        assert dict(made.answer_headers("/", headers(origin="https://other.example"))) == {
            b"vary": b"origin"
        }


def test_a_client_is_known_by_its_key_but_not_shown_by_it() -> None:
    made = access(KEY, OTHER)
    one = made.client_of(headers(authorization=f"Bearer {KEY}"), "1.2.3.4")
    assert one == made.client_of(headers(x_api_key=KEY), "5.6.7.8")
    assert one != made.client_of(headers(x_api_key=OTHER), "1.2.3.4")
    assert KEY not in one
    assert access().client_of(headers(x_api_key=KEY), "1.2.3.4") == "1.2.3.4"
    assert KEY not in repr(made)


def test_errors_are_those_of_the_api() -> None:
    made = access(prefix="/api")
    assert made.error("/api/v1/messages", 401, "x")[1] == b"/v1/messages 401 authentication_error"
    assert made.error("/v1", 503, "x")[1] == b"/v1 503 server_error"


def test_files_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# mine\n\n  {KEY} \n{OTHER}\n")
    assert keys_in(path) == (KEY, OTHER)
    path.write_text("# none\n")
    with pytest.raises(UsageError, match="no key"):
        keys_in(path)
    with pytest.raises(UsageError, match="cannot read"):
        keys_in(tmp_path)
