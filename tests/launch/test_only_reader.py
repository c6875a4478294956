"""Nothing to the right of ``launch`` reads for itself what a flag that ``launch`` reads means."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import arriero
from arriero.command import builtin_flags

SOURCE = Path(arriero.__file__).parent
NOT_RIGHT = {"base", "gguf", "command", "launch"}
READERS = {"value", "values", "number", "switch", "has", "count"}
FLAG = re.compile(r"--?[a-z][a-z0-9-]*")

# Questions of spelling: whether a flag is there at all, and the very words behind it.
ALLOWED = {
    ("gotchas/builds/fit_counts_too_little.py", "-fitt"): "is not proposed to whom has it",
    ("gotchas/drafting/draft_model_unused.py", "--spec-type"): "none may be typed or left out",
    ("gotchas/memory/cache_on_host_compute.py", "-fa"): "old builds have it off unless typed",
    ("gotchas/memory/mlock_above_limit.py", "--mlock"): "two flags ask for the same",
    ("gotchas/memory/prompt_cache_limit.py", "-cram"): "for the text",
    ("gotchas/memory/prompt_cache_overshoots.py", "-cram"): "only a limit that somebody set",
    ("gotchas/rpc/rpc_main_device.py", "-mg"): "for the text",
    ("gotchas/rpc/rpc_override_name.py", "-ot"): "its words are rewritten",
    ("advice/changes.py", "-ctk"): "is not proposed to whom has it",
}


@cache
def read_by_launch() -> frozenset[str]:
    """First names of the flags that ``launch`` reads; what only reaches a server is in serving."""
    flags, found = builtin_flags(), set()
    for path in sorted((SOURCE / "launch").glob("*.py")):
        if path.name == "serving.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                flag = flags.get(node.value) if FLAG.fullmatch(node.value) else None
                found |= {flag.canonical} if flag else set()
    return frozenset(found)


def readings(source: str) -> Iterator[tuple[int, str]]:
    """Line and flag of each look-up, by a name that is written out, of a flag of launch's."""
    flags = builtin_flags()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=reader), args=[ast.Constant(value=str(name)), *_]
            ) if reader in READERS and FLAG.fullmatch(name):
                flag = flags.get(name)
                if flag is not None and flag.canonical in read_by_launch():
                    yield node.lineno, name


def test_launch_reads_what_decides_memory() -> None:
    flags = builtin_flags()
    for name in ("-c", "-np", "-kvu", "-ub", "-b", "-fa", "-ngl", "-ts", "-dev", "--rpc", "-md"):
        flag = flags.get(name)
        assert flag is not None
        assert flag.canonical in read_by_launch()


@pytest.mark.parametrize(
    "source", ["command.number('-np')", "x = facts.command.value('--parallel') or 1"]
)
def test_a_reading_is_seen_by_any_name(source: str) -> None:
    assert [line for line, _ in readings(source)] == [1]
    assert not list(readings("command.value('--chat-template')"))


def test_nobody_else_reads_it() -> None:
    seen = {
        (path.relative_to(SOURCE).as_posix(), name): line
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in NOT_RIGHT
        for line, name in readings(path.read_text(encoding="utf-8"))
    }
    told = [f"{file}:{line} reads {name}" for (file, name), line in seen.items()]
    assert not [one for one, key in zip(told, seen, strict=True) if key not in ALLOWED]
    assert not set(ALLOWED) - set(seen), "asked no longer"
