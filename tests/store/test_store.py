"""The history, with real SQLite, real kills and a really full disk."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.base.errors import NotFoundError, RecordError, UsageError
from arriero.base.redact import Redactor
from arriero.record import Diagnosis, Explanation, HistoryEntry, Verification
from arriero.store import Store, default_directory, new_id
from tests.examples import example_diagnosis, example_explanation, example_verification

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def save(store: Store, **changes: Any) -> HistoryEntry:
    return store.save(msgspec.structs.replace(example_diagnosis(), **changes), Redactor())


def test_what_is_saved_is_found_again(store: Store) -> None:
    for document in (example_diagnosis(), example_verification()):
        entry = store.save(document, Redactor())
        assert store.get(entry.id) == document
        assert entry == store.list()[0]
        assert store.newest() == document
    assert [entry.id for entry in store.list()] == ["veri-81b0d4", "diag-3f2a9c"]
    assert [entry.schema for entry in store.list()] == [
        "arriero.verification/1",
        "arriero.diagnosis/1",
    ]


def test_summaries_say_what_was_found(store: Store) -> None:
    store.save(example_explanation(), Redactor())
    store.save(example_verification(), Redactor())
    save(store)
    assert [entry.summary for entry in store.list()] == [
        "hybrid-40l.gguf; allocation rs on CPU; -np 64 → 16, -cram 0, -ctxcp 0 verified",
        "not verified: 64 of 64 requests, http://127.0.0.1:43117",
        "allocation rs on CPU",
    ]


def test_a_document_without_id_gets_one(store: Store) -> None:
    first = store.save(example_explanation(), Redactor())
    second = store.save(example_explanation(), Redactor())
    assert first.id != second.id
    assert first.id.startswith("expl-")
    assert isinstance(store.get(first.id), Explanation)


def test_a_record_grows_and_keeps_its_place(store: Store) -> None:
    trials = example_diagnosis().trials
    for n in range(len(trials) + 1):
        save(store, id="diag-1", trials=trials[:n], complete=False)
    store.save(example_verification(), Redactor())
    entry = save(store, id="diag-1", trials=trials, complete=True)
    assert entry.complete
    assert [e.id for e in store.list()] == ["veri-81b0d4", "diag-1"]
    found = store.get("diag-1")
    assert isinstance(found, Diagnosis)
    assert found.trials == trials


def test_secrets_are_taken_out_whoever_saves(store: Store) -> None:
    document = msgspec.structs.replace(
        example_diagnosis(),
        notes=("the key is correct-horse", "HF_TOKEN=hf_AAAABBBBCCCCDDDDEEEE"),
        not_tried=("--api-key battery-staple",),
    )
    entry = store.save(document, Redactor(secrets=["correct-horse"]))
    raw = store.path.read_bytes()
    for secret in (b"correct-horse", b"AAAABBBB", b"battery-staple"):
        assert secret not in raw
    found = store.get(entry.id)
    assert isinstance(found, Diagnosis)
    assert found.baseline == document.baseline


def test_records_are_found_by_a_part_that_only_one_has(store: Store) -> None:
    save(store, id="diag-3f2a9c01")
    save(store, id="diag-3f77aa02")
    save(store, id="diag-3f77aa02b")
    for name in ("3f2a", "diag-3f2a", "diag-3f2a9c01"):
        found = store.get(name)
        assert isinstance(found, Diagnosis)
        assert found.id == "diag-3f2a9c01"
    exact = store.get("diag-3f77aa02")
    assert isinstance(exact, Diagnosis)
    assert exact.id == "diag-3f77aa02"
    with pytest.raises(UsageError, match="several records begin with 3f: "):
        store.get("3f")
    for name in ("ffff", "", "%", "_", "diag-3f2a9c01'--", "x" * 1000, "\0", "é"):
        with pytest.raises(NotFoundError, match="no record"):
            store.get(name)


def test_an_empty_history(store: Store) -> None:
    assert store.list() == ()
    assert store.newest() is None
    with pytest.raises(NotFoundError, match="no records yet"):
        store.get("diag-1")
    assert not store.path.parent.exists()


def test_remove_forgets_one(store: Store) -> None:
    save(store, id="diag-1")
    save(store, id="diag-2")
    assert store.remove("diag-1") == "diag-1"
    assert [entry.id for entry in store.list()] == ["diag-2"]
    with pytest.raises(NotFoundError):
        store.remove("diag-1")


def test_list_gives_the_newest_first_and_no_more_than_asked(store: Store) -> None:
    for n in range(5):
        save(store, id=f"diag-{n}")
    assert [entry.id for entry in store.list(2)] == ["diag-4", "diag-3"]
    assert store.list(0) == store.list(-1) == ()


def test_ids_are_short_and_differ() -> None:
    ids = {new_id("diag") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(id_) == 13 and id_.startswith("diag-") for id_ in ids)


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARRIERO_HOME", str(tmp_path / "here"))
    assert default_directory() == tmp_path / "here"
    assert Store().path.parent == tmp_path / "here"
    monkeypatch.delenv("ARRIERO_HOME")
    assert default_directory().name == "arriero"


@pytest.mark.parametrize("home", ["file", "file/below"])
def test_a_home_that_is_no_directory_is_told(home: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Store(tmp_path / home)
    for use in (
        store.list,
        lambda: store.get("x"),
        lambda: store.save(example_diagnosis(), Redactor()),
    ):
        with pytest.raises(RecordError, match=r"file(: it)? is not a directory") as raised:
            use()
        assert "ARRIERO_HOME" in raised.value.hint


def test_a_directory_with_odd_characters(tmp_path: Path) -> None:
    store = Store(tmp_path / "a b?c#d%20é")
    save(store, id="diag-1")
    assert store.path.is_file()
    assert [entry.id for entry in store.list()] == ["diag-1"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", ["overwritten", "cut", "scribbled"])
def test_a_damaged_history_is_put_aside_never_deleted(store: Store, damage: str) -> None:
    for n in range(30):
        save(store, id=f"diag-{n}")
    whole = store.path.read_bytes()
    broken = {
        "overwritten": b"this is no database" * 1000,
        "cut": whole[: len(whole) // 3],
        "scribbled": whole[:100] + b"\xff" * 8000 + whole[8100:],
    }[damage]
    store.path.write_bytes(broken)
    with pytest.raises(RecordError) as caught:
        store.list()
    assert caught.value.id == "history-damaged"
    assert caught.value.hint
    assert store.path.read_bytes() == broken

    save(store, id="diag-new")
    assert store.moved_aside is not None
    assert store.moved_aside.read_bytes() == broken
    assert [entry.id for entry in store.list()] == ["diag-new"]


def test_a_history_of_a_newer_arriero_is_left_alone(store: Store) -> None:
    save(store)
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    before = store.path.read_bytes()
    for use in (lambda: store.list(), lambda: save(store)):
        with pytest.raises(RecordError, match="newer Arriero"):
            use()
    assert store.path.read_bytes() == before


def test_a_database_of_another_program_is_left_alone(store: Store) -> None:
    store.path.parent.mkdir()
    with sqlite3.connect(store.path) as database:
        database.execute("CREATE TABLE theirs (a)")
    database.close()
    before = store.path.read_bytes()
    with pytest.raises(RecordError, match="another program"):
        save(store)
    assert store.path.read_bytes() == before


def test_a_damaged_record_does_not_hide_the_others(store: Store) -> None:
    save(store, id="diag-1")
    save(store, id="diag-2")
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE records SET document = ? WHERE id = 'diag-1'", (b"{",))
    database.close()
    with pytest.raises(RecordError, match="record diag-1 is damaged"):
        store.get("diag-1")
    assert isinstance(store.get("diag-2"), Diagnosis)
    assert len(store.list()) == 2


def test_a_lock_that_is_never_released_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store)
    monkeypatch.setattr("arriero.store.store._BUSY_SECONDS", 0.1)
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        assert len(store.list()) == 1
        with pytest.raises(RecordError, match="locked") as caught:
            save(store)
        assert "other Arriero" in caught.value.hint
    finally:
        holder.close()


def run_as(code: str, *words: str, user: int | None = None) -> str:
    """Output of Python code in a process of its own; root steps down to ``user``."""
    head = f"import os\nif os.geteuid() == 0: os.setuid({user})\n" if user else ""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + head + code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORTS = """
