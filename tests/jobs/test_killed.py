"""``arriero diagnose`` killed at random moments: nothing is left behind, every record is valid."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest

from arriero.base.sizes import MIB
from arriero.gguf.presets import tiny
from arriero.gguf.writer import write_model
from arriero.record import json_schema
from tests.cli.running import ARRIERO, Place, make_place
from tests.conftest import locate_engine
from tests.limits import above

pytestmark = pytest.mark.engine

LAUNCHES = 5
COMMAND = ("-c", "256", "-np", "160", "--no-warmup", "--threads-http", "2", "-cram", "0")
OPTIONS = ("--json", "--requests", "4", "--max-launches", str(LAUNCHES))
SMALL = " ".join(COMMAND).replace("160", "1")
"""The command fails for its recurrent state, then several trials run at the edge."""
ENDS = (
    ("SIGINT", False),
    ("SIGINT", True),
    ("SIGTERM", False),
    ("SIGKILL", False),
)
"""Signal, and whether it goes to the whole process group, as a terminal's Ctrl-C does."""
GONE_SECONDS = 15.0
"""After SIGKILL the guards need a moment to see it and to end what they keep."""


@dataclass(frozen=True)
class Left:
    """What one killed run left behind; every list should be empty."""

    how: str
    processes: list[str]
    ports: list[str]
    files: list[str]
    records: list[str]
    status: list[str]
    served: bool = False
    """Whether an engine ran at the moment of the signal."""

    @property
    def anything(self) -> bool:
        return any((self.processes, self.ports, self.files, self.records, self.status))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "hybrid.gguf"
    shape = tiny("qwen35", ssm_heads=32, ssm_state=128, ssm_groups=16, context_train=256)
    write_model(path, shape)
    return path


