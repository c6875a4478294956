"""No text of a client, of an answer or of a model's file is ever read as a message of the server.

Each engine printed a planted text in all the ways it has (``capturing.py``); here the text is, in
each of them, every line that the grammar knows.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from arriero.base.words import Evidence, Kind, LogOutcome
from arriero.logs import LogReader, read_log
from arriero.logs.model import Reading
from tests.conftest import BUILDS
from tests.hostile.capturing import FIRST, LAST
from tests.hostile.phrases import phrases

pytestmark = pytest.mark.sampled(7)
DATA = Path(__file__).parent / "data"
RUNS = ("requests", "template", "embedding", "draft")
PREFIXES = ("--log-prefix", "--no-log-prefix")
HARMLESS = "why does it say so"
_STAMP = re.compile(r"(?m)^\d+\.\d\d\.\d{3}\.\d{3} ")
_OF_START = re.compile(
    r"(?m)^(?:[\d.]+ [ID] )?(?:llama_model_loader|print_info|load|cmn  common_init_): "
)
_TASK = re.compile(r"\btask (?:= )?(\d{1,5})\b")
_UNENDED = re.compile(rf"\n[^\n]*'{FIRST}\"\Z")
"""Two lines after each place are kept of what an engine printed; this is the half of another."""
_WRITTEN = re.compile(FIRST + r"(?P<quote>\\*)\"(?:(?P<escaped>\\+)n|\n)'" + LAST)


@cache
def captured(build: int) -> dict[str, list[str]]:
    """Run of an engine → the places in its log where planted text came out."""
    found: dict[str, list[str]] = {}
    for block in (DATA / f"carriers-{build}.txt").read_text(encoding="utf-8").split("%% ")[1:]:
        name, _, text = block.partition("\n")
        text = _UNENDED.sub("", text.rstrip("\n"))
        found.setdefault(name, []).append(text)
    return found


def planted(place: str, phrase: str) -> str:
    """The place with the phrase as this carrier would have written it."""

    def written(found: re.Match[str]) -> str:
        text = phrase
        if found["escaped"] and not found["quote"]:
            return text.replace("\n", "\\n")
        for _ in range(len(found["quote"]).bit_length()):
            text = json.dumps(text)[1:-1]
        return text

    text = _WRITTEN.sub(written, place)
    text = text.replace(f"{FIRST}-{LAST}", re.sub(r"[^a-zA-Z0-9-]+", "-", phrase))
    text = text.replace(f"{FIRST}\"\n'{LAST}".lower(), phrase.lower())
    line = phrase.replace("\n", " ")
    return text.replace(FIRST, line).replace(LAST, line)


def served(prefix: bool, task: int = 0) -> tuple[str, str]:
    """What a server says before and after a request."""
    stamp, later = ("0.00.100.000 I ", "9.00.100.000 I ") if prefix else ("", "")
    before = ("srv  llama_server: model loaded", "srv  llama_server: listening on http://[::1]:1")
    after = (
        f"slot      release: id  1 | task {task} | stop processing: n_tokens = 17, truncated = 0",
        "srv  update_slots: all slots are idle",
    )
    return (
        "".join(f"{stamp}{line}\n" for line in before),
        "".join(f"{later}{line}\n" for line in after),
    )


def told(reading: Reading) -> dict[str, object]:
    """All that a reading says but for what line it is on and how that reads."""
    return {
        "failure": reading.failure,
        "secondary": reading.secondary,
        "outcome": reading.outcome,
        "buffers": reading.buffers,
        "effective": reading.effective,
        "engine": reading.engine,
        "notices": {notice.id for notice in reading.notices} - {"sizes_hidden"},
    }


def read(text: str) -> Reading:
    (reading,) = read_log([text.encode()])
    return reading


CASES = [
    (build, run + prefix)
    for build in BUILDS
    for run in RUNS
    for prefix in PREFIXES
    if run + prefix in captured(build)
]


def forge(
    build: int, name: str, of_file: Callable[[int], str], said: Callable[[int], str] | None = None
) -> str:
    """One log with a phrase in each place of one run (by its number), served before and after.

    ``of_file``: what the model's file says, and a request as well unless it ``said`` otherwise.
    The log's own clock goes on from a minute; what is planted keeps whatever it has.
    """
    said = said or of_file
    at = count()

    def at_its_time(text: str) -> str:
        return _STAMP.sub(lambda _: f"1.00.{(n := next(at)) // 1000:03}.{n % 1000:03} ", text)

    prefix = not name.endswith("--no-log-prefix")
    log: list[str] = []
    task, ready = 0, False
    for n, place in enumerate(captured(build)[name]):
        if _OF_START.search(place):
            log += [planted(at_its_time(place), of_file(n)), "\n"]
            continue
        if not ready:
            log.append(at_its_time(served(prefix)[0]))
            ready = True
        task = max([task, *(int(found[1]) for found in _TASK.finditer(place))])
        log += [planted(at_its_time(place), said(n)), at_its_time("\n" + served(prefix, task)[1])]
    if not ready:
        log += map(at_its_time, served(prefix))
    return "".join(log)


@cache
def harmlessly(build: int, name: str) -> dict[str, object]:
    return told(read(forge(build, name, lambda _: HARMLESS)))


def forged(build: int, name: str, said: Callable[[int], str]) -> dict[str, object]:
    """What a reading says that it would not say of harmless text."""
    harmless = harmlessly(build, name)
    assert harmless["failure"] is None
    reading = told(read(forge(build, name, said)))
    return {part: value for part, value in reading.items() if value != harmless[part]}


@pytest.mark.parametrize(("build", "name"), CASES)
def test_no_phrase_says_anything_in_a_carrier(build: int, name: str) -> None:
    rows = list(phrases())
    random.Random(build).shuffle(rows)
    for at in range(0, len(rows), len(rows) // 20):
        found = forged(build, name, lambda n, at=at: phrases()[rows[(at + 7 * n) % len(rows)]])  # type: ignore[misc]  # mypy has no type for a default
        assert found == {}, [rows[(at + 7 * n) % len(rows)] for n in range(40)]


@pytest.mark.parametrize(("build", "name"), CASES)
def test_a_task_in_repeated_text_is_no_task_of_the_server(build: int, name: str) -> None:
    """Taken for one, it made the lines of the server look like those of an earlier process: all
    that came after was kept back together, and a phrase in it said something in the end."""
    told_of = "slot update_slots: id  0 | task 2505 | forcing full prompt re-processing"
    said = (told_of, "print_info: no_alloc = 1", "amdgpuwait loop timeout")
    for first in range(len(captured(build)[name])):
        place = {first: said[0], first + 1: said[1]}
        assert forged(build, name, lambda n, place=place: place.get(n, said[2])) == {}, first  # type: ignore[misc]  # mypy has no type for a default


@pytest.mark.slow
@pytest.mark.parametrize(("build", "name"), CASES)
def test_each_phrase_in_each_carrier(build: int, name: str) -> None:
    found = {row: forged(build, name, lambda _, row=row: phrases()[row]) for row in phrases()}  # type: ignore[misc]  # mypy has no type for a default
    assert {row: parts for row, parts in found.items() if parts} == {}


FAILED = ("rs64", "kv", "trunc", "vquant", "badopt", "compute", "weights")
DIED = ("badalloc", "rpcgone")
"""Logs of servers that failed to start, and of such as had served before they died."""
LOGS = Path(__file__).parents[1] / "logs" / "data" / "captured"


@cache
def whole_logs(*names: str) -> tuple[str, ...]:
    """Logs of an engine: with its clock, without, and with one that goes on from the carrier's."""
    texts = [(LOGS / f"{name}.txt").read_text(encoding="utf-8").rstrip("\n") for name in names]
    bare = [re.sub(_STAMP.pattern + "[IWED] ", "", text) for text in texts]
    later = [re.sub("(?m)^", "1.00.000.900 E ", text) for text in bare]
    return (*texts, *bare, *later)


