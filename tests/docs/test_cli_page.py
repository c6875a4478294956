"""``docs/cli.md`` is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import click
import pytest

import arriero.cli
from arriero.cli import cli

ROOT = Path(__file__).parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_commands_say() -> None:
    made = script("cli_page")
    assert made.PAGE.read_text("utf-8") == made.page(), "run: python scripts/cli_page.py"


@pytest.mark.parametrize("name", [*cli.commands])
def test_every_option_of_a_command_is_on_the_page(name: str) -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    section = text.partition(f"\n## arriero {name}\n")[2].partition("\n## ")[0]
    for parameter in cli.commands[name].params:
        written = parameter.opts if isinstance(parameter, click.Option) else []
        assert [option for option in written if f"`{option}`" not in section] == []


def test_every_file_of_a_command_is_a_command() -> None:
    files = {path.stem for path in Path(arriero.cli.__file__).parent.glob("[!_]*.py")}
    assert files == set(cli.commands)
