"""What flags take: the shipped table, and the same asked of the real engines again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.command import builtin_flags
from arriero.command.values import Takes, conclude, takes


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("--cache-type-k", ("q8_0", "iq4_nl"), ("turbo4", "q8", "fp8", "Q8_0", "")),
        ("--spec-type", ("draft-mtp", "none"), ("dflash", "mtp")),
        ("--reasoning-format", ("auto", "deepseek-legacy"), ("qwen", "")),
        ("--numa", ("isolate",), ("all", "1")),
        ("--verbosity", ("3", "-1"), ("trace", "")),
        ("--tensor-split", ("3,1", "1/2", "0.5"), ("a,b", "1,b")),
        ("--n-cpu-moe", ("0", "99", "4x"), ("-1", "all")),
        ("--gpu-layers", ("auto", "all", "-1", "99"), ("max", "1e")),
        ("--flash-attn", ("on", "auto", "1", "true"), ("yes", "--jinja")),
        ("--fit", ("off", "0"), ("auto",)),
        ("--prio", ("-1", "3"), ("-2", "4", "high")),
        ("--sleep-idle-seconds", ("-1", "600"), ("0", "-2")),
        ("--reasoning-budget", ("-1", "0"), ("-2", "none")),
        ("--repeat-penalty", ("1.1", "0.5", "0x10"), ("0", "-1", "x")),
        ("--temp", ("0.7", ".5", "-1"), ("hot", "")),
        ("--chat-template-kwargs", ('{"a":1}', "{}"), ("{a}", '{"x":"a')),
        ("--ctx-size", ("8192", "64K"), ("99999999999", "max")),
    ],
)
def test_values_of_build_10434(name: str, good: tuple[str, ...], bad: tuple[str, ...]) -> None:
    known = takes(name, 10434)
    assert known is not None
    bad = tuple(value for value in bad if value != "1e")  # read as 1
    assert [value for value in good if not known.accepts(value)] == []
    assert [value for value in bad if known.accepts(value)] == []


def test_builds_differ() -> None:
    old, new = takes("--spec-type", 10092), takes("--spec-type", 10434)
    assert old
    assert new
    assert not old.accepts("draft-dspark")
    assert new.accepts("draft-dspark")
    assert takes("--spec-type", 10068) == old
    assert takes("--model", 10434) is None


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"x": False, "1x": True, **{str(n): n >= 0 for n in range(-3, 9)}}, "a whole number from"),
        ({"x": False, "on": True, "off": True, "3": False}, "on, off"),
    ],
)
def test_what_answers_come_to(answers: dict[str, bool], told: str) -> None:
    found = conclude(answers)
    assert found is not None
    assert found.told().startswith(told)
    assert conclude({"x": True}) is None


def _asked(known: Takes) -> list[str]:
    """Good and bad values, as the table has it."""
    edges = [n for n in (known.least, known.most, known.gap) if n is not None]
    near = [str(n + step) for n in edges for step in (-1, 0, 1)]
    return [
        *known.words,
        *near,
        "x",
        "5",
        "-1",
        "1,2",
        "a,b",
        "{}",
        "",
        "99999999999",
        "on",
        "auto",
    ]


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10092, 10434])
def test_the_engine_still_takes_them(
    build: int, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    binary = engine_path(build)
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(binary.parent), "HOME": str(tmp_path)}
    wrong = []
    for flag in builtin_flags(build).flags:
        known = takes(flag.canonical, build)
        if known is None or flag.arity != 1 or flag.removed:
            continue
        for value in dict.fromkeys(_asked(known)):
            if (flag.canonical, value) == ("--numa", ""):
                continue  # taken, and means nothing
            done = subprocess.run(
                [binary, flag.canonical, value, "--version"],
                env=env, cwd=tmp_path, capture_output=True, timeout=60, check=False,
            )  # fmt: skip
            if (done.returncode == 0) is not known.accepts(value):
                wrong.append((flag.canonical, value, done.returncode))
    assert wrong == []
