"""``arriero schema``."""

from __future__ import annotations

import click

from arriero.cli._group import Command
from arriero.cli._session import Session


@click.command(cls=Command, short_help="Print the JSON Schema of a document.")
@click.argument("name")
@click.pass_obj
def schema(session: Session, name: str) -> int:
    """Print the JSON Schema of a document.

    NAME is the word between "arriero." and "/1" in the document's "schema" field: plan, check,
    diagnosis, explanation, verification, error, … "settings" is the file of arriero serve.
    """
    import msgspec

    from arriero.record import json_schema

    if name == "settings":
        from arriero.serve.settings import json_schema as of_settings

        found = of_settings()
    else:
        found = json_schema(name)
    session.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    return 0
