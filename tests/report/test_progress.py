from __future__ import annotations

import contextlib
import io
import os
import pty
import re

import pytest

from arriero.report.progress import Left, Live, Plain, Progress, Shown, Silent


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_say_what_and_why_once() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    clock = Clock()
    progress = Plain(out, clock=clock)
    progress.begin(3)
    progress.step("as given", "the command as you typed it")
    progress.note("RS refused")
    progress.note("RS refused")
    clock.now += 20
    progress.step("-np 44", "slopes predict the boundary there")
    progress.end()
    out.seek(0)
    assert out.read().splitlines() == [
        "arriero: [1/3] as given – the command as you typed it",
        "arriero: RS refused",
        "arriero: [2/3] -np 44 – slopes predict the boundary there (about 40 s left)",
    ]


def test_time_left_is_the_mean_until_the_bound_is_nearer() -> None:
    clock = Clock()
    left = Left(100.0, clock)
    left.begin(5)
    assert left.text() == "at most 1 min 40 s left"
    left.step()
    clock.now += 10
    left.step()
    assert (left.done, left.counted()) == (1, "2/5")
    assert left.text() == "about 40 s left"
    clock.now += 80
    assert left.text() == "at most 10 s left"
    clock.now += 80
    assert left.text() == "at most 0 s left"


def test_nothing_known_is_nothing_said() -> None:
    left = Left(None, Clock())
    left.begin(None)
    left.step()
    left.step()
    assert left.text() == ""
    assert left.counted() == "2"


def test_more_steps_than_expected_are_not_a_fraction() -> None:
    left = Left(None, Clock())
    left.begin(1)
    left.step()
    left.step()
    assert left.counted() == "2"


def test_control_characters_stay_out_of_the_log() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    progress = Plain(out)
    progress.begin(None)
    progress.step("x\x1b[31m", "é – ×")
    out.flush()
    text = out.buffer.getvalue()
    assert text == b"arriero: [1] x\\x1b[31m - \\xe9 - x\n"


def everything(leader: int) -> str:
    """All that was written to the other end of a terminal, which is closed by now."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(leader, 1 << 16):
            parts.append(part)
    os.close(leader)
    return b"".join(parts).decode()


@pytest.mark.parametrize("columns", [40, 80])
def test_a_terminal_gets_one_line_that_is_taken_away(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    stream = os.fdopen(follower, "w", encoding="utf-8")
    with Shown(stream, allowed=60.0) as progress:
        assert isinstance(progress, Live)
        progress.begin(4)
        progress.step("-np 44 [bold]as it is[/bold]", "slopes predict it")
        progress.note("a note with [brackets]")
        progress.step("-np 32", "the edge")
    stream.close()
    seen = everything(leader)
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert "a note with [brackets]" in bare
    assert "-np 32" in bare
    assert all(len(part) <= columns for part in re.split(r"[\r\n]+", bare))
    assert "\x1b[?25h" in seen, "the cursor is shown again"
    assert capsys.readouterr().out == ""


def test_an_echoed_interrupt_stays_on_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full line would wrap at ``^C`` and what is above the wrap could not be taken away."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    leader, follower = pty.openpty()
    stream = os.fdopen(follower, "w", encoding="utf-8")
    with Shown(stream) as progress:
        progress.begin(4)
        progress.step("baseline", "one slot, short context, and a reason that is far too long")
    stream.close()
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", everything(leader))
    assert all(len(part) <= 40 - len("^C^C") for part in re.split(r"[\r\n]+", bare))


def test_ending_twice_is_fine() -> None:
    for progress in (Silent(), Plain(io.StringIO()), Live(io.StringIO())):
        kept: Progress = progress
        kept.begin(None)
        kept.step("a", "")
        kept.end()
        kept.end()