def with_logs(
    build: int, name: str, logs: tuple[str, ...], first: int, *, in_file: bool = False
) -> Reading:
    """What is read where each request of a run, or place in a file, holds another of these logs."""

    def log(n: int) -> str:
        return logs[(first + n) % len(logs)]

    def harmless(_: int) -> str:
        return HARMLESS

    of_file, said = (log, harmless) if in_file else (harmless, log)
    return read(forge(build, name, of_file, said))


@pytest.mark.parametrize(("build", "name"), CASES)
def test_no_whole_log_says_anything_in_what_a_request_repeats(build: int, name: str) -> None:
    logs = whole_logs(*FAILED)
    for first in range(0, len(logs), 4):
        reading = with_logs(build, name, logs, first)
        assert (reading.failure, reading.secondary) == (None, ()), first
        assert reading.outcome is LogOutcome.STARTED


@pytest.mark.parametrize(("build", "name"), CASES)
def test_who_goes_on_did_not_die_as_a_log_in_a_request_did(build: int, name: str) -> None:
    logs = whole_logs(*DIED)
    for first in range(BUILDS.index(build), len(logs), len(BUILDS)):
        reading = with_logs(build, name, logs, first)
        assert (reading.failure, reading.secondary) == (None, ()), first
        assert reading.outcome is LogOutcome.STARTED