import sys
from pathlib import Path
import msgspec
from arriero.base.errors import ArrieroError
from arriero.base.redact import Redactor
from arriero.store import Store
from tests.examples import example_diagnosis
def told(use):
    try: print("ok", use())
    except ArrieroError as error: print(type(error).__name__, error.message, "|", error.hint)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are those of Unix")
def test_a_home_that_cannot_be_written() -> None:
    # pytest's own directories are closed to the other user.
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        store = Store(Path(base) / "kept")
        save(store, id="diag-1")
        store.path.parent.chmod(0o555)
        store.path.chmod(0o444)
        code = (
            "kept, new = Store(Path(sys.argv[1]) / 'kept'), Store(Path(sys.argv[1]) / 'new')\n"
            "told(lambda: kept.list()[0].id)\n"
            "told(lambda: kept.get('diag-1').id)\n"
            "told(lambda: kept.save(example_diagnosis(), Redactor()))\n"
            "told(lambda: new.save(example_diagnosis(), Redactor()))\n"
            "told(lambda: new.list())\n"
        )
        lines = run_as(code, base, user=65534).splitlines()
        store.path.parent.chmod(0o755)
    assert lines[0] == lines[1] == "ok diag-1"
    assert lines[2].startswith("RecordError cannot use the history")
    assert "readonly" in lines[2]
    assert "Permission denied" in lines[3]
    assert "set ARRIERO_HOME" in lines[2]
    assert "set ARRIERO_HOME" in lines[3]
    assert lines[4] == "ok ()"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("only root on Linux can mount a file system for a test")
    place = tmp_path / "disk"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, b"size=256k"):
        pytest.skip(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield place
    finally:
        libc.umount(os.fsencode(place))


def fill(store: Store) -> None:
    for n in range(100):
        save(store, id=f"diag-{n}")


def test_a_full_disk_keeps_what_was_there(small_disk: Path) -> None:
    store = Store(small_disk)
    with pytest.raises(RecordError, match="full") as caught:
        fill(store)
    assert "free space" in caught.value.hint
    kept = len(store.list(1000))
    assert kept > 0
    for entry in store.list(1000):
        assert isinstance(store.get(entry.id), Diagnosis)
    assert [path.name for path in small_disk.iterdir()] == ["history.sqlite3"]


def test_a_file_size_limit_keeps_what_was_there(store: Store) -> None:
    resource = pytest.importorskip("resource")
    save(store, id="diag-1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (store.path.stat().st_size + 5000, hard))
    try:
        with pytest.raises(RecordError, match="cannot use the history"):
            save(store, id="diag-2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [entry.id for entry in store.list()] == ["diag-1"]
    save(store, id="diag-2")
    assert len(store.list()) == 2


WRITER = (
    IMPORTS
    + """
store = Store(Path(sys.argv[1]))
document = example_diagnosis()
print("ready", flush=True)
for round in range(int(sys.argv[3])):
    for n in range(len(document.trials) + 1):
        grown = msgspec.structs.replace(
            document, id=f"{sys.argv[2]}-{round}", trials=document.trials[:n], launches=n
        )
        store.save(grown, Redactor())
"""
)


def check_every_record(store: Store) -> int:
    entries = store.list(10_000)
    for entry in entries:
        found = store.get(entry.id)
        assert isinstance(found, Diagnosis | Verification)
        if isinstance(found, Diagnosis):
            assert len(found.trials) == found.launches
    return len(entries)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
@pytest.mark.alone  # on a busy machine it saves next to nothing before it is killed
def test_a_kill_at_any_moment_leaves_every_record_valid(store: Store) -> None:
    chance = random.Random(11)
    for run in range(200):  # a busy machine may save nothing before it is killed
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.path.parent), f"run{run}", "100000"],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.01 + chance.random() / 10)
            writer.kill()
        if run % 10 == 9 and check_every_record(store) >= 20 and run >= 29:
            break
    assert check_every_record(store) >= 20
    assert store.moved_aside is None
    with sqlite3.connect(store.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    # The next write takes away the journal that a kill may have left behind.
    store.save(example_diagnosis(), Redactor())
    assert [path.name for path in store.path.parent.iterdir()] == ["history.sqlite3"]


def test_two_processes_write_at_once(store: Store) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.path.parent), name, "3"],
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )
        for name in ("one", "two")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert check_every_record(store) == 6
    assert {entry.id for entry in store.list()} == {
        f"{name}-{n}" for name in ("one", "two") for n in range(3)
    }


def test_threads_begin_one_history_at_once(store: Store) -> None:
    failed: list[BaseException] = []

    def begin(n: int) -> None:
        try:
            save(store, id=f"diag-{n}")
        except BaseException as error:  # noqa: BLE001  told to the test, whatever it is
            failed.append(error)

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(store.list()) == 8


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_the_history_is_for_its_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = Store(tmp_path / "home")
        save(store)
        assert store.path.stat().st_mode & 0o777 == 0o600
        assert store.path.parent.stat().st_mode & 0o777 == 0o700
        assert store.open_to_others is None
        store.path.chmod(0o644)  # as earlier versions left it
        save(store)
        assert store.path.stat().st_mode & 0o777 == 0o600
        store.path.parent.chmod(0o755)
        save(store)
        assert store.open_to_others == store.path.parent
    finally:
        os.umask(before)
