"""``arriero skeleton``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from arriero.base.errors import UsageError
from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(cls=Command, short_help="Write a model without weights that takes the same memory.")
@click.argument("model", required=False)
@click.option(
    "--arch", metavar="NAME", help="Make a tiny model of this architecture: qwen35, mamba2 …"
)
@click.option(
    "--preset", metavar="NAME", help="Make a model of this shape: ladder-hybrid, llama-3.1-8b …"
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    required=True, help="Write the model into this file.",
)  # fmt: skip
@click.option(
    "--shrink", is_flag=True, help="With MODEL: also take fewer layers, experts and tokens."
)
@click.option(
    "--verbatim",
    is_flag=True,
    help="With MODEL: keep names, texts and tokens. Do not share the result.",
)
@click.option(
    "--weights", type=click.Choice(["random", "zeros"]),
    help="With --arch or --preset: fill the weights with this. Zeros take no disk space.",
)  # fmt: skip
@click.option(
    "--set",
    "dimensions",
    multiple=True,
    metavar="NAME=N",
    help="With --arch or --preset: change one dimension, like layers=12.",
)
@click.pass_obj
def skeleton(
    session: Session,
    model: str | None,
    arch: str | None,
    preset: str | None,
    output: Path,
    shrink: bool,
    verbatim: bool,
    weights: Literal["random", "zeros"] | None,
    dimensions: tuple[str, ...],
) -> int:
    """Write MODEL without its weights.

    The result loads, takes the same memory and contains nothing private: Arriero replaces names,
    texts and tokens, and the weights are zeros that take no disk space. MODEL is a file, any part
    of a split set, or an address (https://, hf://). Without MODEL, --arch or --preset makes a model
    from nothing, which answers with printable nonsense.
    """
    from arriero.jobs import skeleton as job

    if model is not None:
        if arch or preset or weights or dimensions:
            raise UsageError("--arch, --preset, --weights and --set cannot be used with a MODEL")
        record = job.write_of(model, output, shrink=shrink, verbatim=verbatim)
    else:
        if shrink or verbatim:
            raise UsageError("--shrink and --verbatim need a MODEL")
        record = job.write(
            output, arch=arch, preset=preset, weights=weights, dimensions=_dimensions(dimensions)
        )
    session.show(record)
    return 0


def _dimensions(words: tuple[str, ...]) -> dict[str, int]:
    changes = {}
    for word in words:
        name, _, number = word.partition("=")
        if not number.isdecimal() or len(number) > 9:
            raise UsageError(f"not a dimension: {word}", hint="write it like --set layers=12")
        changes[name] = int(number)
    return changes