@pytest.mark.parametrize(("build", "name"), [case for case in CASES if "requests" not in case[1]])
def test_no_whole_log_says_anything_in_what_a_model_file_holds(build: int, name: str) -> None:
    logs = whole_logs(*FAILED, *DIED)
    for first in range(BUILDS.index(build), len(logs), len(BUILDS)):
        reading = with_logs(build, name, logs, first, in_file=True)
        assert (reading.failure, reading.secondary) == (None, ()), first
        assert reading.outcome is LogOutcome.STARTED


PROMPT = """\
llama_server: server is listening on http://127.0.0.1:8080
slot launch_slot_: id 0 | task 0 | processing task
slot update_slots: id 0 | prompt: 'why
ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4294967296
llama_init_from_model: failed to initialize the context: failed to allocate buffer for rs cache
srv load_model: failed to load model, /x.gguf
Killed
'
"""
ABORTED = """\
/src/llama-grammar.cpp:1234: GGML_ASSERT(!stacks.empty()) failed
Aborted (core dumped)
"""
LOUD = "".join(planted(place, HARMLESS) + "\n" for place in captured(10434)["requests--log-prefix"])
GRAMMAR = next(p for p in captured(10434)["requests--log-prefix"] if "::= 3" in p)
UNFINISHED = "\n".join(planted(GRAMMAR, HARMLESS).split("\n")[:3]) + "\n"
"""A log that ends in the middle of a grammar, which the server repeats as it came."""


def test_a_prompt_of_several_lines_says_nothing() -> None:
    for after in ("", *served(prefix=False)):
        reading = read(PROMPT + after)
        assert (reading.failure, reading.outcome) == (None, LogOutcome.STARTED)


def test_a_token_says_nothing() -> None:
    before, after = served(prefix=False)
    token = "slot process_toke: id 0 | next token: 123 'CUDA error: out of memory'\n"
    assert read(before + token + after).failure is None
    assert read(before + token).failure is None


def test_a_death_after_what_was_repeated_is_still_read() -> None:
    before, after = served(prefix=True)
    failure = read(before + LOUD + after + ABORTED).failure
    assert failure is not None
    assert (failure.kind, failure.fatal, failure.evidence) == (Kind.CRASH, True, Evidence.NAMED)


def test_where_the_log_ends_in_what_is_repeated_a_death_is_a_guess() -> None:
    before, _ = served(prefix=True)
    failure = read(before + UNFINISHED + ABORTED).failure
    assert failure is not None
    assert (failure.kind, failure.fatal, failure.evidence) == (Kind.CRASH, True, Evidence.INFERRED)


def test_a_signal_shows_that_what_was_said_last_was_the_server() -> None:
    reader = LogReader()
    for line in (served(prefix=True)[0] + UNFINISHED + ABORTED).splitlines():
        reader.feed(line)
    failure = reader.readings(-6)[0].failure
    assert failure is not None
    assert (failure.kind, failure.evidence) == (Kind.CRASH, Evidence.NAMED)


def test_a_start_after_what_is_repeated_shows_that_the_one_before_died() -> None:
    before, _ = served(prefix=True)
    again = "0.00.001.000 I build_info: b10434-7e4c0a9\n0.00.002.000 I system_info: n_threads = 4\n"
    reading = read(before + UNFINISHED + ABORTED + again)
    assert reading.failure is not None
    assert reading.failure.evidence is Evidence.INFERRED


