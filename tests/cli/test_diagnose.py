"""``arriero diagnose`` from the first start to the shared report, on the real engine."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from arriero.base.sizes import MIB
from arriero.gguf.presets import tiny
from arriero.gguf.writer import write_model
from tests.cli.running import Place
from tests.limits import above

pytestmark = pytest.mark.engine

TIGHT = ("-c", "256", "-np", "160", "--no-warmup", "--threads-http", "2", "-cram", "0")
"""160 slots of 6.28 MiB of recurrent state do not fit; few threads, so that nothing else fails."""
SMALL = ("llama-server", "-c", "512", "-np", "1", "-m")


@pytest.fixture(scope="session")
def heavy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "heavy.gguf"
    shape = tiny("qwen35", ssm_heads=32, ssm_state=128, ssm_groups=16, context_train=256)
    write_model(path, shape)
    return path


def test_from_a_failure_to_a_verified_command_and_reports(place: Place, heavy: Path) -> None:
    command = ("MALLOC_ARENA_MAX=1", "llama-server", "-m", heavy, *TIGHT)
    secret = ("--api-key", "planted-key-1")
    small = " ".join(TIGHT).replace("160", "1")
    limit = above(place.engine, heavy, small, 224 * MIB)
    limited = ("--limit", str(limit), "--requests", "8")
    said = place.run("diagnose", "--json", *limited, "--out", "out", "--", *command, *secret)
    found = said.document("diagnosis")
    assert said.status == 1
    verdict = found["verdict"]
    assert (verdict["kind"], verdict["component"]) == ("allocation", "rs"), verdict
    assert verdict["bytes"] == 160 * found["slopes"][0]["bytes"]
    assert found["boundary"]["-np"]["served"] < found["boundary"]["-np"]["fails"] <= 160
    assert found["recommendation"]["verified"]
    assert found["complete"]
    assert "[1/" in said.err

    written = {path.suffix: path.read_text() for path in (place.root / "out").iterdir()}
    assert set(written) == {".json", ".md", ".html"}
    listed = place.run("history", "--json").document("history")["entries"]
    assert [entry["id"] for entry in listed] == [found["id"]]
    again = place.run("history", found["id"], "--json").document("diagnosis")
    assert again["trials"] == found["trials"]
    assert found["id"] in place.run("history").out
    assert "FAILED" in place.run("history", found["id"][:8]).out
    reports = {
        form: place.run("report", found["id"], "--format", form).out
        for form in ("markdown", "html", "upstream")
    }
    assert reports["html"].lstrip().lower().startswith("<!doctype html")
    assert all("rs" in text.lower() for text in reports.values())
    shared = [*reports.values(), *written.values()]
    shared.append(place.run("report", found["id"], "--json").out)
    assert json.loads(shared[-1])["id"] == found["id"]
    for text in shared:
        assert str(heavy.parent) not in text
    history = (place.home / "history.sqlite3").read_bytes()
    for text in (*shared, said.out, said.err, history.decode("latin-1")):
        assert "planted-key-1" not in text


def test_a_command_that_serves_is_status_zero_also_on_a_taken_port(
    place: Place, model: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = ("llama-server", "-m", model, "-c", "1024", "-np", "2", "--port", port)
        said = place.run("diagnose", "--", *command)
    assert said.status == 0
    assert said.out.splitlines()[2].startswith("SERVED")
    assert port in said.out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not a GGUF file: it is empty"),
        (b"this is no model\n", "not a GGUF file"),
        (None, "file is truncated"),
    ],
    ids=["empty", "text", "truncated"],
)
def test_a_damaged_model(place: Place, model: Path, content: bytes | None, told: str) -> None:
    whole = model.read_bytes()
    (place.root / "m.gguf").write_bytes(whole[: len(whole) // 2] if content is None else content)
    said = place.run("diagnose", "--json", "--", "llama-server", "-m", "m.gguf")
    found = said.document("diagnosis")
    assert said.status == 1
    assert found["verdict"]["kind"] == "model"
    assert told in found["baseline"]["model"]["problem"]
    assert found["launches"] <= 2  # a dying engine can take the line that names it along: once more


@pytest.mark.parametrize("words", [["--no-such-flag"], ["--", "-c", "512"], ["-ctk", "q9_9"]])
def test_a_flag_that_the_engine_refuses(place: Place, model: Path, words: list[str]) -> None:
    said = place.run("diagnose", "--json", "--", "llama-server", "-m", model, *words)
    found = said.document("diagnosis")
    assert said.status == 1
    assert found["verdict"]["kind"] == "config"
    assert words[0] in found["verdict"]["failure"]["text"] or words[-1] in json.dumps(found)


def test_names_that_are_not_utf8(place: Place, model: Path) -> None:
    name = b"m-\xff.gguf"
    Path(os.fsdecode(os.fsencode(place.root) + b"/" + name)).symlink_to(model)
    command = ("--", "llama-server", "-m", name, "-c", "512", "-np", "1")
    said = place.run("diagnose", "--json", "--max-launches", "1", *command)
    found = said.document("diagnosis")
    assert found["baseline"]["model"]["path"] == r"m-\udcff.gguf"
    assert found["baseline"]["model"]["arch"] == "qwen35"
    assert place.run("history", found["id"]).status == 0
    assert place.run("report", found["id"]).status == 0


def test_a_log_takes_the_place_of_the_start_as_given(place: Place, model: Path) -> None:
    (place.root / "server.log").write_text(
        "llama_init_from_model: failed to initialize the context:"
        " failed to allocate buffer for rs cache\n"
    )
    options = ("--json", "--from-log", "server.log", "--max-launches", "1")
    said = place.run("diagnose", *options, "--", "llama-server", "-m", model)
    found = said.document("diagnosis")
    assert said.status == 1
    assert found["verdict"]["component"] == "rs"
    assert found["verdict"]["trial"] is None


def test_running_out_of_launches_is_a_partial_record(place: Place, model: Path) -> None:
    said = place.run("diagnose", "--json", "--max-launches", "1", "--", *SMALL, model)
    found = said.document("diagnosis")
    assert said.status == 1
    assert (found["launches"], found["complete"], found["interrupted"]) == (1, False, False)


@pytest.mark.parametrize("columns", [40, 80])
def test_on_a_terminal_no_line_is_wider_than_it(place: Place, model: Path, columns: int) -> None:
    said = _on_a_terminal(place, columns, "diagnose", "--", *SMALL, str(model))
    lines = said.splitlines()
    assert any(line.startswith("SERVED") for line in lines)
    for line in lines:
        assert len(line) <= columns or str(model) in line, line


def _on_a_terminal(place: Place, columns: int, *words: str) -> str:
    """What a terminal of this width was sent on standard output."""
    import fcntl
    import struct
    import sys
    import termios

    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = place.environment({"NO_COLOR": "1", "TERM": "xterm"})
    with subprocess.Popen(
        [sys.executable, "-m", "arriero", *words], env=env, cwd=place.root,
        stdin=child, stdout=child, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        os.close(child)
        seen = b""
        while chunk := _read(parent):
            seen += chunk
        _, err = process.communicate(timeout=60)
    os.close(parent)
    assert b"Traceback" not in err
    return seen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # EIO: nobody has it open any more
        return b""


# --- what the file system refuses --------------------------------------------------------------


@pytest.fixture
def tiny_disk(place: Place) -> Iterator[Path]:
    """A file system of 64 KiB that is full."""
    disk = place.root / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)],
        capture_output=True, check=False, text=True,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip()}")
    (disk / "full").write_bytes(bytes(64 << 10))
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_costs_the_record_and_not_the_answer(
    place: Place, model: Path, tiny_disk: Path
) -> None:
    home = {"ARRIERO_HOME": str(tiny_disk)}
    said = place.run("diagnose", "--json", "--", *SMALL, model, env=home)
    found = said.document("diagnosis")
    assert said.status == 0
    assert any("no record was kept" in note for note in found["notes"])
    told = place.run("diagnose", "--out", tiny_disk, "--", *SMALL, model)
    assert told.status == 1
    assert "SERVED" in told.out
    assert "No space left" in told.err.splitlines()[-1]
    checked = place.run("verify", "--json", "--requests", "1", "--", *SMALL, model, env=home)
    assert any("no record" in note for note in checked.document("verification")["notes"])


def _without_privilege() -> tuple[str, ...]:
    """What to run ``arriero`` through so that permissions count, also for root."""
    if os.geteuid() != 0:
        return ()
    without = "-dac_override,-dac_read_search"
    wrapper = ("setpriv", "--inh-caps", without, "--bounding-set", without)
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root cannot give up its privilege here (setpriv)")
    return wrapper


def test_permission_trouble(place: Place, model: Path) -> None:
    through = _without_privilege()
    closed = place.root / "closed"
    closed.mkdir(mode=0o555)
    for name in ("secret.log", "secret.gguf"):
        (place.root / name).write_bytes(model.read_bytes())
        (place.root / name).chmod(0)
    said = place.run("explain", "secret.log", through=through)
    assert said.status == 2
    assert "Permission denied" in said.only_complaint()
    # the directory for reports is looked at before anything is started
    said = place.run("diagnose", "--out", closed / "out", "--", *SMALL, model, through=through)
    assert said.status == 1
    assert "Permission denied" in said.only_complaint()
    # the history is not worth losing the answer for
    kept = {"ARRIERO_HOME": str(closed / "home")}
    said = place.run("diagnose", "--json", "--", *SMALL, model, env=kept, through=through)
    assert said.status == 0
    assert any("no record" in note for note in said.document("diagnosis")["notes"])
    said = place.run("diagnose", "--json", "--", *SMALL, "secret.gguf", through=through)
    found = said.document("diagnosis")
    assert said.status == 1
    assert "ermission" in found["baseline"]["model"]["problem"]
    assert found["verdict"]["kind"] == "environment"
