"""Where contexts can be kept over a restart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from arriero.base.words import MemoryClass
from arriero.command import builtin_flags, parse_command
from arriero.command.flags import FlagTable
from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from arriero.serve.keeping import FLAG, Keeping, Kept, keeping, kept_by, place

DENSE = Kept(MemoryClass.ATTENTION)
WINDOWS = Kept(MemoryClass.ATTENTION, windows=True)
HYBRID = Kept(MemoryClass.HYBRID)
RECURRENT = Kept(MemoryClass.RECURRENT)


def decided(words: str = "", asked: str = "auto", **known: Any) -> Keeping:
    command = parse_command(["llama-server", *words.split()], builtin_flags(10434), {})
    facts: dict[str, Any] = {"build": 10434, "kept": DENSE, **known}
    return keeping(asked, command, **facts)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("", {}),
        ("", {"build": None}),
        ("", {"kept": HYBRID}),
        ("--swa-full", {"kept": WINDOWS}),
        ("", {"kept": WINDOWS, "build": 11549}),
        ("", {"kept": RECURRENT, "build": 11549}),
    ],
)
def test_kept_where_it_was_seen_to_work(words: str, known: dict[str, Any]) -> None:
    assert decided(words, **known) == Keeping(True)


@pytest.mark.parametrize(
    ("words", "known", "why"),
    [
        ("", {"kept": WINDOWS}, "sliding windows"),
        ("", {"kept": WINDOWS, "build": None}, "sliding windows"),
        ("", {"kept": RECURRENT}, "recurrent"),
        ("", {"kept": Kept()}, "not known"),
        ("--rpc 127.0.0.1:50052", {}, "worker"),
        ("--mmproj m.gguf", {}, "images"),
        ("-cram 0", {}, "switches saved prompts off"),
    ],
)
def test_why_not(words: str, known: dict[str, Any], why: str) -> None:
    made = decided(words, **known)
    assert not made.on
    assert why in made.why_not
    assert decided(words, "on", **known) == Keeping(True), "who asks for it gets it"


def test_never_where_it_is_impossible_or_not_wanted() -> None:
    assert not decided(asked="off").on
    assert not decided(asked="on", text=False).on
    table = builtin_flags(10434)
    older = FlagTable(tuple(flag for flag in table.flags if FLAG not in flag.names))
    command = parse_command(["llama-server"], older, {})
    assert FLAG in keeping("on", command, build=1, kept=DENSE).why_not
    assert FLAG in decided(f"{FLAG} slots", "on").why_not, "its files are its user's"


@pytest.mark.parametrize(
    ("arch", "kept"), [("llama", DENSE), ("gemma3", WINDOWS), ("qwen35", HYBRID)]
)
def test_what_a_model_keeps_is_read_from_its_header(arch: str, kept: Kept, tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", tiny(arch))
    command = parse_command(["llama-server", "-m", "m.gguf"], builtin_flags(10434), {})
    assert kept_by(command, tmp_path, 10434) == kept
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert kept_by(command, tmp_path, 10434) == Kept()


def test_files_in_memory_are_no_place_for_contexts(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "proc" / "self" / "mountinfo"
    mounts.parent.mkdir(parents=True)
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /tmp rw - {{}} none rw\n"
    elsewhere = Path("/proc/self")  # another device, and not to be written to
    mounts.write_text(line.format("ext4"))
    assert place(tmp_path, tmp_path, elsewhere) == tmp_path
    assert place(tmp_path, elsewhere, tmp_path) == tmp_path
    mounts.write_text(line.format("tmpfs"))
    assert place(tmp_path, elsewhere, tmp_path) == elsewhere
