"""Where contexts can be kept over a restart."""

from __future__ import annotations

from typing import Any

import pytest

from arriero.base.words import MemoryClass
from arriero.command import builtin_flags, parse_command
from arriero.command.flags import FlagTable
from arriero.serve.keeping import FLAG, Keeping, keeping


def decided(words: str = "", asked: str = "auto", **known: Any) -> Keeping:
    command = parse_command(["llama-server", *words.split()], builtin_flags(10434), {})
    facts: dict[str, Any] = {
        "build": 10434,
        "memory_class": MemoryClass.ATTENTION,
        "windows": False,
        **known,
    }
    return keeping(asked, command, **facts)


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("", {}),
        ("", {"build": None}),
        ("", {"memory_class": MemoryClass.HYBRID}),
        ("--swa-full", {"windows": True}),
        ("", {"windows": True, "build": 11549}),
        ("", {"memory_class": MemoryClass.RECURRENT, "build": 11549}),
    ],
)
def test_kept_where_it_was_seen_to_work(words: str, known: dict[str, Any]) -> None:
    assert decided(words, **known) == Keeping(True)


@pytest.mark.parametrize(
    ("words", "known", "why"),
    [
        ("", {"windows": True}, "sliding windows"),
        ("", {"windows": True, "build": None}, "sliding windows"),
        ("", {"memory_class": MemoryClass.RECURRENT}, "recurrent"),
        ("", {"memory_class": MemoryClass.UNKNOWN}, "not known"),
        ("--rpc 127.0.0.1:50052", {}, "worker"),
        ("--mmproj m.gguf", {}, "images"),
        ("-cram 0", {}, "switches saved prompts off"),
        ("", {"gated": "a save aborts on Vulkan0"}, "a save aborts on Vulkan0"),
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
    made = keeping("on", command, build=1, memory_class=MemoryClass.ATTENTION, windows=False)
    assert FLAG in made.why_not
