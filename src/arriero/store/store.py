"""Records in one SQLite file.

A record is saved whole in one transaction each time it grows: a kill at any moment leaves the old
or the new version. SQLite's rollback journal is used instead of a write-ahead log: it also works on
network file systems, leaves no second file beside the history, and is enough for one writer a
minute.
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
    Incident,
    Peak,
    Plan,
    Probe,
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
    """The history in one directory. Nothing is opened or created before it is needed.

    Every method raises RecordError, one line with what to do, if the history cannot be used: no
    permission, a full disk, locked for too long, damaged, or written by a newer Arriero.

    Args:
        directory: Its directory; by default ``default_directory()``.
    """

    def __init__(self, directory: StrPath | None = None) -> None:
        self.path: Path = Path(directory or default_directory()) / _FILE
        self.moved_aside: Path | None = None
        """A damaged history that ``save`` put aside; the user must be told."""
        self.open_to_others: Path | None = None
        """The directory, if ``save`` found that others can read it; the user must be told."""

    def save(self, document: msgspec.Struct, redactor: Redactor) -> HistoryEntry:
        """Add a record, or replace the one with the same ID. Secrets are always removed here.

        A damaged history is put aside (``moved_aside``), never deleted, and a new one is started.
        """
        kept = redactor.scrub(document)
        values = {
            "id": getattr(kept, "id", None) or new_id(type(kept).__name__[:4].lower()),
            "schema": getattr(kept, "schema", ""),
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            # File names need not be UTF-8, but SQLite stores only UTF-8.
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
        """The record with this ID, or the only one whose ID (or its part after the dash) begins so.

        Raises:
            NotFoundError: There is no such record.
            UsageError: There are several.
        """
        with self._open() as database:
            found = self._find(database, name)
            (data,) = database.execute(
                "SELECT document FROM records WHERE id = ?", (found,)
            ).fetchone()
        return decode(data, f"record {found}")

    def list(self, limit: int = 20, schema: str = "") -> tuple[HistoryEntry, ...]:
        """The newest records, newest first; those of one schema where it is given."""
        try:
            with self._open() as database:
                rows = database.execute(
                    f"SELECT {_COLUMNS} FROM records WHERE ? IN ('', schema)"  # noqa: S608  constant
                    " ORDER BY number DESC LIMIT ?",
                    (schema, max(0, limit)),
                ).fetchall()
        except NotFoundError:
            return ()
        return tuple(_entry(row) for row in rows)

    def newest(self) -> msgspec.Struct | None:
        """The record that was added last; None if there is none."""
        entries = self.list(1)
        return self.get(entries[0].id) if entries else None

    def remove(self, name: str) -> str:
        """Delete one record, found as in ``get``, and return its ID."""
        with self._open() as database, _transaction(database):
            found = self._find(database, name)
            database.execute("DELETE FROM records WHERE id = ?", (found,))
        return found

    def save_runs(self, runs: Iterable[Run], redactor: Redactor) -> None:
        """Keep runs for later plans; a run with the same key replaces the earlier one.

        Runs are kept beside the records and are not listed. The oldest are deleted.
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
        """The newest runs of one architecture's models, newest first, without damaged ones.

        There are none if the history is from an older version and cannot be written.
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
        raise NotFoundError(
            f"there is no record {name}", hint="run arriero history to see all", id="no-record"
        )

    @contextmanager
    def _open(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection with today's tables. Every error of SQLite becomes a RecordError."""
        try:
            if not make and not self.path.exists():
                _check_place(self.path.parent)
                raise NotFoundError(
                    "there are no records yet",
                    hint="run arriero diagnose to make one",
                    id="no-record",
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
        """Let nobody else on a shared machine read a user's commands, paths and logs.

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
            # A journal of the damaged file must not be applied to the new one.
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
            f"cannot keep a history in {directory}:"
            f" {'it' if there == directory else there} is not a directory",
            hint="set ARRIERO_HOME to a directory",
        )


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that writes from the start, so that two writers wait for each other."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            database.execute("ROLLBACK")
        raise


def _migrate(database: sqlite3.Connection, path: Path, *, needed: bool) -> None:
    """Bring the tables up to date; ``needed`` is false if older tables can be read unchanged."""
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
            f"{path} is the database of another program",
            hint="set ARRIERO_HOME to another directory",
        )
    if version > len(_MIGRATIONS):
        raise RecordError(
            f"the history {path} was written by a newer Arriero",
            hint="use that version, or set ARRIERO_HOME to another directory",
            id="record-version",
        )
    return int(version)


def _told(error: sqlite3.Error | OSError, path: Path) -> RecordError:
    elsewhere = "set ARRIERO_HOME to a writable directory"
    if isinstance(error, OSError):
        return RecordError(f"cannot use the history {path}: {error.strerror}", hint=elsewhere)
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return RecordError(
            f"the history {path} is damaged: {error}",
            hint="move it away to start a new one",
            id="history-damaged",
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        hint = "wait until the other Arriero that uses it ends"
    elif name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        hint = f"free space on the disk if it is full, or {elsewhere}"
    else:
        hint = elsewhere
    return RecordError(f"cannot use the history {path}: {error}", hint=hint)


def _entry(row: tuple[str, str, str, str, int]) -> HistoryEntry:
    id_, schema, created_at, summary, complete = row
    return HistoryEntry(
        id=id_, schema=schema, created_at=created_at, summary=summary, complete=bool(complete)
    )


def _key(run: Run) -> str:
    """A key that is equal for runs under the same conditions."""
    same = msgspec.structs.replace(run, id="", taken_at="", peak=Peak(), devices=_names(run))
    buffers = tuple(msgspec.structs.replace(b, asked=None) for b in run.buffers)
    data = msgspec.json.encode(msgspec.structs.replace(same, buffers=buffers))
    return hashlib.sha256(data).hexdigest()


def _names(run: Run) -> tuple[DeviceRecord, ...]:
    """The devices without their memory."""
    return tuple(msgspec.structs.replace(d, total=None, free=None) for d in run.devices)


def _run(data: bytes) -> Run | None:
    try:
        return msgspec.json.decode(data, type=Run)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _summary(document: msgspec.Struct) -> str:
    """The result, in a few words."""
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
        case Incident(verdict=failure, action=action, down_s=down):
            parts = [document.signal] if document.signal else []
            parts += [_failure(failure), *([action.value.replace("_", " ")] if action else [])]
            return "; ".join([*parts, *([f"down {down:.1f} s"] if down is not None else [])])
        case Probe(outcome=outcome, change=change):
            changes = [f"{flag} {value}" for flag, value in change.items()]
            return "; ".join(["saved prompts", outcome, *changes])
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
