"""The command of a Dockerfile: what the last stage's image starts, and its arguments.

The last ``ENTRYPOINT`` and ``CMD`` count, as JSON or as words for a shell. An image of llama.cpp
without an ``ENTRYPOINT`` of its own starts its server. ``ENV`` and ``ARG`` with a value are
replaced.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from arriero.command.inputs import shell
from arriero.command.inputs.model import (
    Spelling,
    Written,
    given_to_server,
    is_image,
    is_server,
    no_command,
)
from arriero.command.inputs.starting import behind_words, script_of
from arriero.command.place import Around, of_image

_INSTRUCTION: Final = re.compile(r"\s*([A-Za-z]+)\s+(.*)\Z", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_SHELL: Final = re.compile(r"(?:/\w+)*/?(?:ba|da|a|z)?sh\Z")
_Words = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class _Stage:
    """The base image of a stage and what it starts: words, or a line for a shell."""

    image: str = ""
    line: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    entry: _Words | str = ()
    given: _Words | str = ()
    entry_line: int = 1
    given_line: int = 1


def read(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server command of the image that the file makes.

    Raises:
        UsageError: It starts another program, or a script.
    """
    stage = _last_stage(text)
    found = _started(stage, path)
    if not found:
        lines = (stage.entry, stage.given)
        said = [one.split() if isinstance(one, str) else [w for w, _ in one] for one in lines]
        raise no_command(path, script_of([word for words in said for word in words]))
    around = Around(place=of_image(stage.image or "no name"), published=())
    return tuple(replace(one, around=replace(around, doubt=one.around.doubt)) for one in found)


def _last_stage(text: str) -> _Stage:
    arguments: dict[str, str] = {}
    stages: dict[str, _Stage] = {}
    stage, known = _Stage(), ""
    for name, value, number in _instructions(text):
        match name:
            case "FROM":
                words = [word for word in value.split() if not word.startswith("--")]
                image = _filled(words[0] if words else "", arguments)
                stage = replace(stages.get(image.lower(), _Stage(image)), line=number)
                known = words[2].lower() if len(words) > 2 else ""
            case "ARG":
                key, _, default = value.partition("=")
                arguments[key] = default.strip("\"'")
            case "ENV":
                stage = replace(stage, env={**stage.env, **_assigned(value)})
            case "ENTRYPOINT":
                entry = _command(value, number)
                stage = replace(stage, entry=entry, given=(), entry_line=number)
            case "CMD":
                stage = replace(stage, given=_command(value, number), given_line=number)
        if known:
            stages[known] = stage
    return stage


def _started(stage: _Stage, path: str) -> tuple[Written, ...]:
    entry, given = stage.entry, stage.given
    if isinstance(entry, str):  # a line for a shell gets no arguments
        return shell.read(entry, path, stage.entry_line)
    if isinstance(given, str):
        return shell.read(given, path, stage.given_line) if not entry else ()
    words, doubt = (*entry, *given), ""
    said = [word for word, _ in words]
    if words and _SHELL.match(said[0]) and (entry or not is_image(stage.image)):
        script = next((word for word in words[1:] if not word[0].startswith("-")), ("", 1))
        return shell.read(script[0], path, script[1])
    if entry or not is_image(stage.image):
        inner = behind_words(said)
        if inner is None or inner.quoted is not None:
            return ()
        words, doubt = words[inner.words[0].place :], inner.around.doubt
    elif not (words and is_server(said[0])):
        others = given_to_server(stage.image, said)
        if others is None:
            return ()
        words = words[others:]
        words = (("llama-server", words[0][1] if words else stage.line), *words)
    texts = tuple(word for word, _ in words)
    lines = tuple(number for _, number in words)
    return (
        Written(
            words=texts, path=path, line=lines[0], lines=lines, env=stage.env,
            source=tuple(Spelling(shlex.quote(one)) for one in texts),
            places=tuple(range(len(texts))), contained=True, around=Around(doubt=doubt),
            unkept=("the list of words is printed as one line",),
        ),
    )  # fmt: skip


def _instructions(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, value and line of each instruction; continued lines are joined, comments removed."""
    pending, first = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        first = first if pending else number
        if line.rstrip().endswith("\\"):
            pending += line.rstrip()[:-1] + " "
            continue
        found = _INSTRUCTION.match(pending + line)
        pending = ""
        if found:
            yield found[1].upper(), found[2].strip(), first


def _command(value: str, line: int) -> _Words | str:
    """The words of a JSON list, or a line for a shell."""
    if not value.startswith("["):
        return value
    import json  # late: few commands are a Dockerfile's

    try:
        words = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return tuple((str(word), line) for word in words)


def _assigned(value: str) -> dict[str, str]:
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    if words and "=" not in words[0]:  # the old form: ENV NAME the rest
        return {words[0]: " ".join(words[1:])}
    return dict(word.partition("=")[::2] for word in words)


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(
        lambda m: values.get(m[1] or m[3]) or (m[2] if m[2] is not None else m[0]), text
    )
