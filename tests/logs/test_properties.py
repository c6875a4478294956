"""However a log reached the reader, the answer is the same."""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from arriero.logs import LogReader, read_log
from arriero.logs.lines import is_reversed
from arriero.logs.model import Reading

DATA = Path(__file__).parent / "data"
PUBLIC = {
    name: (DATA / "public" / name).read_text(encoding="utf-8")
    for name in json.loads((DATA / "public" / "expected.json").read_text())
}
MESSAGES: list[dict[str, Any]] = tomllib.loads((DATA / "messages.toml").read_text())["case"]
# JSON lines take no prefix apart from JSON, and a case of one line has no order
LOGS = sorted(PUBLIC.values()) + [c["log"] for c in MESSAGES if '{"' not in c["log"]]
logs = st.sampled_from(LOGS)
fast = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

Answer = tuple[Any, ...]


def answer(reading: Reading) -> Answer:
    failure = reading.failure
    named = None if failure is None else (
        failure.kind, failure.component, failure.device, failure.bytes, failure.buffer_bytes,
        failure.phase, failure.fatal, failure.evidence, failure.not_this,
    )  # fmt: skip
    return (
        named,
        reading.outcome,
        sorted((b.component, b.device, b.bytes) for b in reading.buffers),
        sorted(f.kind for f in reading.secondary),
        reading.effective,
    )


def answers(text: str) -> list[Answer]:
    return [answer(reading) for reading in read_log([text.encode()])]


def each_line(text: str, change: Callable[[int, str], str]) -> str:
    return "\n".join(change(n, line) for n, line in enumerate(text.splitlines()))


PREFIXES: dict[str, Callable[[int, str], str]] = {
    "journald": lambda n, s: f"Aug 14 12:{n // 60 % 60:02}:{n % 60:02} box llama-server[123]: {s}",
    "journald iso": lambda n, s: (
        f"2026-08-14T12:{n // 60 % 60:02}:{n % 60:02}+0200 box llama-server[123]: {s}"
    ),
    "journald short-precise": lambda n, s: f"Aug 14 12:00:01.{n:06} box llama.sh[9]: {s}",
    "compose": lambda n, s: f"llama-1  | {s}",
    "docker -t": lambda n, s: f"2026-08-14T12:00:01.{n:09}Z {s}",
    "json-file": lambda n, s: json.dumps({"log": s + "\n", "stream": "stderr", "time": "x"}),
    "cri": lambda n, s: f"2026-08-14T12:00:01.{n:09}Z stderr F {s}",
    "kubectl": lambda n, s: f"[pod/llama-7f/llama] {s}",
    "desktop": lambda n, s: f"[2026-08-14][12:00:01][plugin::commands][INFO] [llamacpp] {s}",
    "clock": lambda n, s: f"[2026-08-14 12:00:01.{n:03}][INFO] {s}",
    "quoted": lambda n, s: f"> {s}",
    "listed": lambda n, s: f"- {s}",
    "grep -n": lambda n, s: f"{n + 1}:{s}",
    "cat -n": lambda n, s: f"{n + 1:>6}\t{s}",
    "model": lambda n, s: f"<qwen3-30b> {s}",
    "logging": lambda n, s: f"2026-08-14 12:00:01,{n:03} - llama - ERROR - {s}",
    "indented": lambda n, s: f"    {s}",
    "jsonl": lambda n, s: json.dumps({"type": "log", "time": n, "level": "info", "msg": s + "\n"}),
    "unknown": lambda n, s: f"<<{n}>> {s}",
}
ANCHORED = ("unknown",)
"""Prefixes nobody knows cost what is anchored to the start of a line."""


pytestmark = pytest.mark.sampled(17)


@pytest.mark.parametrize("name", [p for p in PREFIXES if p not in ANCHORED])
@pytest.mark.parametrize("text", LOGS, ids=range(len(LOGS)))
def test_prefixes_change_nothing(name: str, text: str) -> None:
    if name == "compose" and "[3" in text:
        return  # a router's children under compose keep both prefixes: tested with children
    assert answers(each_line(text, PREFIXES[name])) == answers(text)


