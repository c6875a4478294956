"""What runs took, kept beside the records."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.base.errors import RecordError
from arriero.base.redact import Redactor
from arriero.record import Diagnosis, Run
from arriero.store import Store
from arriero.store import store as module
from tests.examples import example_diagnosis, example_run
from tests.store.test_store import run_as


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def keep(store: Store, **changes: Any) -> Run:
    run = msgspec.structs.replace(example_run(), **changes)
    store.save_runs([run], Redactor())
    return run


def first_tables(path: Path) -> None:
    """A history as the first version of the tables left it, with one record."""
    path.parent.mkdir(parents=True)
    store = Store(path.parent)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_MIGRATIONS", module._MIGRATIONS[:1])
        store.save(example_diagnosis(), Redactor())
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        names = {name for (name,) in database.execute("SELECT name FROM sqlite_schema")}
    database.close()
    assert "runs" not in names


def test_runs_of_an_architecture_are_found_newest_first(store: Store) -> None:
    assert store.runs("qwen35") == ()
    assert not store.path.parent.exists()
    one, two = keep(store, id="run-1", model="a"), keep(store, id="run-2", model="b")
    keep(store, id="run-3", arch="llama")
    assert store.runs("qwen35") == (two, one)
    assert store.runs("qwen35", limit=1) == (two,)
    assert store.list() == ()


def test_a_run_that_says_the_same_replaces_the_earlier(store: Store) -> None:
    keep(store, id="run-1")
    keep(store, id="run-2", model="b")
    buffers = tuple(msgspec.structs.replace(b, asked=None) for b in example_run().buffers)
    devices = tuple(msgspec.structs.replace(d, free=1) for d in example_run().devices)
    keep(store, id="run-3", buffers=buffers, devices=devices, taken_at="later")
    assert [run.id for run in store.runs("qwen35")] == ["run-3", "run-2"]
    settings = msgspec.structs.replace(example_run().settings, n_ubatch=128)
    keep(store, id="run-4", settings=settings)
    assert [run.id for run in store.runs("qwen35")] == ["run-4", "run-3", "run-2"]


def test_no_more_than_a_number_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RUNS", 3)
    for n in range(7):
        keep(store, id=f"run-{n}", model=str(n))
    assert [run.id for run in store.runs("qwen35")] == ["run-6", "run-5", "run-4"]


def test_secrets_are_taken_out(store: Store) -> None:
    engine = msgspec.structs.replace(example_run().engine, path="/opt/correct-horse/llama-server")
    run = msgspec.structs.replace(example_run(), engine=engine)
    store.save_runs([run], Redactor(secrets=["correct-horse"]))
    assert b"correct-horse" not in store.path.read_bytes()
    assert len(store.runs("qwen35")) == 1


def test_a_damaged_run_does_not_hide_the_others(store: Store) -> None:
    keep(store, id="run-1", model="a")
    keep(store, id="run-2", model="b")
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE runs SET document = ? WHERE number = 2", (b'{"id": 3',))
    database.close()
    assert [run.id for run in store.runs("qwen35")] == ["run-1"]


def test_an_older_history_opens_and_grows(store: Store) -> None:
    first_tables(store.path)
    assert [entry.id for entry in store.list()] == [example_diagnosis().id]
    run = keep(store)
    assert store.runs(run.arch) == (run,)
    assert isinstance(store.get(example_diagnosis().id), Diagnosis)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are those of Unix")
def test_an_older_history_that_cannot_be_written_can_be_read() -> None:
    # pytest's own directories are closed to the other user.
    with tempfile.TemporaryDirectory() as base:
        Path(base).chmod(0o755)
        store = Store(Path(base) / "home")
        first_tables(store.path)
        store.path.parent.chmod(0o555)
        store.path.chmod(0o444)
        code = (
            "from tests.examples import example_run\n"
            "store = Store(Path(sys.argv[1]) / 'home')\n"
            "told(lambda: store.list()[0].id)\n"
            "told(lambda: store.runs('qwen35'))\n"
            "told(lambda: store.save_runs([example_run()], Redactor()))\n"
        )
        lines = run_as(code, base, user=65534).splitlines()
        store.path.parent.chmod(0o755)
    assert lines[0] == f"ok {example_diagnosis().id}"
    assert lines[1] == "ok ()"
    assert lines[2].startswith("RecordError cannot use the history")


def test_a_history_of_a_newer_arriero_gives_no_runs(store: Store) -> None:
    keep(store)
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(RecordError, match="newer Arriero"):
        store.runs("qwen35")