@pytest.mark.parametrize("build", BUILDS)
def test_line_by_line_is_as_at_once(build: int) -> None:
    text = forge(build, "requests--log-prefix", lambda n: list(phrases().values())[n])
    reader = LogReader()
    for line in text.splitlines():
        reader.feed(line)
        assert reader.failure_so_far is None
    assert told(reader.readings()[0]) == told(read(text))


SAYS_DEATH = {
    "an assert": ABORTED,
    "a kill": "Killed\n",
    "a lost worker": "ggml-rpc.cpp:519: Remote RPC server crashed or returned malformed response\n",
}
"""As an unknown carrier may print them: at the begin of a line."""


@pytest.mark.parametrize("name", SAYS_DEATH)
def test_who_ends_a_request_did_not_die_before(name: str) -> None:
    before, after = served(prefix=True)
    died = read(before + after + SAYS_DEATH[name])
    assert died.failure is not None
    assert died.failure.fatal
    more = "".join(f"9.00.200.00{n} I que    start_loop: processing new tasks\n" for n in range(4))
    reading = read(before + after + SAYS_DEATH[name] + more + after.replace("9.00.1", "9.00.3"))
    assert reading.failure is None or not reading.failure.fatal
    assert reading.failure is None or reading.failure.evidence is Evidence.INFERRED
    assert reading.outcome is LogOutcome.STARTED


def test_who_starts_again_died_before() -> None:
    before, after = served(prefix=False)
    reading = read(before + after + "Killed\n" + before + after + after)
    assert reading.failure is not None
    assert reading.failure.kind is Kind.KILLED


STARTED = """\
common_params_print_info: verbosity = 3 (adjust with the `-lv N` CLI arg)
srv    load_model: loading model '/models/dense.gguf'
srv  llama_server: model loaded
srv  llama_server: listening on http://127.0.0.1:18323
"""
TOKEN = (
    "slot process_toke: id  1 | task {} | n_gen = 1, n_remaining = 2, next token:   300 'why\n'\n"
)


def lived(*tasks: int, prefix: bool) -> str:
    """A start and the tasks after it; the last one is under way."""
    parts = [STARTED]
    for task in tasks:
        parts += [
            f"slot launch_slot_: id  1 | task {task} | processing task, is_child = 0\n",
            TOKEN.format(task),
            f"slot      release: id  1 | task {task} | stop processing: n_tokens = 17\n",
        ]
    lines = "".join(parts[:-1]).splitlines(keepends=True)
    clock = (
        f"0.{n // 10:02}.{n % 10}50.000 I " if prefix and line != "'\n" else ""
        for n, line in enumerate(lines)
    )
    return "".join(stamp + line for stamp, line in zip(clock, lines, strict=True))


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("name", SAYS_DEATH)
@pytest.mark.parametrize("task", [0, 1, 7])
def test_who_starts_again_with_its_tasks_died_before(prefix: bool, name: str, task: int) -> None:
    death = SAYS_DEATH[name]
    died = read(lived(*range(task + 1), prefix=prefix) + death).failure
    assert died is not None
    again = lived(*range(task + 3), prefix=prefix)
    reading = read(lived(*range(task + 1), prefix=prefix) + death + again)
    before = reading.secondary[0] if reading.failure is None else reading.failure
    assert (before.kind, before.line) == (died.kind, died.line)
    twice = read(lived(*range(task + 1), prefix=prefix) + death + again + death)
    assert twice.failure is not None
    assert twice.failure.fatal


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize("name", [name for name in FAILED if name != "badopt"])
def test_who_starts_again_failed_before_for_all_that_its_file_says(prefix: bool, name: str) -> None:
    text = whole_logs(name)[0 if prefix else 1]
    at = text.index("\n", text.index("loading model")) + 1
    stamp = text[:at].splitlines()[-1].split(" ")[0] + " D " if prefix else ""
    token = stamp + "load: control token:    258 'why\n' is not marked as EOG\n"
    failed = text[:at] + token + text[at:] + "\n"
    alone = read(failed).failure
    assert alone is not None
    reading = read(failed + failed + lived(0, 1, prefix=prefix))
    assert alone.kind in {one.kind for one in reading.secondary}
