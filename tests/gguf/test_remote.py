"""Models over HTTP and from a hub: what is asked for, what is told, and what never leaves."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import ArrieroError, ModelError, NotFoundError, UsageError
from arriero.base.redact import Redactor
from arriero.base.sizes import MIB
from arriero.gguf import Header, addresses, client, open_model, ranges, read_header, read_source
from arriero.gguf.header import LazyArray
from tests.gguf.build import Gguf
from tests.gguf.site import Handler, Site, site

HUB = "hub"
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"  # what the hub's tokens look like
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def small(name: str = "m") -> Gguf:
    return Gguf().string("general.architecture", "llama").string("general.name", name)


def vocabulary(tokens: int) -> bytes:
    """A header whose arrays are long enough to be stepped over, and whose data is long too."""
    builder = small().strings("tokenizer.ggml.tokens", [f"token {i}" * 3 for i in range(tokens)])
    builder.numbers("tokenizer.ggml.scores", [0] * tokens)
    builder.strings("tokenizer.ggml.merges", [f"to {i}" * 3 for i in range(tokens)])
    return builder.string("end", "reached").tensor("t", [1 << 22]).build(data=16 * MIB)


@pytest.fixture
def web() -> Iterator[Site]:
    with site() as here:
        yield here


def read(spec: str, environ: Mapping[str, str] | None = None) -> Header:
    source = open_model(spec, environ=environ or {})
    try:
        return read_source(source)
    finally:
        source.close()


# --- what is asked for --------------------------------------------------------------------------


def test_remote_header_is_the_local_one(web: Site, tmp_path: Path) -> None:
    data = vocabulary(60_000)
    (tmp_path / "m.gguf").write_bytes(data)
    web.files["/m.gguf"] = data
    local, remote = read_header(tmp_path / "m.gguf"), read(web.url("/m.gguf"))
    assert remote.metadata == local.metadata
    assert remote.tensors == local.tensors
    assert remote.file_bytes == len(data)
    assert remote.parts[0].name == web.url("/m.gguf")


def test_few_requests_and_at_most_one_block_too_much(web: Site) -> None:
    web.files["/m.gguf"] = vocabulary(200_000)
    source = open_model(web.url("/m.gguf"), environ={})
    header = read_source(source)
    source.close()
    scores = header.metadata["tokenizer.ggml.scores"]
    assert isinstance(scores, LazyArray)
    assert header.data_offset > 10 * MIB
    assert (source.requests, source.bytes_read) == (len(web.asked), web.sent)
    assert source.requests <= 6
    assert source.bytes_read <= header.data_offset + ranges.LARGEST_BLOCK
    taken = [asked.range for asked in web.asked if asked.range]
    assert [first for first, _ in taken] == sorted({first for first, _ in taken})
    assert all(last - first < ranges.LARGEST_BLOCK for first, last in taken)


def test_what_is_stepped_over_is_not_asked_for(web: Site) -> None:
    builder = small().numbers("scores", [0] * (8 * MIB // 4)).string("end", "reached")
    web.files["/m.gguf"] = builder.build()
    source = open_model(web.url("/m.gguf"), environ={})
    assert read_source(source).metadata["end"] == "reached"
    source.close()
    assert source.requests == 2
    assert source.bytes_read < MIB + 100


def test_a_small_model_takes_one_request(web: Site) -> None:
    web.files["/m.gguf"] = small().build()
    assert read(web.url("/m.gguf")).metadata["general.name"] == "m"
    assert len(web.asked) == 1


def test_any_bytes_can_be_read(web: Site) -> None:
    data = bytes(range(256)) * 8192
    web.files["/m.gguf"] = data
    source = open_model(web.url("/m.gguf"), environ={})
    for offset, length in ((0, 10), (MIB + 5, 300), (7, 9), (len(data) - 4, 100), (len(data), 1)):
        assert source.read(offset, length) == data[offset : offset + length]
        ahead = source.read(offset, length, 1000)
        assert data[offset : offset + length] == ahead[:length]
        assert data[offset:].startswith(ahead)
    source.close()


def test_a_server_without_ranges_is_read_from_the_start(web: Site) -> None:
    data = vocabulary(60_000)
    web.odd["/m.gguf"] = lambda handler: handler.answer(200, data)
    source = open_model(web.url("/m.gguf"), environ={})
    header = read_source(source)
    assert header.metadata["end"] == "reached"
    assert source.requests == 1
    assert source.bytes_read < header.data_offset + ranges.LARGEST_BLOCK
    assert source.read(4, 4) == data[4:8]
    source.close()


def test_a_server_that_stops_giving_ranges(web: Site) -> None:
    data = vocabulary(60_000)

    def once(handler: Handler) -> None:
        if len(web.asked) == 1:
            handler.part(data)
        else:
            handler.answer(200, data)

    web.odd["/m.gguf"] = once
    assert read(web.url("/m.gguf")).metadata["end"] == "reached"


def test_a_server_that_gives_less_than_asked(web: Site) -> None:
    data = vocabulary(10_000)

    def little(handler: Handler) -> None:
        assert handler.range is not None
        handler.range = (handler.range[0], min(handler.range[1], handler.range[0] + 99_999))
        handler.part(data)

    web.odd["/m.gguf"] = little
    assert read(web.url("/m.gguf")).metadata["end"] == "reached"


# --- what goes wrong ----------------------------------------------------------------------------


def chunked(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"4\r\nGGUF\r\n0\r\n\r\n")


def nonsense(handler: Handler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n")
    handler.reset()


DATA = small().build()
ELSEWHERE = {"Content-Range": f"bytes 5-{len(DATA) - 1}/{len(DATA)}"}
HERE = {"Content-Range": f"bytes 0-{len(DATA) - 1}/{len(DATA)}"}
FAILURES: dict[str, tuple[Callable[[Handler], None], str]] = {
    "401": (lambda h: h.answer(401), "answers 401: it refuses the given user and password"),
    "403": (lambda h: h.answer(403), "answers 403: access is not allowed"),
    "404": (lambda h: h.answer(404), "answers 404: there is no such file"),
    "407": (lambda h: h.answer(407), "the proxy asks for user and password"),
    "410": (lambda h: h.answer(410), "answers 410: there is no such file"),
    "416": (lambda h: h.answer(416), "answers 416: the file is empty"),
    "418": (lambda h: h.answer(418), "answers 418"),
    "429": (lambda h: h.answer(429), "answers 429: too many requests"),
    "500": (lambda h: h.answer(500), "answers 500: the server has a problem"),
    "503": (lambda h: h.answer(503), "answers 503: the server has a problem"),
    "reset": (lambda h: h.reset(), "the connection broke"),
    "cut": (lambda h: h.send_part_of(DATA, 20), "the connection broke"),
    "elsewhere": (lambda h: h.answer(206, DATA[5:], ELSEWHERE), "another range than requested"),
    "no range": (lambda h: h.answer(206, DATA), "another range than requested"),
    "compressed": (lambda h: h.answer(206, DATA, HERE | {"Content-Encoding": "br"}), "compressed"),
    "huge": (
        lambda h: h.answer(206, DATA, {"Content-Range": f"bytes 0-{len(DATA) - 1}/{10**18}"}),
        "claims 1000000000000000000 bytes: no model is that large",
    ),
    "chunked": (chunked, "supports no ranges and gives no size"),
    "no HTTP": (nonsense, "is not HTTP"),
    "web page": (lambda h: h.answer(200, b"<!DOCTYPE html><p>Log in"), "it is a web page"),
    "empty": (lambda h: h.answer(200), "it is empty"),
    "no place": (lambda h: h.answer(302), "redirects to"),
    "other scheme": (lambda h: h.answer(302, b"", {"Location": "file:///etc/passwd"}), "redirects"),
    "loop": (lambda h: h.answer(302, b"", {"Location": h.path}), "more than 5 redirects"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_one_line_that_helps_and_tells_no_secret(case: str, web: Site) -> None:
    behaviour, says = FAILURES[case]
    web.odd["/m.gguf"] = behaviour
    address = web.url("/m.gguf?X-Amz-Signature=s3cr3t", host="user:pa55word@127.0.0.1")
    with pytest.raises(ArrieroError, match=says) as caught:
        read(address)
    told = f"{caught.value.message} {caught.value.hint}"
    assert caught.value.message.startswith(web.url("/m.gguf"))
    assert caught.value.hint
    assert "\n" not in told
    assert "s3cr3t" not in told
    assert "pa55word" not in told
    assert isinstance(caught.value, NotFoundError) == (case in ("404", "410"))


def test_who_gives_no_password_is_told_where_in_words_that_no_redaction_changes(web: Site) -> None:
    web.odd["/m.gguf"] = lambda h: h.answer(401)
    with pytest.raises(ModelError, match="answers 401: it asks for user and password") as caught:
        read(web.url("/m.gguf"))
    assert "user:password@host" in caught.value.hint
    assert Redactor().secrets(caught.value.hint) == caught.value.hint


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ModelError, match=r"cannot reach 127\.0\.0\.1: .*refused"):
        read(f"http://127.0.0.1:{port}/m.gguf")


def test_silence_and_drops_end(web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Event()

    def silent(handler: Handler) -> None:
        done.wait(20)
        handler.reset()

    def dripping(handler: Handler) -> None:
        handler.send_response(206)
        for name, value in HERE.items():
            handler.send_header(name, value)
        handler.end_headers()
        try:
            while not done.wait(0.02):
                handler.wfile.write(b"x")
        except OSError:
            handler.close_connection = True

    web.odd = {"/silent.gguf": silent, "/dripping.gguf": dripping}
    monkeypatch.setattr(client, "_SILENT_SECONDS", 0.2)
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 0.5)
    for path in web.odd:
        with pytest.raises(ModelError, match="no answer in time"):
            read(web.url(path))
    done.set()


@pytest.mark.parametrize("field", ["ETag", "Last-Modified", "size"])
def test_a_file_that_changes_meanwhile(field: str, web: Site) -> None:
    data = vocabulary(60_000)

    def changing(handler: Handler) -> None:
        if field == "size":
            handler.part(data + bytes(len(web.asked)))
        else:
            handler.part(data, {field: f"version {len(web.asked)}"})

    web.odd["/m.gguf"] = changing
    with pytest.raises(ModelError, match="the file changed while it was read"):
        read(web.url("/m.gguf"))


def test_a_header_without_end_is_left(web: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    web.files["/m.gguf"] = vocabulary(200_000)
    monkeypatch.setattr(client, "_MAX_BYTES", 3 * MIB)
    with pytest.raises(ModelError, match=r"header is larger than 3\.00 MiB"):
        read(web.url("/m.gguf"))
    monkeypatch.setattr(client, "_MAX_BYTES", 99 * MIB)
    monkeypatch.setattr(client, "_MAX_REQUESTS", 2)
    with pytest.raises(ModelError, match="more than 2 requests"):
        read(web.url("/m.gguf"))


@pytest.mark.parametrize(
    "spec", ["http://", "https:///m.gguf", "http://u:s3cr3t@/m", "http://h:x/m", "http://[::1/m"]
)
def test_what_is_no_address(spec: str) -> None:
    with pytest.raises(UsageError, match="not an address") as caught:
        open_model(spec, environ={})
    assert "s3cr3t" not in caught.value.message


def test_other_schemes_are_named() -> None:
    with pytest.raises(UsageError, match="over s3://"):
        open_model("s3://bucket/m.gguf")


# --- redirects and credentials ------------------------------------------------------------------


def to(location: str) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(302, b"", {"Location": location})


def test_redirects_are_followed_once(web: Site) -> None:
    web.odd = {"/a": to("/b?x=1"), "/b": to(web.url("/c"))}
    web.files["/c"] = vocabulary(60_000)
    header = read(web.url("/a"))
    assert header.metadata["end"] == "reached"
    assert header.parts[0].name == web.url("/a")
    assert [asked.path for asked in web.asked[:4]] == ["/a", "/b?x=1", "/c", "/c"]
    assert {asked.path for asked in web.asked[3:]} == {"/c"}


def test_an_address_that_expires_is_asked_for_again(web: Site) -> None:
    data = vocabulary(60_000)
    web.odd = {
        "/m.gguf": lambda h: h.answer(302, b"", {"Location": f"/signed/{len(web.asked)}"}),
        "/signed/1": lambda h: h.part(data) if len(web.asked) == 2 else h.answer(403),
    }
    web.files = {f"/signed/{i}": data for i in range(2, 9)}
    assert read(web.url("/m.gguf")).metadata["end"] == "reached"
    assert [a.path for a in web.asked[:5]] == [
        *("/m.gguf", "/signed/1", "/signed/1", "/m.gguf", "/signed/4")
    ]


def test_credentials_stay_with_their_origin(web: Site) -> None:
    web.odd["/m.gguf"] = to(web.url("/m.gguf", host="localhost"))
    with site({"/m.gguf": DATA}) as other:
        web.odd["/m.gguf"] = to(other.url("/m.gguf"))
        environ = {"HF_ENDPOINT": web.url(""), "HF_TOKEN": TOKEN}
        read(f"http://user:p%40ss@127.0.0.1:{web.port}/m.gguf", environ)
        read(web.url("/m.gguf"), environ)
        read(other.url("/m.gguf"), environ)
        assert [a.authorization for a in web.asked] == ["Basic dXNlcjpwQHNz", f"Bearer {TOKEN}"]
        assert [a.authorization for a in other.asked] == [None] * 3


def test_a_redirect_cannot_bring_credentials(web: Site) -> None:
    with site({"/m.gguf": DATA}) as other:
        web.odd["/m.gguf"] = to(other.url("/m.gguf", host="user:word@127.0.0.1"))
        read(web.url("/m.gguf"))
        assert [a.authorization for a in other.asked] == [None]


def test_names_hold_no_credentials(web: Site) -> None:
    web.files["/a b.gguf"] = DATA
    web.odd["/a%20b.gguf"] = lambda handler: handler.part(DATA)
    address = web.url("/a b.gguf?token=s3cr3t#part", host="user:word@127.0.0.1")
    assert read(address).parts[0].name == web.url("/a%20b.gguf")
    assert web.asked[0].path == "/a%20b.gguf?token=s3cr3t"


@given(
    user=st.text(st.characters(codec="ascii", exclude_characters="/?#[]@:%"), min_size=4),
    query=st.text(st.characters(codec="utf-8", exclude_characters="#"), min_size=4),
)
def test_shown_addresses_hold_no_credentials(user: str, query: str) -> None:
    url = addresses.parsed(f"https://{user}zzzz:{user}qqqq@host/models/m.gguf?yyyy{query}")
    assert addresses.shown(url) == "https://host/models/m.gguf"


def test_a_token_that_is_none(web: Site) -> None:
    with pytest.raises(UsageError, match="HF_TOKEN is not a token"):
        open_model(web.url("/m.gguf"), environ={"HF_TOKEN": "a\nb"})


def test_a_proxy_is_used_where_it_shall_be(web: Site) -> None:
    web.odd["http://far.example/m.gguf"] = lambda handler: handler.part(DATA)
    environ = {"http_proxy": f"127.0.0.1:{web.port}", "NO_PROXY": "localhost, .near.example"}
    assert read("http://far.example/m.gguf", environ).parts[0].name == "http://far.example/m.gguf"
    direct = addresses.parsed("http://a.near.example/m.gguf")
    assert addresses.proxy_for(direct, environ) is None
    assert addresses.proxy_for(direct, {"ALL_PROXY": "http://p:1"}) == "http://p:1"
    with pytest.raises(ModelError, match=r"cannot reach the proxy 127\.0\.0\.1") as caught:
        read("http://far.example/m.gguf", {"http_proxy": "http://user:s3cr3t@127.0.0.1:1"})
    assert "s3cr3t" not in caught.value.message
    with pytest.raises(UsageError, match="the proxy for http:// is not an HTTP proxy"):
        read("http://far.example/m.gguf", {"http_proxy": "socks5://user:s3cr3t@127.0.0.1:1"})


@pytest.mark.parametrize(
    ("address", "listed", "direct"),
    [
        ("http://near.example/m.gguf", "*", True),
        ("http://near.example/m.gguf", "Near.Example", True),
        ("http://nearer.example/m.gguf", "er.example", False),
        ("http://near.example:8080/m.gguf", "near.example:8080", True),
        ("http://near.example:8081/m.gguf", "near.example:8080", False),
        ("http://[::1]:8080/m.gguf", "::1", True),
    ],
)
def test_hosts_that_no_proxy_stands_before(address: str, listed: str, direct: bool) -> None:
    environ = {"http_proxy": "http://p:1", "no_proxy": listed}
    assert (addresses.proxy_for(addresses.parsed(address), environ) is None) == direct


# --- TLS ----------------------------------------------------------------------------------------


def test_no_tls_where_it_is_expected(web: Site) -> None:
    with pytest.raises(ModelError, match="cannot agree on TLS") as caught:
        read(web.url("/m.gguf").replace("http:", "https:"))
    assert caught.value.hint == "check whether it needs http://"


@pytest.mark.sampled(3)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_certificates_and_encryption_that_would_be_lost(tmp_path: Path, web: Site) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    subprocess.run(
        [*command.split(), "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with site({"/m.gguf": DATA}, tls=context) as secure:
        secure.odd["/down.gguf"] = to(web.url("/m.gguf"))
        address = f"https://localhost:{secure.port}/m.gguf"
        with pytest.raises(ModelError, match="the certificate of localhost is refused: self") as no:
            read(address)
        assert "SSL_CERT_FILE" in no.value.hint
        # authorities are read once, when aiohttp is imported
        code = (
            "import sys; from arriero.gguf import open_model; print(open_model(sys.argv[1]).name)"
        )
        outcomes = [
            subprocess.run(
                [sys.executable, "-W", "ignore", "-c", code, address.replace("m.gguf", name)],
                env={"SSL_CERT_FILE": str(certificate)},
                capture_output=True,
                text=True,
                check=False,
            )
            for name in ("m.gguf", "down.gguf")
        ]
    assert outcomes[0].stdout.strip() == address
    assert "localhost redirects to 127.0.0.1 without encryption" in outcomes[1].stderr
    assert not web.asked


# --- split sets ---------------------------------------------------------------------------------


def parts(count: int = 3) -> dict[str, bytes]:
    files = {}
    for i in range(count):
        builder = small() if i == 0 else Gguf()
        builder.number("split.no", i).number("split.count", count)
        builder.number("split.tensors.count", count).tensor(f"t{i}", [MIB])
        files[f"m-{i + 1:05d}-of-{count:05d}.gguf"] = builder.build(data=4 * MIB)
    return files


def test_any_part_opens_the_set(web: Site, tmp_path: Path) -> None:
    for name, data in parts().items():
        web.files[f"/models/{name}"] = data
        (tmp_path / name).write_bytes(data)
    first = f"{web.url('/models/')}m-00001-of-00003.gguf"
    for name in parts():
        source = open_model(f"{web.url('/models/')}{name}?token=s3cr3t", environ={})
        header = read_source(source)
        source.close()
        assert [t.name for t in header.tensors] == ["t0", "t1", "t2"]
        assert source.name == header.parts[0].name == first
        assert source.requests == 3
        assert source.bytes_read == MIB + 2 * MIB // 8
        local = open_model(name, cwd=tmp_path)
        assert [p.bytes for p in read_source(local).parts] == [p.bytes for p in header.parts]
        local.close()
    assert all(asked.path.endswith("?token=s3cr3t") for asked in web.asked)


def test_a_part_that_is_not_there(web: Site) -> None:
    web.files = {f"/{name}": data for name, data in parts().items() if "00002" not in name}
    with pytest.raises(NotFoundError, match="the set lacks m-00002-of-00003"):
        read(web.url("/m-00003-of-00003.gguf"))


# --- a hub --------------------------------------------------------------------------------------

FILES = [
    ".gitattributes",
    "BF16/m-BF16-00001-of-00002.gguf",
    "BF16/m-BF16-00002-of-00002.gguf",
    "README.md",
    "m-Q8_0.gguf",
    "m-UD-Q4_K_XL.gguf",
    "m-iq4_xs.gguf",
    "mmproj-F16.gguf",
    "mtp-m-Q4_K_M.gguf",
]


def answer_json(value: object) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(200, json.dumps(value).encode())


@pytest.fixture
def hub(web: Site) -> Site:
    """A hub with one repository, as far as a header needs it: files lead to another host."""
    refs = {"branches": [{"name": "dev", "targetCommit": "f" * 40}]}
    refs["branches"].append({"name": "main", "targetCommit": COMMIT})
    listing = [{"type": "directory", "path": "BF16"}]
    listing += [{"type": "file", "path": path} for path in FILES]
    web.odd["/api/models/o/r/refs"] = answer_json(refs)
    for revision in (COMMIT, "v1", "refs%2Fpr%2F2"):
        web.odd[f"/api/models/o/r/tree/{revision}"] = answer_json(listing)
    for revision in (COMMIT, "main", "v1", "refs%2Fpr%2F2"):
        for path in FILES:
            web.odd[f"/o/r/resolve/{revision}/{path}"] = to(
                web.url(f"/store/{path}?X-Amz-Signature=s3cr3t", host="localhost")
            )
            name = path.rpartition("/")[2]
            web.files[f"/store/{path}"] = small(f"{revision} {name}").build()
    return web


def environ_of(hub: Site) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url(""), "HF_TOKEN": TOKEN}


def test_a_file_of_a_repository(hub: Site) -> None:
    source = open_model("hf://o/r/m-Q8_0.gguf", environ=environ_of(hub))
    assert source.name == "hf://o/r/m-Q8_0.gguf"
    assert read_source(source).tensors == ()
    source.close()
    assert [(a.path.partition("?")[0], a.authorization) for a in hub.asked] == [
        ("/o/r/resolve/main/m-Q8_0.gguf", f"Bearer {TOKEN}"),
        ("/store/m-Q8_0.gguf", None),
    ]


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ("hf://o/r", "m-Q8_0.gguf"),
        ("hf://o/r:Q8_0", "m-Q8_0.gguf"),
        ("hf://o/r:IQ4_XS", "m-iq4_xs.gguf"),
        ("hf://o/r:ud-q4_k_xl", "m-UD-Q4_K_XL.gguf"),
        ("hf://o/r:BF16", "BF16/m-BF16-00001-of-00002.gguf"),
        ("hf://o/r@v1:BF16", "BF16/m-BF16-00001-of-00002.gguf"),
        ("hf://o/r@refs/pr/2", "m-Q8_0.gguf"),
        ("hf://o/r@refs%2Fpr%2F2/m-Q8_0.gguf", "m-Q8_0.gguf"),
        ("HF://o/r/BF16/m-BF16-00002-of-00002.gguf", "BF16/m-BF16-00001-of-00002.gguf"),
    ],
)
def test_a_quantisation_is_chosen_as_the_server_does(spec: str, chosen: str, hub: Site) -> None:
    source = open_model(spec, environ=environ_of(hub))
    source.close()
    assert source.name.startswith("hf://o/r")
    assert source.name.endswith(f"/{chosen}")
    assert source.requests == len(hub.asked)


def test_a_set_of_a_repository(hub: Site) -> None:
    for name, data in parts(2).items():
        hub.files[f"/store/BF16/{name.replace('m-', 'm-BF16-')}"] = data
    header = read("hf://o/r:BF16", environ_of(hub))
    assert [t.name for t in header.tensors] == ["t0", "t1"]
    assert header.parts[1].name == "hf://o/r/BF16/m-BF16-00002-of-00002.gguf"


def test_q4_k_m_comes_first_and_the_first_file_last(hub: Site) -> None:
    def listing(*names: str) -> None:
        files = [{"type": "file", "path": name} for name in names]
        hub.odd[f"/api/models/o/r/tree/{COMMIT}"] = answer_json(files)
        for name in names:
            hub.odd[f"/o/r/resolve/{COMMIT}/{name}"] = lambda handler: handler.part(DATA)

    for names in (
        ("m-Q8_0.gguf", "chosen-q4_k_m.gguf"),
        ("imatrix.gguf", "chosen-F16.gguf", "m-F32.gguf"),
    ):
        listing(*names)
        source = open_model("hf://o/r", environ=environ_of(hub))
        source.close()
        assert "chosen" in source.name
    listing("README.md", "mmproj-F16.gguf")
    with pytest.raises(NotFoundError, match="hf://o/r contains no GGUF model"):
        open_model("hf://o/r", environ=environ_of(hub))


def test_a_quantisation_that_is_not_there(hub: Site) -> None:
    with pytest.raises(NotFoundError, match="hf://o/r contains no Q5_K_M") as caught:
        open_model("hf://o/r:Q5_K_M", environ=environ_of(hub))
    assert caught.value.hint == "choose one of BF16, Q8_0, Q4_K_XL, iq4_xs"


def test_the_page_about_a_file_leads_to_it(hub: Site) -> None:
    address = f"{hub.url('/o/r/blob/main/m-Q8_0.gguf')}?download=true"
    assert read(address, environ_of(hub)).parts[0].name == hub.url("/o/r/resolve/main/m-Q8_0.gguf")


@pytest.mark.parametrize("status", [401, 403])
def test_a_repository_that_needs_a_token(status: int, hub: Site) -> None:
    hub.odd["/api/models/o/r/refs"] = lambda handler: handler.answer(status)
    with pytest.raises(ModelError, match="private or gated, or does not exist") as caught:
        open_model("hf://o/r", environ={"HF_ENDPOINT": hub.url("")})
    assert "HF_TOKEN" in caught.value.hint


@pytest.mark.parametrize(
    ("refs", "tree", "says"),
    [
        (b"<html>", b"", "is not JSON"),
        (b"[" * 100_000, b"", "is not JSON"),
        (b"[]", b"", "names no branch"),
        (b'{"branches": [1, {"name": "main", "targetCommit": "../.."}]}', b"", "names no branch"),
        (None, b"{}", "not a list of files"),
        (None, b'[1, {"type": "file", "path": 7}]', "contains no GGUF model"),
        (None, b" " * (5 * MIB), "larger than 4.00 MiB"),
    ],
)
def test_a_hub_that_answers_nonsense(refs: bytes | None, tree: bytes, says: str, hub: Site) -> None:
    if refs is not None:
        hub.odd["/api/models/o/r/refs"] = lambda handler: handler.answer(200, refs)
    hub.odd[f"/api/models/o/r/tree/{COMMIT}"] = lambda handler: handler.answer(200, tree)
    with pytest.raises(ArrieroError, match=says):
        open_model("hf://o/r", environ=environ_of(hub))


@pytest.mark.parametrize("spec", ["hf://", "hf://o", "hf://o/r:", "hf://o/r@/x", "hf://o/r:a/b"])
def test_what_is_no_repository(spec: str) -> None:
    with pytest.raises(UsageError, match="not a model on Hugging Face"):
        open_model(spec, environ={})


# --- local --------------------------------------------------------------------------------------


def test_local_files(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(DATA)
    for spec in ("m.gguf", Path("m.gguf"), str(tmp_path / "m.gguf")):
        source = open_model(spec, cwd=tmp_path)
        assert (source.name, source.size) == (str(tmp_path / "m.gguf"), len(DATA))
        assert source.requests == 0
        source.close()
    with pytest.raises(NotFoundError, match="there is no model file"):
        open_model("none.gguf", cwd=tmp_path)
    with pytest.raises(ModelError, match="a directory"):
        open_model(".", cwd=tmp_path)
