"""The model that a command names, as it was typed and as it is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from arriero.base.errors import UsageError
from arriero.command import Command, ModelSource, parse_command
from arriero.gguf.reader import first_part

_REPOSITORY: Final = re.compile(
    r"hf://(?P<repo>[^/@:]+/[^/@:]+)(?:@[^/:]+)?(?:/(?P<file>.+)|:(?P<quant>.+))?\Z", re.IGNORECASE
)
_REMOTE: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def with_model(command: Command) -> Command:
    """The command with the word that is no option put behind ``-m`` (or ``-mu``, ``-hf``)."""
    source, _ = command.model_source()
    stray = next((i for i in command.items if i.flag is None and i.name[:1] != "-"), None)
    if source is not ModelSource.ROUTER or stray is None:
        return command
    head, tail = command.words[1 : stray.at], command.words[stray.at + 1 :]
    words = (command.program, *_model_words(stray.name), *head, *tail)
    return parse_command(words, command.flags, command.inherited)


def is_remote(spec: str) -> bool:
    return _REMOTE.match(spec) is not None


def _model_words(spec: str) -> tuple[str, ...]:
    if not is_remote(spec):
        path = Path(spec)
        first = first_part(path.name)
        return ("-m", spec if first == path.name else str(path.with_name(first)))
    match = _REPOSITORY.match(spec)
    if match is None:
        return ("-mu", spec)
    if match["file"]:
        return ("-hf", match["repo"], "-hff", match["file"])
    return ("-hf", match["repo"] + (f":{match['quant']}" if match["quant"] else ""))


def spec_of(command: Command) -> str:
    """The model as :func:`arriero.gguf.open_model` takes it."""
    source, where = command.model_source()
    if source is ModelSource.HF and where and not where.startswith("-"):
        file = command.value("-hff")
        return f"hf://{where.partition(':')[0]}/{file}" if file else f"hf://{where}"
    if source in (ModelSource.FILE, ModelSource.URL) and where:
        return where
    raise UsageError(
        f"the model of {where} cannot be read without the engine",
        hint="give the file, its address, or -hf owner/repo:QUANT",
        id="model-source",
    )
