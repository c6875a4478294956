"""Write ``docs/cli.md`` from the commands themselves: ``python scripts/cli_page.py``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from arriero.cli import cli

PAGE: Final = Path(__file__).parent.parent / "docs" / "cli.md"
_INTRODUCTION: Final = """\
# The command line

`scripts/cli_page.py` makes this page from the commands: it says what `arriero COMMAND --help` says.
[configuration.md](configuration.md) lists the environment variables,
[python-api.md](python-api.md) the same commands as Python functions.

Exit status: 0 fine · 1 a failure, an error-level finding, or it cannot start · 2 wrong usage · 3 no
engine, model, log or record found · 130 interrupted, with a valid partial record.
"""


def page() -> str:
    """The whole page."""
    rows = [f"| [`arriero {n}`](#arriero-{n}) | {c.short_help} |" for n, c in cli.commands.items()]
    table = "\n".join(["| command | what it is for |", "|---|---|", *rows])
    sections = [_section(name, command) for name, command in cli.commands.items()]
    return "\n".join([_INTRODUCTION, table, "", *sections])


def _section(name: str, command: click.Command) -> str:
    arguments = [_argument(p) for p in command.params if isinstance(p, click.Argument)]
    usage = " ".join(["arriero", name, str(command.options_metavar), *arguments])
    options = [
        f"| {', '.join(f'`{n}`' for n in p.opts)}{_value(p)} | {_cell(p.help or '')}{_default(p)} |"
        for p in command.params
        if isinstance(p, click.Option)
    ]
    return "\n".join(
        [
            f"## arriero {name}\n",
            f"```\n{usage}\n```\n",
            *_paragraphs(command.help or ""),
            "| option | what it does |",
            "|---|---|",
            *options,
            "",
        ]
    )


def _argument(argument: click.Argument) -> str:
    """As in a usage line; click's own way of writing it differs between its versions."""
    if isinstance(argument.type, click.Choice):
        return f"({' | '.join(argument.type.choices)})"
    name = argument.metavar or str(argument.name).upper()
    return name if argument.required or argument.metavar else f"[{name}]"


def _paragraphs(help: str) -> Iterator[str]:
    r"""The paragraphs of a help text; those that click must not wrap (``\b``) are code."""
    for paragraph in inspect.cleandoc(help).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```console\n{re.sub(r'(?m)^ *', '$ ', paragraph[2:])}\n```\n"
        else:
            yield _cell(paragraph) + "\n"


def _cell(text: str) -> str:
    """On one line; ``<`` and ``|`` would be markup."""
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")


def _value(option: click.Option) -> str:
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + " \\| ".join(f"`{choice}`" for choice in option.type.choices)
    return f" `{option.metavar}`"


def _default(option: click.Option) -> str:
    return f" Default: `{option.default}`." if option.show_default else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
