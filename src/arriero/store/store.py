"""Records kept in one SQLite file.

A record is saved whole in one transaction, as often as it grows: a kill at any moment leaves the
old one or the new one. The rollback journal is used, not a write-ahead log: it also works on
network file systems, it leaves no second file beside the history, and one writer a minute needs
no more.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sqlite3
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from arriero.base.errors import NotFoundError, RecordError, UsageError
from arriero.base.paths import StrPath
from arriero.base.redact import Redactor
from arriero.record import (
    DeviceRecord,
    Diagnosis,
    Explanation,
    HistoryEntry,
    Peak,
    Plan,
    Run,
    Verification,
    decode,
    encode,
)
from arriero.store.directory import default_directory

_FILE: Final = "history.sqlite3"
_APPLICATION: Final = 0x41525249  # "ARRI": whose file it is, in SQLite's header
_BUSY_SECONDS: Final = 20.0
_MIGRATIONS: Final = (
    (
        """CREATE TABLE records (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            schema TEXT NOT NULL,
            created_at TEXT NOT NULL,
            summary TEXT NOT NULL,
            complete INTEGER NOT NULL,
            document BLOB NOT NULL
        )""",
    ),
    (
        """CREATE TABLE runs (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            key TEXT NOT NULL UNIQUE,
            arch TEXT NOT NULL,
            document BLOB NOT NULL
        )""",
        "CREATE INDEX runs_by_arch ON runs (arch, number)",
    ),
)
"""What leads from each version of the tables to the next; ``PRAGMA user_version`` counts them."""

_SAVE: Final = """
    INSERT INTO records (id, schema, created_at, summary, complete, document)
    VALUES (:id, :schema, :created_at, :summary, :complete, :document)
    ON CONFLICT (id) DO UPDATE SET
        schema = :schema, summary = :summary, complete = :complete, document = :document
    RETURNING id, schema, created_at, summary, complete
