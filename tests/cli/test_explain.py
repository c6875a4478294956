"""``arriero explain`` on whatever people point it at."""

from __future__ import annotations

import fcntl
import gzip
import json
import lzma
import os
import shlex
import signal
import subprocess
import termios
import time

import psutil
import pytest

from tests.cli.running import ARRIERO, Place

FAILED = """\
llama_kv_cache:        CPU KV buffer size =   128.00 MiB
alloc_tensor_range: failed to allocate CPU buffer of size 4215275520
llama_init_from_model: failed to initialize the context: failed to allocate buffer for rs cache
srv    load_model: failed to load model, 'm.gguf'
"""
SERVED = "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"


@pytest.fixture
def logs(place: Place) -> Place:
    (place.root / "failed.log").write_text(FAILED)
    (place.root / "served.log").write_text(SERVED)
    return place


def test_a_failure_is_named_and_is_status_one(logs: Place) -> None:
    said = logs.run("explain", "failed.log")
    assert said.status == 1
    assert "RS" in said.out
    assert said.err == ""
    found = logs.run("explain", "--json", "failed.log").document("explanation")
    assert (found["failure"]["component"], found["failure"]["bytes"]) == ("rs", 4215275520)


def test_no_failure_is_status_zero(logs: Place) -> None:
    assert logs.run("explain", "served.log").status == 0


def test_standard_input_says_what_the_file_says(logs: Place) -> None:
    file = logs.run("explain", "--json", "failed.log").document("explanation")
    stdin = logs.run("explain", "--json", "-", stdin=FAILED.encode()).document("explanation")
    assert stdin.pop("source") == "-"
    assert file.pop("source") == "failed.log"
    assert stdin == file


def test_a_compressed_log_says_how_to_give_it(logs: Place) -> None:
    for name, packed, tool in (
        ("a.gz", gzip.compress(FAILED.encode()), "zcat"),
        ("b b.xz", lzma.compress(FAILED.encode()), "xzcat"),
    ):
        (logs.root / name).write_bytes(packed)
        said = logs.run("explain", name)
        assert (said.status, said.out) == (2, "")
        assert f"{name} is compressed" in said.err
        assert f"{tool} {shlex.quote(name)} | arriero explain -" in said.err
        assert "compressed" in logs.run("explain", "-", stdin=packed).err


def test_several_logs_are_one_document(logs: Place) -> None:
    said = logs.run("explain", "--json", "served.log", "failed.log")
    sources = [e["source"] for e in said.document("explanations")["explanations"]]
    assert sources == ["served.log", "failed.log"]
    assert said.status == 1
    both = logs.run("explain", "served.log", "failed.log")
    assert "served.log" in both.out
    assert "failed.log" in both.out


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(1 << 20),
        b"\n" * 10_000,
        bytes(range(256)) * 4096,
        b"\xff\xfe" + FAILED.encode("utf-16-le"),
        b"\xff\xfe\xff no utf-8 \x80\n" * 1000,
        b"x" * (1 << 21),
    ],
    ids=["empty", "NULs", "newlines", "binary", "utf-16", "invalid utf-8", "one long line"],
)
def test_any_bytes_are_explained(logs: Place, data: bytes) -> None:
    (logs.root / "odd.log").write_bytes(data)
    said = logs.run("explain", "--json", "odd.log")
    found = said.document("explanation")
    assert said.status == (1 if found["failure"] else 0)
    assert (found["failure"] is not None) == (b"r\0s\0 \0c\0a\0c\0h\0e" in data)


def test_invalid_utf8_around_a_failure_changes_nothing(logs: Place) -> None:
    data = FAILED.replace("m.gguf", "\udcff\udcfe.gguf").encode(errors="surrogateescape")
    found = logs.run("explain", "--json", "-", stdin=data).document("explanation")
    assert found["failure"]["component"] == "rs"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(logs: Place, closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *ARRIERO, "explain", "failed.log"],
        env=logs.environment(), cwd=logs.root, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert (b"RS" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


def test_standard_input_that_is_closed(logs: Place) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *ARRIERO, "explain", "-"],
        env=logs.environment(), cwd=logs.root, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith(b"arriero: standard input is closed")


@pytest.mark.parametrize("words", [["explain", "failed.log"], ["--help"], ["schema", "diagnosis"]])
def test_a_reader_that_has_gone(logs: Place, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*ARRIERO, *words], env=logs.environment(), cwd=logs.root, stdout=writer,
        stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == (1 if words[0] == "explain" else 0)


def test_a_live_log_is_explained_when_it_is_interrupted(logs: Place) -> None:
    with subprocess.Popen(
        [*ARRIERO, "explain", "--json", "-"], env=logs.environment(), cwd=logs.root,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        os.write(process.stdin.fileno(), FAILED.encode())
        _until_it_waits(process.pid, process.stdin.fileno())
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    found = json.loads(out)
    assert process.returncode == 130
    assert found["failure"]["component"] == "rs"
    assert found["complete"] is False
    assert b"interrupted" in err


def _until_it_waits(pid: int, pipe: int) -> None:
    """Until the process has read what was in the pipe, and sleeps."""
    deadline = time.monotonic() + 60
    asleep = 0
    while asleep < 10 and time.monotonic() < deadline:
        unread = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
        idle = psutil.Process(pid).status() == psutil.STATUS_SLEEPING
        asleep = asleep + 1 if idle and not any(unread) else 0
        time.sleep(0.02)
    assert asleep


def test_an_ascii_terminal_gets_ascii(logs: Place) -> None:
    said = logs.run("explain", "failed.log", env={"PYTHONIOENCODING": "ascii"})
    assert said.out.isascii()
    assert logs.run("skeleton", "--help", env={"PYTHONIOENCODING": "ascii"}).status == 0


@pytest.mark.slow  # 2 GiB
def test_a_sparse_log_of_two_gigabytes_in_bounded_memory(logs: Place) -> None:
    log = logs.root / "huge.log"
    with log.open("wb") as file:
        file.write(SERVED.encode())
        file.seek(2 << 30)
        file.write(b"\n" + FAILED.encode())
    code = (
        "import re, sys; sys.argv = ['arriero', 'explain', 'huge.log'];"
        "from arriero.cli import run; status = run(sys.argv[1:]);"
        # not ru_maxrss, which begins with what the parent of a process had
        "peak = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1];"
        "print(peak, file=sys.stderr);"
        "sys.exit(status)"
    )
    done = subprocess.run(
        [ARRIERO[0], "-c", code], env=logs.environment(), cwd=logs.root, capture_output=True,
        check=False, timeout=800,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert b"RS" in done.stdout
    assert int(done.stderr) < 200 << 10  # KiB