def begin(place: Place, original: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a diagnosis of a model whose path nothing else on this machine has."""
    model = place.root / f"unique-{place.root.parent.name}-{place.root.name}.gguf"
    model.symlink_to(original)
    words = (
        "diagnose",
        *OPTIONS,
        "--limit",
        str(above(place.engine, original, SMALL, 224 * MIB)),
        "--",
        "MALLOC_ARENA_MAX=1",
        "llama-server",
        "-m",
        str(model),
        *COMMAND,
    )
    with (place.root / "out").open("wb") as out, (place.root / "err").open("wb") as err:
        return subprocess.Popen(
            [*ARRIERO, *words], env=place.environment(), cwd=place.root, stdin=subprocess.DEVNULL,
            stdout=out, stderr=err, start_new_session=True,
        ), model  # fmt: skip


@pytest.fixture(scope="module")
def typical(original: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds that a diagnosis takes here when nobody kills it."""
    place = make_place(tmp_path_factory.mktemp("whole") / "run", locate_engine(10434))
    started = time.monotonic()
    process, model = begin(place, original)
    assert process.wait(800) == 1, (place.root / "err").read_text()
    taken = time.monotonic() - started
    left = look(place, model, 1, "not killed")
    assert not left.anything, left
    (record,) = records(place)
    assert len(record["trials"]) >= 4
    return taken


def kill_one(place: Place, original: Path, after: float, name: str, *, group: bool) -> Left:
    process, model = begin(place, original)
    served = False
    try:
        status = process.wait(after)
    except subprocess.TimeoutExpired:
        served = any(is_engine(found) for found in descendants(place, model))
        (os.killpg if group else os.kill)(process.pid, signal.Signals[name])
        status = process.wait(60)
    how = f"{name}{' to the group' if group else ''} after {after:.3f} s"
    return replace(look(place, model, status, how), served=served)


def look(place: Place, model: Path, status: int, how: str) -> Left:
    """What is left of one run, once the guards had the time to clean up."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        alive = list(descendants(place, model))
        files = [str(path) for path in place.scratch.iterdir()]
        if not (alive or files) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    err = (place.root / "err").read_text()
    wrong = []
    if not interpreter_was_starting(place, status):
        wrong += [word for word in ("Traceback", "Exception ignored") if word in err]
        wrong += unfitting(place, status)
    invalid = []
    for record in records(place):
        try:
            jsonschema.validate(record, json_schema("diagnosis"))
        except jsonschema.ValidationError as error:
            invalid.append(error.message)
    stray = [p.name for p in place.home.glob("*") if p.name != "history.sqlite3"]
    # A killed writer leaves SQLite's rollback journal: it belongs to the file and heals it.
    files += [name for name in stray if not name.startswith("history.sqlite3")]
    return Left(
        how=f"{how}, status {status}, {len(records(place))} records",
        processes=[f"{p.pid} {' '.join(p.cmdline())[:200]}" for p in alive],
        ports=[
            str(c.laddr)
            for p in alive
            for c in p.net_connections("tcp")
            if c.status == psutil.CONN_LISTEN
        ],
        files=files,
        records=invalid,
        status=[f"{text}: {err[-300:]}" for text in wrong],
    )


def descendants(place: Place, model: Path) -> Iterator[psutil.Process]:
    """Every process that names the model of this run or works in its directories."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            environment = process.environ()
        except psutil.Error:
            continue
        named = any(str(model) in word or str(place.scratch) in word for word in words)
        if named or environment.get("TMPDIR") == str(place.scratch):
            yield process


def is_engine(process: psutil.Process) -> bool:
    try:
        return process.name() == "llama-server"
    except psutil.Error:
        return False


def records(place: Place) -> list[dict[str, Any]]:
    history = place.home / "history.sqlite3"
    if not history.exists():
        return []
    with sqlite3.connect(history) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        table = database.execute("SELECT name FROM sqlite_master WHERE name = 'records'").fetchone()
        rows = database.execute("SELECT document FROM records").fetchall() if table else []
    database.close()
    return [json.loads(row[0]) for row in rows]


def interpreter_was_starting(place: Place, status: int) -> bool:
    """Whether the signal met Python before the first line of Arriero: nothing is open then."""
    err, out = (place.root / "err").read_text(), (place.root / "out").read_text()
    died = status in (-signal.SIGINT, -signal.SIGTERM) or "KeyboardInterrupt" in err
    return died and not (out or records(place) or "in main" in err)


def unfitting(place: Place, status: int) -> list[str]:
    """What exit status, standard output and record say that does not go together."""
    out = (place.root / "out").read_text()
    kept = records(place)
    if status in (-signal.SIGKILL, 1):
        return []
    if status != 130:
        return [f"exit status {status}"]
    if not out:  # so early that the command itself had not begun
        return ["a record and no output"] if kept else []
    told = json.loads(out)
    if told["schema"] == "arriero.error/1":  # before the first trial, or while the last is saved
        over = f"[{LAUNCHES}/" in (place.root / "err").read_text()
        fits = told["error"]["id"] == "interrupted" and (over or not kept)
        return [] if fits else [f"an error: {told['error']}, {len(kept)} records"]
    jsonschema.validate(told, json_schema("diagnosis"))
    fits = not told["complete"] and told["interrupted"] and [r["complete"] for r in kept] == [False]
    return [] if fits else ["an interrupted run whose record says something else"]


def run_many(root: Path, original: Path, typical: float, count: int, at_once: int) -> list[Left]:
    source = random.Random(7)
    plan = [(source.uniform(0.0, typical), *ENDS[i % len(ENDS)]) for i in range(count)]

    def one(item: tuple[int, tuple[float, str, bool]]) -> Left:
        number, (after, name, group) = item
        place = make_place(root / str(number), locate_engine(10434))
        return kill_one(place, original, after, name, group=group)

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, enumerate(plan)))


def judge(left: list[Left]) -> None:
    total = Counter[str]()
    for one in left:
        for what in ("processes", "ports", "files", "records", "status"):
            total[what] += len(getattr(one, what))
    for one in left:
        if one.anything:
            print(one)
    running = sum(one.served for one in left)
    print(f"\n{len(left)} runs killed, {running} with an engine up; left behind: {dict(total)}")
    assert running >= max(1, len(left) // 10)
    assert [one for one in left if one.anything] == []


def test_twelve_kills(tmp_path: Path, original: Path, typical: float) -> None:
    judge(run_many(tmp_path, original, typical, 12, 2))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_hundred_kills(tmp_path: Path, original: Path, typical: float) -> None:
    judge(run_many(tmp_path, original, typical, 200, 2))
