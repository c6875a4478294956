"""Changes to a command change what they name and nothing else."""

from __future__ import annotations

import pytest

from arriero.base.errors import UsageError
from arriero.command import Command, builtin_flags, parse_command
from arriero.launch import edits, launch_of
from arriero.record import Edit


def command(flags: str = "") -> Command:
    return parse_command(["llama-server", "-m", "m.gguf", *flags.split()], builtin_flags(), {})


@pytest.mark.parametrize(
    ("flags", "edit", "after"),
    [
        ("-np 8 -c 512", Edit(flag="-np", value="4"), "-np 4 -c 512"),
        ("--parallel 8", Edit(flag="-np"), ""),
        ("--draft 4", Edit(flag="--draft", rename="--spec-draft-n-max"), "--spec-draft-n-max 4"),
        ("-fa --jinja", Edit(flag="-fa", value="on", insert=True), "-fa on --jinja"),
        ("-np 8", Edit(flag="--draft", rename="--spec-draft-n-max"), "-np 8"),
    ],
)
def test_one_edit(flags: str, edit: Edit, after: str) -> None:
    changed = edits.edited(command(flags), [edit])
    assert changed.words == command(after).words


def test_a_variable_goes_in_front() -> None:
    changed = edits.edited(command(), [Edit(flag="A", value="1", env=True)])
    assert changed.words[:2] == ("A=1", "llama-server")


def test_edits_follow_one_another() -> None:
    changed = edits.edited(command("-c 1"), [Edit(flag="-c"), Edit(flag="-c", value="2")])
    assert launch_of(changed).context_asked == 2


def test_an_engine_without_the_flag_refuses() -> None:
    with pytest.raises(UsageError):
        edits.with_settings(command(), {"--no-such-flag": "1"})


@pytest.mark.parametrize("flags", ["", "-cram 0", "-ctxcp -3", "-cram -1 -ctxcp 4"])
def test_caches_that_are_off_stay_off(flags: str) -> None:
    off = launch_of(edits.with_settings(command(flags), edits.caches_off(command(flags))))
    assert (off.cache_ram, off.checkpoints) == (0, 0)
    assert edits.caches_off(command("-cram 0 -ctxcp -3")) == {}


def test_a_context_is_that_of_all_slots() -> None:
    assert launch_of(edits.with_context(command("-np 4"), 4096)).params.n_ctx == 4096
