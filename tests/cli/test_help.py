"""What the command says about itself, and whether the README says the same."""

from __future__ import annotations

import re

import pytest

from arriero.cli import cli
from arriero.command import builtin_flags
from tests.cli.running import Place
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def test_every_command_is_in_the_readme_and_no_other(place: Place) -> None:
    help_ = place.run("--help")
    listed = re.findall(r"^  ([a-z]+)  ", help_.out.partition("Commands:")[2], re.MULTILINE)
    table = re.findall(r"^\| `arriero ([a-z]+)", README, re.MULTILINE)
    assert help_.status == 0
    assert set(listed) == set(table) == set(cli.commands)


def test_options_in_the_readme_exist() -> None:
    options = {name for command in cli.commands.values() for p in command.params for name in p.opts}
    written = re.findall(r"`arriero [^`]*`|^\$ arriero .*$", README, re.MULTILINE)
    own = " ".join(text.partition(" -- ")[0] for text in written)
    used = re.findall(r"(?<!\S)--?[a-z][a-z-]*", own)
    assert used
    # a plan takes those of llama-server as well
    options |= {name for flag in builtin_flags().flags for name in flag.names}
    assert set(used) <= options


@pytest.mark.parametrize("words", ["", *cli.commands])
@pytest.mark.parametrize(("flag", "columns"), [("-h", 80), ("--help", 40)])
def test_help_is_short_and_fits_the_terminal(
    place: Place, words: str, flag: str, columns: int
) -> None:
    said = place.run(*words.split(), flag, env={"COLUMNS": str(columns)})
    lines = said.out.splitlines()
    assert said.status == 0
    assert said.err == ""
    assert lines[0].startswith("Usage: arriero")
    # a command to copy is not broken
    assert max(len(line) for line in lines if " -- llama-server" not in line) <= columns
    assert len(lines) <= 50 * 80 // columns


def test_every_option_says_what_it_does() -> None:
    for command in cli.commands.values():
        for option in command.params:
            if option.param_type_name == "option":
                assert getattr(option, "help", None), (command.name, option.name)


def test_every_command_can_answer_in_json() -> None:
    for command in cli.commands.values():
        assert "--json" in {name for option in command.params for name in option.opts}


def test_version(place: Place) -> None:
    assert re.fullmatch(r"arriero \d+\.\d+\.\d+\n", place.run("--version").out)


def test_nothing_at_all_is_wrong_usage_and_shows_help(place: Place) -> None:
    said = place.run()
    assert said.status == 2
    assert said.out == ""
    assert "diagnose" in said.err
