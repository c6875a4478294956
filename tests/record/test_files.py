"""Documents as files: whole or not at all, and clear words when they cannot be read."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arriero.base import limits
from arriero.base.errors import ArrieroError, NotFoundError, RecordError
from arriero.record import decode, encode, read_document, write_document, write_whole
from tests import examples
from tests.report import plans

MAKERS = (
    examples.example_diagnosis,
    examples.example_explanation,
    examples.example_explanations,
    examples.example_router_explanation,
    examples.example_verification,
    examples.example_error,
    plans.example,
)


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_written_is_read_back(make: Callable[[], msgspec.Struct], tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_document(path, make())
    assert read_document(path) == make()
    assert path.read_bytes() == encode(make())
    assert list(tmp_path.iterdir()) == [path]


def test_encoding_is_indented_and_begins_with_the_schema() -> None:
    text = encode(examples.example_error()).decode()
    assert text.startswith('{\n  "schema": "arriero.error/1",\n  "error": {\n')
    assert text.endswith("}\n")


@pytest.mark.parametrize(
    ("data", "id_"),
    [
        (b"", "record-damaged"),
        (b"{", "record-damaged"),
        (b"[]", "record-damaged"),
        (b'{"schema": 3}', "record-damaged"),
        (b'{"schema": "arriero.error/1", "error": {"id": "x"}}', "record-damaged"),
        (b'\xff\xfe{"schema": "arriero.error/1"}', "record-damaged"),
        (b'{"schema": "arriero.error/1", "error": "\xff"}', "record-damaged"),
        (b"[" * 100_000, "record-damaged"),
        (b'{"schema": "arriero.diagnosis/1", "a": ' + b"[" * 100_000, "record-damaged"),
        (b'{"schema": "arriero.unheard-of/1"}', "record-unknown"),
        (b'{"schema": "somebody.else/1"}', "record-unknown"),
        (b'{"schema": "arriero.diagnosis/2"}', "record-version"),
    ],
)
def test_what_is_no_document_is_told_in_one_line(data: bytes, id_: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(data)
    with pytest.raises(RecordError) as caught:
        read_document(path)
    assert caught.value.id == id_
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_an_added_member_does_not_stop_an_older_reader() -> None:
    data = encode(examples.example_error()).replace(b'"error": {', b'"added": [1], "error": {')
    assert decode(data, "it") == examples.example_error()


@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda t: t.encode()))
@settings(deadline=None)
def test_any_bytes_give_a_document_or_one_error(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode(data, "it")


@given(st.integers(0, 2000), st.integers(0, 255))
@settings(deadline=None)
def test_a_flipped_byte_gives_a_document_or_one_error(at: int, byte: int) -> None:
    data = bytearray(encode(examples.example_explanation()))
    data[at % len(data)] = byte
    with contextlib.suppress(RecordError):
        decode(bytes(data), "it")


def test_missing_directory_pipe_and_large_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_document(tmp_path / "none.json")
    with pytest.raises(RecordError, match="Is a directory"):
        read_document(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(RecordError, match="it is not a regular file"):
            read_document(tmp_path / "pipe")
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(limits.DOCUMENT + 1)
    with pytest.raises(RecordError, match="larger than any"):
        read_document(large)
    with pytest.raises(ArrieroError):
        read_document(Path("a\0b"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none/record.json", "No such file"), (".", "Is a directory"), ("n" * 300, "too long")],
)
def test_what_cannot_be_written_is_told_in_one_line(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=reason) as caught:
        write_document(tmp_path / name, examples.example_error())
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_long_name_that_the_system_takes_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".json")
    write_document(path, examples.example_error())
    assert read_document(path) == examples.example_error()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are those of Unix")
def test_no_permission(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from arriero.base.errors import RecordError\n"
        "from arriero.record import write_whole\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: write_whole(Path(sys.argv[1]), b'x')\n"
        "except RecordError as error: print(error.message, '|', error.hint)\n"
    )
    # pytest's own directories are closed to the other user, who must see this one only.
    with tempfile.TemporaryDirectory() as closed:
        Path(closed).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", code, f"{closed}/record.json"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "Permission denied | no permission there" in done.stdout, done.stderr


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_full_disk_leaves_the_old_document(limit: int, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "record.json"
    write_document(path, examples.example_error())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(RecordError, match="File too large"):
            write_document(path, examples.example_diagnosis())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_document(path) == examples.example_error()
    assert list(tmp_path.iterdir()) == [path]


WRITER = """
import sys
from pathlib import Path
from arriero.record import write_document
from tests.examples import example_diagnosis, example_error
path = Path(sys.argv[1])
documents = (example_diagnosis(), example_error())
write_document(path, documents[0])
print("ready", flush=True)
n = 0
while True:
    write_document(path, documents[n % 2])
    n += 1
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_kill_at_any_moment_leaves_a_whole_document(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    chance = random.Random(7)
    for _ in range(15):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.02 + chance.random() / 50)
            writer.kill()
        assert read_document(path) in (examples.example_diagnosis(), examples.example_error())


def test_the_write_survives_where_files_must_have_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "record.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]
