"""Lines out of chunks."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from arriero.process.output import LINE_CEILING, LOG_CEILING, LineSplitter, Output


def split(chunks: list[bytes]) -> list[str]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + list(splitter.finish())


@given(st.lists(st.binary(max_size=40)))
def test_cutting_into_chunks_changes_nothing(chunks: list[bytes]) -> None:
    assert split(chunks) == split([b"".join(chunks)])


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
def test_lines_come_back(lines: list[str]) -> None:
    assert split(["".join(f"{line}\n" for line in lines).encode()]) == lines


def test_line_ends_and_what_is_no_text() -> None:
    assert split([b"a\r\n\n\xff\xc3(\nlast"]) == [
        "a",
        "",
        "\N{REPLACEMENT CHARACTER}" * 2 + "(",
        "last",
    ]


def test_a_line_without_end_is_cut_in_bounded_memory() -> None:
    splitter = LineSplitter()
    for _ in range(100):
        assert list(splitter.feed(b"x" * LINE_CEILING)) == []
        assert len(splitter._rest) <= LINE_CEILING
    assert [len(line) for line in splitter.feed(b"y\nz\n")] == [LINE_CEILING, 1]


def test_the_log_file_has_a_ceiling(tmp_path: Path) -> None:
    lines: list[str] = []
    output = Output(lines.append, tmp_path / "log")
    chunk = b"x" * 1023 + b"\n"
    for _ in range(65):
        output.put(chunk * 1024)
    output.finish()
    log = (tmp_path / "log").read_bytes()
    assert LOG_CEILING < len(log) < LOG_CEILING + 100
    assert log.endswith(b"not kept]\n")


def test_a_full_disk_does_not_end_the_run() -> None:
    lines: list[str] = []
    output = Output(lines.append, Path("/dev/full"))
    output.put(b"one\ntwo\n")
    output.finish()
    assert lines == ["one", "two"]