FOREIGN: dict[str, Callable[[int, str], str]] = {
    "marks": lambda n, s: f"<<{n}>> {s}",
    "pm2": lambda n, s: f"0|llama    | {s}",
    "supervisor": lambda n, s: f"2026-08-14 12:00:01,{n:03} DEBG 'llama' stderr output: {s}",
    "loguru": lambda n, s: f"2026-08-14 12:00:01.{n:03} | INFO     | app.llama:pump:42 - {s}",
    "tracing": lambda n, s: f"2026-08-14T12:00:01.{n:06}Z  INFO llama_cpp::log: {s}",
    "swap": lambda n, s: f"Tuesday, 05-May-26 23:24:{n % 60:02} +04 [INFO] {s}",
    "another tongue": lambda n, s: f"авг 14 12:{n // 60 % 60:02}:{n % 60:02} box llama[12]: {s}",
    "every other line": lambda n, s: f"20260814 12:00:01.{n:06} UTC 15 INFO  {s}\n - engine.cc:523",
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("text", [log for log in LOGS if len(log.split("\n")) > 4])
def test_what_every_line_begins_with_changes_nothing(name: str, text: str) -> None:
    assert answers(each_line(text, FOREIGN[name])) == answers(text)


@pytest.mark.parametrize("prefix", ["0|llama    | ", "9月 14 10:11:12 host llama-server[3]: "])
def test_what_a_line_begins_with_is_no_figure_of_the_line_before(prefix: str) -> None:
    told = "alloc_tensor_range: failed to allocate CUDA0 buffer of size 8057880576"
    [reading] = read_log([f"{prefix}{told}\n{prefix}\n".encode()])
    assert reading.failure is not None
    assert reading.failure.bytes == 8057880576


@pytest.mark.parametrize("text", LOGS, ids=range(len(LOGS)))
def test_an_unknown_prefix_keeps_the_kind(text: str) -> None:
    def kinds(log: str) -> set[str]:
        return {r.failure.kind for r in read_log([log.encode()]) if r.failure and r.failure.bytes}

    assert kinds(text) <= kinds(each_line(text, PREFIXES["unknown"])) | {"killed", "state_growth"}


@fast
@given(
    logs,
    st.sampled_from(["\x1b[34m", "\x1b[0m", "\x1b[1;31m", "[34m"]),
    st.sampled_from(["\x1b[0m", "[0m"]),
)
def test_colours_change_nothing(text: str, on: str, off: str) -> None:
    assert answers(each_line(text, lambda _, line: f"{on}{line}{off}")) == answers(text)


@fast
@given(logs)
def test_line_ends_and_nuls_change_nothing(text: str) -> None:
    assert answers(text.replace("\n", "\r\n")) == answers(text)
    utf16 = read_log([text.encode("utf-16")])
    assert [answer(r) for r in utf16] == answers(text)


@fast
@given(logs, st.integers(40, 160))
def test_wrapping_changes_nothing(text: str, width: int) -> None:
    # one line that is as long as the width shows no terminal that wraps
    assume(sum(len(line) > width for line in text.splitlines()) != 1)
    wrapped = "\n".join(
        line[at : at + width]
        for line in text.splitlines()
        for at in range(0, max(1, len(line)), width)
    )
    named = [a[0][:4] if a[0] else None for a in answers(wrapped)]
    assert named == [a[0][:4] if a[0] else None for a in answers(text)]


@pytest.mark.parametrize("width", [72, 80, 100, 132])
@pytest.mark.parametrize("text", [log for log in LOGS if "log_server_r" not in log])
def test_wrapping_between_words_changes_nothing(text: str, width: int) -> None:
    wrapped = "\n".join(
        piece
        for line in text.splitlines()
        for piece in textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    )
    named = [a[0][:4] if a[0] else None for a in answers(wrapped)]
    assert named == [a[0][:4] if a[0] else None for a in answers(text)]


@fast
@given(logs)
def test_newest_first_changes_nothing(text: str) -> None:
    stamped = each_line(text, PREFIXES["journald short-precise"])
    backwards = "\n".join(reversed(stamped.splitlines()))
    if len(text.splitlines()) > 2:
        assert answers(backwards) == answers(text)


@fast
@given(logs, logs)
def test_children_are_kept_apart(one: str, two: str) -> None:
    def children(text: str, child: int) -> list[str]:
        return [f"[{child}] {line}" for line in text.splitlines() if not line.startswith("[")]

    first, second = children(one, 34001), children(two, 34002)
    mixed: list[str] = []
    for n in range(max(len(first), len(second))):
        mixed += first[n : n + 1] + second[n : n + 1]
    # without clocks the order is a guess, which failures in two children can tip
    assume(not is_reversed(mixed))
    got = {r.child: answer(r) for r in read_log(["\n".join(mixed).encode()])}
    for child, lines in (("34001", first), ("34002", second)):
        if any(lines):
            (alone,) = read_log(["\n".join(lines).encode()])
            want = answer(alone)
            # distances between lines doubled: what belongs together is still found
            assert got[child] == want


@fast
@given(logs, st.integers(1, 3))
def test_lines_of_others_in_between_change_nothing(text: str, times: int) -> None:
    noise = ["", "load:   - 257 ('<|end|>')", "AMX is not ready to be used!"]
    lines = text.splitlines()
    noisy = "\n".join(part for line in lines for part in (line, *noise[:times]))
    if "GGML_ASSERT" not in text:
        assert answers(noisy) == answers(text)


@fast
@given(logs, st.integers(0, 40))
def test_a_log_without_its_first_lines_still_names_the_kind(text: str, drop: int) -> None:
    whole = read_log([text.encode()])[0]
    lines = text.splitlines()
    if whole.failure is None or drop >= whole.failure.line - 4:
        return
    cut = read_log(["\n".join(lines[drop:]).encode()])[0]
    assert cut.failure is not None
    assert (cut.failure.kind, cut.failure.bytes) == (whole.failure.kind, whole.failure.bytes)
    assert cut.failure.line == whole.failure.line - drop


@fast
@given(logs)
def test_line_by_line_is_the_same(text: str) -> None:
    reader = LogReader()
    for line in text.splitlines():
        reader.feed(line)
    assert [answer(r) for r in reader.readings()] == answers(text)


@fast
@given(logs, st.lists(st.integers(0, 4000), max_size=8))
def test_chunks_change_nothing(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    bounds = [0, *sorted(min(c, len(raw)) for c in cuts), len(raw)]
    chunks = [raw[a:b] for a, b in pairwise(bounds)]
    assert [answer(r) for r in read_log(chunks)] == answers(text)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=200), logs.map(str.encode)), max_size=6))
def test_damage_is_never_an_error(parts: list[bytes]) -> None:
    for reading in read_log(parts):
        if reading.failure is not None:
            assert reading.failure.line >= 1


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_fed(text: str) -> None:
    reader = LogReader()
    reader.feed(text)
    assert len(reader.readings()) == 1


def test_each_failure_names_its_line() -> None:
    for text in LOGS:
        for reading in read_log([text.encode()]):
            if reading.failure is not None:
                line = text.splitlines()[reading.failure.line - 1]
                assert reading.failure.text in line or '"' in line or "\x1b" in line
