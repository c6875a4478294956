"""How weights are loaded, as servers log it: ``load_mode = ...`` and the name of the buffer."""

from __future__ import annotations

import pytest

from arriero.command import builtin_flags, parse_command
from arriero.launch.edits import mapped, with_settings
from arriero.launch.loading import Loading, loading_of

MAPPED = Loading(mapped=True, locked=False)
READ = Loading(mapped=False, locked=False)


def loading(flags: str, build: int, environ: dict[str, str] | None = None) -> Loading:
    words = ["llama-server", "-m", "m.gguf", *flags.split()]
    return loading_of(parse_command(words, builtin_flags(build), environ or {}))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", MAPPED),
        ("-lm auto", MAPPED),
        ("-lm mmap", MAPPED),
        ("-lm none", READ),
        ("-lm dio", READ),
        ("-lm mlock", Loading(mapped=False, locked=True)),
        ("-lm mmap+mlock", Loading(mapped=True, locked=True)),
        ("--mlock", Loading(mapped=False, locked=True)),
        ("--mlock --no-mmap", READ),
        ("--no-mmap --mlock", Loading(mapped=False, locked=True)),
        ("-lm mmap --no-mmap", READ),
        ("--no-mmap -lm mmap", MAPPED),
        ("-lm none --mmap", MAPPED),
        ("-dio --mmap", MAPPED),
        ("-dio", READ),
        ("-ndio", READ),
        ("--mlock -lm none", READ),
    ],
)
def test_the_last_flag_counts_where_there_is_a_mode(flags: str, expected: Loading) -> None:
    assert loading(flags, 10434) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("", MAPPED),
        ("--no-mmap", READ),
        ("-dio", READ),
        ("--mlock", Loading(mapped=True, locked=True)),
        ("--mlock --no-mmap", Loading(mapped=False, locked=True)),
    ],
)
def test_each_flag_stands_for_itself_before(flags: str, expected: Loading) -> None:
    assert loading(flags, 10068) == expected


def test_a_variable_counts_until_a_flag_does() -> None:
    assert loading("", 10434, {"LLAMA_ARG_LOAD_MODE": "none"}) == READ
    assert loading("--mmap", 10434, {"LLAMA_ARG_LOAD_MODE": "none"}) == MAPPED
    assert loading("", 10434, {"LLAMA_ARG_MMAP": "0"}) == READ


@pytest.mark.parametrize("build", [10068, 10434])
@pytest.mark.parametrize(
    "flags",
    ["-lm none", "-lm dio --no-mmap", "--no-mmap -lm none", "--no-mmap", "-dio", "-dio --no-mmap"],
)
def test_weights_that_are_read_can_be_mapped(flags: str, build: int) -> None:
    words = ["llama-server", "-m", "m.gguf", *flags.split()]
    command = parse_command(words, builtin_flags(build), {})
    if command.unknown:
        return  # an older engine than the flag
    assert not loading_of(command).mapped
    assert loading_of(with_settings(command, mapped(command))).mapped


def test_weights_that_are_mapped_or_locked_stay_as_they_are() -> None:
    for flags in ("", "-lm mmap", "--mlock", "-lm mmap+mlock"):
        words = ["llama-server", "-m", "m.gguf", *flags.split()]
        assert mapped(parse_command(words, builtin_flags(10434), {})) == {}
