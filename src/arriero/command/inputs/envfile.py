"""The variables of an environment file, as a server without any flags."""

from __future__ import annotations

import re
from typing import Final

from arriero.command.inputs.model import Written
from arriero.command.place import Around

_ASSIGNED: Final = re.compile(r"[ \t]*(?:export[ \t]+)?(LLAMA_\w+)=(.*)")
_DOUBT: Final = "which command uses this file, and with which flags"


def read(text: str, path: str) -> tuple[Written, ...]:
    """One command with the file's ``LLAMA_…`` variables; none if it sets no ``LLAMA_ARG_…``."""
    env: dict[str, str] = {}
    first = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if found := _ASSIGNED.match(line):
            first = first or number
            env[found[1]] = _value(found[2])
    if not any(name.startswith("LLAMA_ARG_") for name in env):
        return ()
    return (
        Written(
            words=("llama-server",), path=path, line=first, lines=(first,), env=env,
            notes=("only the variables of this file are checked",), around=Around(doubt=_DOUBT),
        ),
    )  # fmt: skip


def _value(text: str) -> str:
    """The value without quotes, or without the comment after a value that has no quotes."""
    text = text.strip()
    if text[:1] in ("'", '"'):
        return text[1:].partition(text[0])[0]
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()
