"""What others say is taken up to a limit; beyond it there is one clear line."""

from __future__ import annotations

import os
import random
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arriero.base import limits
from arriero.base.errors import ArrieroError, ModelError, NotFoundError, UsageError
from arriero.base.sizes import MIB
from arriero.command import builtin_flags, parse_command
from arriero.gguf import describe, open_model, read_header, read_source
from arriero.gguf.skeleton import neutral, write_header
from arriero.jobs import explain
from arriero.jobs.verify import VerifyOptions, verify_url
from arriero.launch import serving_of
from arriero.record import read_document
from arriero.store import Store
from tests.gguf.build import Gguf
from tests.gguf.site import Handler, Site, site
from tests.jobs.test_verify import answering, told

LINE = 400
"""Characters of a message at most."""


def llama(blocks: int = 2) -> Gguf:
    return Gguf().string("general.architecture", "llama").number("llama.block_count", blocks)


def layered(names: list[str]) -> Gguf:
    made = llama()
    for name in names:
        made.tensor(name, [1])
    return made


def texts(size: int, letter: str, rng: random.Random) -> Gguf:
    """``size`` bytes of text over several keys, one character of each outside of ASCII."""
    made, keys = llama(), rng.randint(1, 40)
    for i in range(keys):
        made.string(f"general.x{i}", letter + "a" * (size // keys))
    return made


def crowded(kind: str, rng: random.Random) -> Gguf:
    """One header above one limit."""
    beyond = rng.randint(1, 1000)
    match kind:
        case "keys":
            made = llama()
            made.key_count = limits.HEADER_KEYS + beyond
        case "tensors":
            made = layered(["a"])
            made.tensor_count = limits.HEADER_TENSORS + beyond
        case "text":
            made = texts(limits.HEADER_TEXT + beyond, "a", rng)
        case "wide text":
            letter = rng.choice("ĀﬀΩ€你") if rng.random() < 0.5 else "\U0001f600"
            made = texts(limits.HEADER_TEXT // 2 + beyond, letter, rng)
        case "name":
            made = llama().string("general.name", "n" * (limits.HEADER_TEXT + beyond))
        case "strings":
            made = llama().strings("tokenizer.ggml.tokens", [b""] * (limits.HEADER_STRINGS + 1))
        case "layer":
            digits = rng.choice([6, 20, 300, 4301, 5000])
            made = layered([f"blk.{'9' * digits}.attn_q.weight"])
        case _:
            made = layered(["t" * (limits.TENSOR_NAME + beyond)])
    return made


def refused(path: Path) -> str:
    """What is said of the model, which must not cost more than a header may."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as caught:
            describe(read_header(path))
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
    said = str(caught.value.message).removeprefix(str(path))
    assert len(said) < LINE
    assert said.isprintable()
    return said


@pytest.mark.sampled(3)
@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("keys", "number of keys"),
        ("tensors", "number of tensors"),
        ("text", "header's text longer than"),
        ("wide text", "header's text longer than"),
        ("name", "says length"),
        ("strings", "strings in arrays more than"),
        ("layer", "layer number that no model has"),
        ("tensor name", "name longer than"),
    ],
)
def test_a_header_above_a_limit(kind: str, says: str, seed: int, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(crowded(kind, random.Random(f"{kind} {seed}")).build(4096))
    assert says in refused(path)


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["keys", "tensors", "text", "strings", "numbers"])
def test_the_parts_of_a_set_share_the_limits(what: str, tmp_path: Path) -> None:
    count = 24
    for i in range(count):
        part = llama() if i == 0 else Gguf()
        part.number("split.no", i).number("split.count", count)
        match what:
            case "keys":
                for j in range(limits.HEADER_KEYS // 20):
                    part.number(f"k{j}", j)
            case "tensors":
                for j in range(limits.HEADER_TENSORS // 20):
                    part.tensor(f"p{i}t{j}", [1])
            case "text":
                part.string("general.x", "a" * (limits.HEADER_TEXT // 20))
            case "strings":
                part.strings("t", [b""] * (limits.HEADER_STRINGS // 20))
            case _:
                for j in range(2):
                    part.numbers(f"n{j}", [7] * limits.HEADER_NUMBERS)
        name = tmp_path / f"m-{i + 1:05d}-of-{count:05d}.gguf"
        name.write_bytes(part.build(limits.HEADER_TENSORS))
    first = tmp_path / f"m-00001-of-{count:05d}.gguf"
    if what == "numbers":  # more of them are stepped over
        held = sum(isinstance(v, tuple) for v in read_header(first).metadata.values())
        assert held == 2
        return
    assert "m-00" in refused(first)


def test_a_long_name_is_not_carried_along(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(llama().string("general.name", "/home/someone/x " * 60_000).build())
    name = describe(read_header(path)).name
    assert name is not None
    assert len(name) == limits.MODEL_NAME + 1


@pytest.mark.thorough
def test_a_skeleton_of_the_largest_vocabulary_is_written_in_pieces(tmp_path: Path) -> None:
    half = limits.HEADER_STRINGS // 2 - 8
    data = llama().strings("tokenizer.ggml.tokens", [b""] * half)
    data.strings("llama.labels", [b""] * (1 << 16))
    path = tmp_path / "m.gguf"
    path.write_bytes(data.build())
    header = neutral(read_header(path)).header
    tracemalloc.start()
    try:
        (written,) = write_header(header, tmp_path / "skeleton.gguf")
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    again = read_header(written).metadata["tokenizer.ggml.tokens"]
    assert again == header.metadata["tokenizer.ggml.tokens"] or getattr(again, "count", 0) == half


# --- pipes and devices --------------------------------------------------------------------------


def pipe(directory: Path) -> Path:
    path = directory / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
class TestAPipeThatNobodyWritesTo:
    def test_as_a_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(explain, "WRITER_SECONDS", 0.05)
        with pytest.raises(UsageError, match="nobody wrote to this pipe"):
            explain.explain(pipe(tmp_path))

    def test_as_a_model(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match="not a regular file"):
            read_header(pipe(tmp_path))

    def test_as_a_record(self, tmp_path: Path) -> None:
        with pytest.raises(ArrieroError, match="not a regular file"):
            read_document(pipe(tmp_path))

    def test_as_a_file_of_keys(self, tmp_path: Path) -> None:
        words = ["llama-server", "-m", "m.gguf", "--api-key-file", str(pipe(tmp_path))]
        with pytest.raises(UsageError, match="not a regular file"):
            serving_of(parse_command(words, builtin_flags(), {}), tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_that_somebody_writes_to_is_read_to_its_end(tmp_path: Path) -> None:
    path = pipe(tmp_path)

    def write() -> None:
        with path.open("w") as file:
            file.write("main: server is listening on http://127.0.0.1:8080\n" * 10_000)

    writer = threading.Thread(target=write)
    writer.start()
    assert explain.explain(path).outcome == "started"
    writer.join()


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_a_device_without_an_end_is_no_log() -> None:
    with pytest.raises(UsageError, match="a device, not a log"):
        explain.explain(Path("/dev/zero"))
    with Path("/dev/zero").open("rb") as file, pytest.raises(UsageError, match="standard input"):
        explain.explain_stream(file, "-")


@contextmanager
def odd(path: str, answer: Callable[[Handler], None]) -> Iterator[Site]:
    """A server that answers one path in its own way."""
    with site() as web:
        web.odd[path] = answer
        yield web


# --- servers ------------------------------------------------------------------------------------


def verified(url: str, home: Path) -> ArrieroError:
    with pytest.raises(ArrieroError) as caught:
        verify_url(url, VerifyOptions(), store=Store(home))
    return caught.value


@pytest.mark.parametrize("slots", [limits.SLOTS + 1, 10**6, 10**9, 1 << 62])
def test_more_slots_than_any_server_has_are_not_asked(slots: int, tmp_path: Path) -> None:
    with answering(told(slots, 4096)) as url:
        assert verified(url, tmp_path).id == "not-llama-server"


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b'{"a":' * 200_000, b'{"total_slots":' + b"1" * 200_000, b"\xff" * 5000],
)
def test_an_answer_that_is_no_json(body: bytes, tmp_path: Path) -> None:
    with odd("/props", lambda handler: handler.answer(200, body)) as web:
        error = verified(web.url(""), tmp_path)
    assert isinstance(error, NotFoundError)
    assert len(error.message) < LINE


def test_an_answer_without_end_is_left(tmp_path: Path) -> None:
    sent = 0

    def endless(handler: Handler) -> None:
        nonlocal sent
        handler.send_response(200)
        handler.end_headers()
        try:
            while sent < 64 * limits.REPLY:
                sent += handler.wfile.write(b'"' + b"x" * (1 << 16))
        except OSError:
            pass
        handler.close_connection = True

    with odd("/props", endless) as web:
        assert verified(web.url(""), tmp_path).id == "not-llama-server"
    assert sent < 8 * limits.REPLY


def test_a_server_that_drips_ends_by_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arriero.jobs.verify._PROPS_S", 0.5)
    gone = threading.Event()

    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not gone.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            handler.close_connection = True

    with odd("/props", drip) as web:
        assert "no answer within" in verified(web.url(""), tmp_path).message
        gone.set()


def test_a_redirect_is_not_measured_under_the_first_name(tmp_path: Path) -> None:
    with answering(told(1, 4096)) as other:
        where = {"Location": f"{other}/props"}
        moved: Callable[[Handler], None] = lambda handler: handler.answer(302, headers=where)  # noqa: E731
        with odd("/props", moved) as web:
            assert verified(web.url(""), tmp_path).id == "redirect"


# --- models from elsewhere ----------------------------------------------------------------------


@contextmanager
def stranger(location: str) -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """A model's address far away that redirects: a proxy plays the stranger, since none is near."""
    asked: list[str] = []

    def moved(handler: Handler) -> None:
        asked.append(handler.path)
        handler.answer(302, headers={"Location": location})

    with odd("http://models.example/m.gguf", moved) as web:
        environ = {"http_proxy": web.url(""), "no_proxy": "localhost,127.0.0.1,inside.example"}
        yield "http://models.example/m.gguf", environ, asked


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:{}", "localhost:{}", "[::1]:{}", "127.1.2.3:{}", "0.0.0.0:{}", "169.254.169.254",
        "[fe80::1]", "[::ffff:127.0.0.1]:{}", "[::ffff:169.254.169.254]", "a.localhost:{}",
    ],
)  # fmt: skip
def test_a_strangers_redirect_does_not_lead_inside(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        location = f"http://{host.format(listening.getsockname()[1])}/latest/meta-data"
        with stranger(location) as (spec, environ, asked):
            with pytest.raises(ModelError, match="this machine's own network"):
                open_model(spec, environ=environ)
            assert len(asked) == 1
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "inside.example"])
def test_a_name_that_leads_inside_is_found_when_it_is_looked_up(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = socket.getaddrinfo

    def lookup(name: str, *rest: object, **more: object) -> object:
        return looked_up("127.0.0.1" if name == "inside.example" else name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        location = f"http://{host}:{listening.getsockname()[1]}/m.gguf"
        with stranger(location) as (spec, environ, _):
            direct = {**environ, "no_proxy": host}
            with pytest.raises(ModelError, match=r"own network|cannot be used"):
                open_model(spec, environ=direct)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_who_asks_inside_may_be_led_inside() -> None:
    with site({"/m.gguf": llama().build()}) as held:
        to = {"Location": held.url("/m.gguf", "localhost")}
        with odd("/m.gguf", lambda handler: handler.answer(302, headers=to)) as web:
            source = open_model(web.url("/m.gguf"), environ={})
            try:
                assert describe(read_source(source)).arch == "llama"
            finally:
                source.close()


def test_limits_are_used() -> None:
    """Each limit is somebody's: one that nobody asks for protects nothing."""
    package = Path(limits.__file__).parents[1]
    code = "\n".join(path.read_text() for path in package.rglob("*.py"))
    names = [name for name in vars(limits) if name.isupper()]
    unused = [n for n in names if f"limits.{n}" not in code and n not in {"KIB", "MIB"}]
    assert unused == []
