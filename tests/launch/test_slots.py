"""How many slots a command asks for and whether they share a cache, as real servers log it."""

from __future__ import annotations

import shlex

import pytest

from arriero.command import Command, builtin_flags, parse_command, parse_help
from arriero.launch.edits import slots, with_slots
from arriero.launch.slots import slots_of


def command(flags: str = "") -> Command:
    return parse_command(["llama-server", "-m", "m.gguf", *shlex.split(flags)], builtin_flags(), {})


# What builds 10068 and 10434 log as "n_slots = 4, ..., kv_unified = 'true'".
@pytest.mark.parametrize(
    ("flags", "count", "unified", "given"),
    [
        ("", 4, True, False),
        ("-no-kvu", 4, True, False),
        ("-np -1 -no-kvu", 4, True, False),
        ("-np -5", 4, True, False),
        ("-np 2", 2, False, True),
        ("-np 2 -kvu", 2, True, True),
        ("-np 2 -kvu -no-kvu", 2, False, True),
    ],
)
def test_slots_as_servers_log_them(flags: str, count: int, unified: bool, given: bool) -> None:
    found = slots_of(command(flags))
    assert (found.count, found.unified, found.given) == (count, unified, given)


@pytest.mark.parametrize("flags", ["", "-no-kvu", "-np 8", "-np 8 -kvu", "-np -1 -no-kvu"])
@pytest.mark.parametrize("count", [2, 3, 64])
def test_another_number_of_slots_keeps_the_layout(flags: str, count: int) -> None:
    before = slots_of(command(flags))
    after = slots_of(with_slots(command(flags), count))
    assert (after.count, after.unified) == (count, before.unified)


def test_one_slot_has_one_layout_and_needs_no_second_flag() -> None:
    assert slots(command(), 1) == {"-np": "1"}
    assert slots(command(), 2) == {"-np": "2", "-kvu": "on"}


def test_the_layout_can_be_changed_with_the_number() -> None:
    assert slots_of(with_slots(command("-np 8 -kvu"), 4, unified=False)).unified is False
    assert slots_of(with_slots(command("-np 8"), 4, unified=True)).unified is True


def test_an_engine_without_the_flag_is_not_given_it() -> None:
    old = parse_help("-m, --model FNAME  path\n-np, --parallel N  slots\n")
    parsed = parse_command(["llama-server", "-m", "m.gguf"], old, {})
    assert slots(parsed, 2) == {"-np": "2"}
