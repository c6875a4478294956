"""The command of a Dockerfile: what the last stage's image starts, and what it is given.

``ENTRYPOINT`` and ``CMD`` count in their last use, as JSON or as words for a shell; without an
``ENTRYPOINT`` of its own an image of llama.cpp starts its server. ``ENV`` and ``ARG`` with a value
are filled in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from arriero.command.inputs import shell
from arriero.command.inputs.model import Spelling, Written, given_to_server, is_server
from arriero.command.place import Around, of_image

_INSTRUCTION: Final = re.compile(r"\s*([A-Za-z]+)\s+(.*)\Z", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")
_SHELL: Final = re.compile(r"(?:/\w+)*/?(?:ba|da|a|z)?sh\Z")
_Words = list[tuple[str, int]]


def read(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server command of the image that the file makes; none if it starts another."""
    image, found = _started(text, path)
    around = Around(place=of_image(image or "no name"), published=())
    return tuple(replace(one, around=around) for one in found)


def _started(text: str, path: str) -> tuple[str, tuple[Written, ...]]:
    """The image that the last stage is built on, and what it starts."""
    env: dict[str, str] = {}
    arguments: dict[str, str] = {}
    image, line = "", 1
    entry: _Words | str = []
    given: _Words | str = []
    where = [1, 1]
    for name, value, number in _instructions(text):
        match name:
            case "FROM":
                image = _filled(value.split()[0] if value.split() else "", arguments)
                line, entry, given, env = number, [], [], {}
            case "ARG":
                key, _, default = value.partition("=")
                arguments[key] = default.strip("\"'")
            case "ENV":
                env |= _assigned(value)
            case "ENTRYPOINT":
                entry, given, where[0] = _command(value, number), [], number
            case "CMD":
                given, where[1] = _command(value, number), number
    if isinstance(entry, str):  # a shell's line is given nothing
        return image, shell.read(entry, path, where[0])
    if isinstance(given, str):
        return image, shell.read(given, path, where[1]) if not entry else ()
    if entry and _SHELL.match(entry[0][0]):
        script = next((word for word in entry[1:] if not word[0].startswith("-")), ("", 1))
        return image, shell.read(script[0], path, script[1])
    words = [*entry, *given]
    if not (words and is_server(words[0][0])):
        others = None if entry else given_to_server(image, [word for word, _ in words])
        if others is None:
            return image, ()
        words = words[others:]
        words = [("llama-server", words[0][1] if words else line), *words]
    texts = tuple(word for word, _ in words)
    lines = tuple(number for _, number in words)
    return image, (
        Written(
            words=texts, path=path, line=lines[0], lines=lines, env=env,
            source=tuple(Spelling(shlex.quote(one)) for one in texts),
            places=tuple(range(len(texts))), contained=True,
            unkept=("the words of a list are printed as one line",),
        ),
    )  # fmt: skip


def _instructions(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, value and line of each instruction, continued lines joined and comments left out."""
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
    """The words of a JSON list, or the line that a shell is given."""
    if not value.startswith("["):
        return value
    import json  # late: few commands are a Dockerfile's

    try:
        words = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return [(str(word), line) for word in words]


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