"""
_WITH_RUNS: Final = 2
"""Version of the tables that first had ``runs``."""
_RUNS: Final = 2000
"""Runs kept; the oldest go. A few KiB each."""
_SAVE_RUN: Final = "INSERT OR REPLACE INTO runs (key, arch, document) VALUES (?, ?, ?)"
_COLUMNS: Final = "id, schema, created_at, summary, complete"


def new_id(prefix: str) -> str:
    """An ID that no other record has, such as ``diag-3f2a9c01``."""
    return f"{prefix}-{secrets.token_hex(4)}"


class Store:
    """The history in one directory. Nothing is opened or made before it is needed.

    Every method raises RecordError, in one line with what to do, when the history cannot be used:
    no permission, disk full, held by another for too long, damaged, or written by a newer Arriero.

    Args:
        directory: Where it is kept; by default ``default_directory()``.
    """

    def __init__(self, directory: StrPath | None = None) -> None:
        self.path: Path = Path(directory or default_directory()) / _FILE
        self.moved_aside: Path | None = None
        """A damaged history that ``save`` found and put aside, to be told to the user."""
        self.open_to_others: Path | None = None
        """The directory, if ``save`` found that others can look into it, to be told to the user."""

    def save(self, document: msgspec.Struct, redactor: Redactor) -> HistoryEntry:
        """Add a record, or replace the one with its ID. Secrets are taken out here, always.

        A damaged history is put aside (``moved_aside``), never deleted, and a new one is begun.
        """
        kept = redactor.scrub(document)
        values = {
            "id": getattr(kept, "id", None) or new_id(type(kept).__name__[:4].lower()),
            "schema": getattr(kept, "schema", ""),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            # File names need not be UTF-8, what SQLite keeps must be.
            "summary": _summary(kept).encode("utf-8", "backslashreplace").decode(),
            "complete": getattr(kept, "complete", True),
            "document": encode(kept),
        }
        try:
            return self._save(values)
        except RecordError as error:
            if error.id != "history-damaged":
                raise
        self.moved_aside = self._put_aside()
        return self._save(values)

    def get(self, name: str) -> msgspec.Struct:
        """The record with this ID, or the only one whose ID (or part after the dash) begins so.

        Raises:
            NotFoundError: There is none.
            UsageError: There are several.
        """
        with self._open() as database:
            found = self._find(database, name)
            (data,) = database.execute(
                "SELECT document FROM records WHERE id = ?", (found,)
            ).fetchone()
        return decode(data, f"record {found}")

    def list(self, limit: int = 20) -> tuple[HistoryEntry, ...]:
        """The newest records, newest first."""
        try:
            with self._open() as database:
                rows = database.execute(
                    f"SELECT {_COLUMNS} FROM records ORDER BY number DESC LIMIT ?",  # noqa: S608  constant
                    (max(0, limit),),
                ).fetchall()
        except NotFoundError:
            return ()
        return tuple(_entry(row) for row in rows)

    def newest(self) -> msgspec.Struct | None:
        """The record that was added last; None when there is none."""
        entries = self.list(1)
        return self.get(entries[0].id) if entries else None

    def remove(self, name: str) -> str:
        """Forget one record, found as ``get`` finds it; returns its ID."""
        with self._open() as database, _transaction(database):
            found = self._find(database, name)
            database.execute("DELETE FROM records WHERE id = ?", (found,))
        return found

    def save_runs(self, runs: Iterable[Run], redactor: Redactor) -> None:
        """Keep what runs took, for later plans; one that says the same as an earlier replaces it.

        Runs are kept beside the records, in no list, and the oldest of many are forgotten.
        """
        rows = [
            (_key(run), run.arch, msgspec.json.encode(run)) for run in map(redactor.scrub, runs)
        ]
        with self._open(make=True) as database, _transaction(database):
            database.executemany(_SAVE_RUN, rows)
            database.execute(
                "DELETE FROM runs WHERE number <= (SELECT max(number) FROM runs) - ?", (_RUNS,)
            )

    def runs(self, arch: str, limit: int = 200) -> tuple[Run, ...]:
        """The newest runs of models of one architecture, newest first; damaged ones are left out.

        There are none where the history is older than this and cannot be written.
        """
        try:
            with self._open() as database:
                if _version(database, self.path) < _WITH_RUNS:
                    return ()
                rows = database.execute(
                    "SELECT document FROM runs WHERE arch = ? ORDER BY number DESC LIMIT ?",
                    (arch, max(0, limit)),
                ).fetchall()
        except NotFoundError:
            return ()
        return tuple(run for (data,) in rows if (run := _run(data)) is not None)

    def _save(self, values: dict[str, Any]) -> HistoryEntry:
        with self._open(make=True) as database, _transaction(database):
            return _entry(database.execute(_SAVE, values).fetchone())

    def _find(self, database: sqlite3.Connection, name: str) -> str:
        if re.fullmatch(r"[a-z0-9-]{1,64}", name):
            rows = database.execute(
                "SELECT id FROM records WHERE id LIKE ? OR id LIKE ? ORDER BY id = ? DESC LIMIT 5",
                (f"{name}%", f"%-{name}%", name),
            ).fetchall()
            if len(rows) == 1 or (rows and rows[0][0] == name):
                found: str = rows[0][0]
                return found
            if rows:
                raise UsageError(
                    f"several records begin with {name}: {', '.join(row[0] for row in rows)}",
                    hint="give more of the ID",
                )
        raise NotFoundError(f"no record {name}", hint="arriero history lists them", id="no-record")

    @contextmanager
    def _open(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection with the tables of today. Every trouble of SQLite leaves as RecordError."""
        try:
            if not make and not self.path.exists():
                _check_place(self.path.parent)
                raise NotFoundError(
                    "there are no records yet", hint="arriero diagnose makes one", id="no-record"
                )
            if make:
                _check_place(self.path.parent)
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._keep_private()
            mode = "rwc" if make else "rw"
            # as_uri() also escapes ? and # in the path
            with closing(
                sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode={mode}",
                    uri=True,
                    timeout=_BUSY_SECONDS,
                    isolation_level=None,
                )
            ) as database:
                _migrate(database, self.path, needed=make)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise _told(error, self.path) from None

    def _keep_private(self) -> None:
        """Commands, paths and logs of a user are for nobody else to read on a shared machine.

        SQLite gives its journal the mode of the file.
        """
        if sys.platform != "win32":
            with suppress(FileExistsError):
                # Not opened: closing it would release the locks that another thread has on it.
                if sys.platform == "linux":
                    os.mknod(self.path, stat.S_IFREG | 0o600)
                else:
                    self.path.touch(0o600, exist_ok=False)
            held = self.path.stat()
            if held.st_mode & 0o077 and held.st_uid == os.geteuid():
                self.path.chmod(0o600)
            if self.path.parent.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
                self.open_to_others = self.path.parent

    def _put_aside(self) -> Path:
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        aside = self.path.with_name(f"{_FILE}.damaged-{stamp}-{secrets.token_hex(2)}")
        try:
            self.path.replace(aside)
            # A journal of the damaged file must not be played into the new one.
            with suppress(FileNotFoundError):
                journal = self.path.with_name(f"{_FILE}-journal")
                journal.replace(aside.with_name(f"{aside.name}-journal"))
        except OSError as error:
            raise _told(error, self.path) from None
        return aside


def _check_place(directory: Path) -> None:
    """Refuse a directory that is, or would be in, something else."""
    there = next(one for one in (directory, *directory.parents) if one.exists())
    if not there.is_dir():
        raise RecordError(
            f"no history can be kept in {directory}:"
            f" {'it' if there == directory else there} is not a directory",
            hint="set ARRIERO_HOME to a directory",
        )


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Taken for writing from the start, so that two writers wait for each other."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def _migrate(database: sqlite3.Connection, path: Path, *, needed: bool) -> None:
    """Bring the tables up to date; ``needed`` is false where older ones can be read as they are."""
    if _version(database, path) == len(_MIGRATIONS):
        return
    try:
        _bring_up(database, path)
    except sqlite3.OperationalError as error:
        if needed or not error.sqlite_errorname.startswith("SQLITE_READONLY"):
            raise


def _bring_up(database: sqlite3.Connection, path: Path) -> None:
    with _transaction(database):
        # Asked again: another Arriero may have done it while this one waited.
        version = _version(database, path)
        for statements in _MIGRATIONS[version:]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


def _version(database: sqlite3.Connection, path: Path) -> int:
    # In one statement, so that all three are of one moment: another may be making the tables.
    version, application, tables = database.execute(
        "SELECT (SELECT user_version FROM pragma_user_version),"
        " (SELECT application_id FROM pragma_application_id),"
        " (SELECT count(*) FROM sqlite_schema)"
    ).fetchone()
    if application != _APPLICATION and (tables or version):
        raise RecordError(
            f"{path} is a database of another program",
            hint="set ARRIERO_HOME to another directory",
        )
    if version > len(_MIGRATIONS):
        raise RecordError(
            f"the history {path} was written by a newer Arriero",
            hint="use that one, or set ARRIERO_HOME to another directory",
            id="record-version",
        )
    return int(version)


def _told(error: sqlite3.Error | OSError, path: Path) -> RecordError:
    elsewhere = "set ARRIERO_HOME to a directory that can be written"
    if isinstance(error, OSError):
        return RecordError(f"cannot use the history {path}: {error.strerror}", hint=elsewhere)
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return RecordError(
            f"the history {path} is damaged: {error}",
            hint="move it away to begin a new one",
            id="history-damaged",
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        hint = "another Arriero holds it: wait for it to end"
    elif name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        hint = f"is the disk full? free some space, or {elsewhere}"
    else:
        hint = elsewhere
    return RecordError(f"cannot use the history {path}: {error}", hint=hint)


def _entry(row: tuple[str, str, str, str, int]) -> HistoryEntry:
    id_, schema, created_at, summary, complete = row
    return HistoryEntry(
        id=id_, schema=schema, created_at=created_at, summary=summary, complete=bool(complete)
    )


def _key(run: Run) -> str:
    """What two runs share that say the same."""
    same = msgspec.structs.replace(run, id="", taken_at="", peak=Peak(), devices=_names(run))
    buffers = tuple(msgspec.structs.replace(b, asked=None) for b in run.buffers)
    data = msgspec.json.encode(msgspec.structs.replace(same, buffers=buffers))
    return hashlib.sha256(data).hexdigest()


def _names(run: Run) -> tuple[DeviceRecord, ...]:
    """The devices without what they had free."""
    return tuple(msgspec.structs.replace(d, total=None, free=None) for d in run.devices)


def _run(data: bytes) -> Run | None:
    try:
        return msgspec.json.decode(data, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _summary(document: msgspec.Struct) -> str:
    """What was found, in a few words."""
    match document:
        case Diagnosis(verdict=named, recommendation=advice):
            model = document.baseline.model
            parts = [Path(model.path.replace("\\", "/")).name] if model else []
            parts.append(_failure(named) if named else "nothing failed")
            if advice and advice.changes:
                parts.append(", ".join(advice.changes) + (" verified" if advice.verified else ""))
            return "; ".join(parts)
        case Verification(requests=requests):
            verdict = "verified" if document.verified else "not verified"
            return f"{verdict}: {requests.ok} of {requests.sent} requests, {document.target}"
        case Explanation(failure=failure):
            return _failure(failure) if failure else f"no failure: {document.outcome}"
        case Plan(fits=fits):
            verdict = {True: "fits", False: "does not fit", None: "may fit"}[fits]
            if fits is None and document.starts and document.outgrows:
                verdict = "starts, can outgrow"
            changes = [f"{a.change} would" for a in document.advice if a.recommended]
            return "; ".join([Path(document.model.path).name, f"plan: {verdict}", *changes])
    return ""


def _failure(failure: Any) -> str:
    """Kind, component and device of a verdict or failure: ``allocation rs on CPU``."""
    words = [failure.kind, *([failure.component] if failure.component else [])]
    return " ".join(words) + (f" on {failure.device}" if failure.device else "")
