"""The command of a systemd unit, or of a container that Podman's Quadlet turns into a unit.

The reader understands quotes, continued lines, ``Environment=`` and the prefixes of ``ExecStart=``,
and replaces variables that the unit itself sets. ``%``-specifiers stay as written. An
``EnvironmentFile=`` is not read; a note names it. In ``[Container]``, the words of ``Exec=``
are the arguments of the image's server.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from arriero.command.inputs import shell
from arriero.command.inputs.model import (
    MOST_WORDS,
    Dialect,
    Spelling,
    Written,
    given_to_server,
    is_server,
    no_command,
    too_large,
)
from arriero.command.inputs.starting import Filled, behind, script_of
from arriero.command.place import Around, of_image
from arriero.command.prefix import base_name

_WORD: Final = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)
_SHELLS: Final = frozenset(["sh", "bash", "dash", "zsh"])
_VARIABLE: Final = re.compile(r"\$\$|\$\{(\w+)\}|\$([A-Za-z_]\w*)")
_CONTINUED: Final = re.compile(r"(\n[ \t]+(?=[^\s;#]))")
"""In supervisord's files a value continues on indented lines."""
_ALONE: Final = re.compile(r"\$([A-Za-z_]\w*)\Z")


def read(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server commands among ``ExecStart=`` of the unit, and the one of its container."""
    env: dict[str, str] = {}
    notes: list[str] = []
    starts: list[tuple[str, list[int]]] = []
    for key, value, lines in _settings(text, "[Service]"):
        if key == "Environment":
            for word in _split(value):
                name, _, content = word.partition("=")
                env[name] = content
        elif key == "EnvironmentFile":
            notes.append(f"{value.lstrip('-')} is not read: its variables are unknown")
        elif key == "ExecStart":
            starts = [*starts, (value, lines)] if value else []
    found = (_written(value, lines, env, notes, path) for value, lines in starts)
    written = (*(one for several in found for one in several), *_contained(text, path))
    if not written:
        commands = [value for value, _ in starts]
        commands += [v for k, v, _ in _settings(text, "[Container]") if k in ("Entrypoint", "Exec")]
        scripts = (script_of(_split(value.lstrip("@-:+!"))) for value in commands)
        raise no_command(path, next(filter(None, scripts), None))
    return written


def read_programs(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server commands of supervisord's ``[program:…]`` sections."""
    settings = _settings(_CONTINUED.sub(r" \\\1", text), "[program:")
    starts = [(value, spots) for key, value, spots in settings if key == "command"]
    found = tuple(one for start in starts for one in _written(*start, {}, [], path))
    if not found:
        scripts = (script_of(_split(value)) for value, _ in starts)
        raise no_command(path, next(filter(None, scripts), None))
    return found


def _contained(text: str, path: str) -> Iterator[Written]:
    """The server of a Quadlet container, if its image or its program belongs to llama.cpp."""
    env: dict[str, str] = {}
    notes: list[str] = []
    image = entry = ""
    ports: list[str] = []
    given: tuple[str, list[int]] = ("", [])
    for key, value, spots in _settings(text, "[Container]"):
        match key:
            case "Image":
                image = value
                given = given if given[0] else ("", spots[:1])
            case "Entrypoint":
                entry = value
            case "Exec":
                given = (value, spots)
            case "PublishPort":
                ports.append(value)
            case "Network" if value == "host":
                ports.append(value)
            case "Environment":
                env |= dict(word.partition("=")[::2] for word in _split(value))
            case "EnvironmentFile":
                notes.append(f"{value.lstrip('-')} is not read: its variables are unknown")
    value, spots = given
    words = _split(value)
    if len(words) > MOST_WORDS:
        raise too_large(path, f"a command of more than {MOST_WORDS} words")
    lines = _lines_of(words, value, spots)
    source = [Spelling(word) for word in _spelled(words, value)]
    if not (words and is_server(words[0])):
        others = given_to_server(image, words) if not entry else 0 if is_server(entry) else None
        if others is None:
            return
        server = "llama-server"
        words, source, lines = words[others:], source[others:], lines[others:]
        words, source = [server, *words], [Spelling(server), *source]
        lines = [lines[0] if lines else spots[0] if spots else 1, *lines]
    yield Written(
        words=tuple(words), path=path, line=lines[0], lines=tuple(lines), env=env,
        notes=tuple(notes), source=tuple(source), places=tuple(range(len(words))), contained=True,
        dialect=Dialect.SYSTEMD,
        around=Around(place=of_image(image or "no name"), published=tuple(ports)),
    )  # fmt: skip


def _settings(text: str, of: str) -> Iterator[tuple[str, str, list[int]]]:
    """Key, value and the line of each character of the value, for one section."""
    section = ""
    pending = ""
    spots: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or (not stripped and not pending):
            continue
        if not pending and stripped.startswith("["):
            section = stripped
            continue
        more = line.rstrip().endswith("\\")
        piece = line.rstrip()[:-1] + " " if more else line
        pending += piece
        spots += [number] * len(piece)
        if more:
            continue
        key, equals, value = pending.partition("=")
        if equals and section.startswith(of):
            lead = len(key) + 1 + len(value) - len(value.lstrip())
            yield key.strip(), value.strip(), spots[lead:]
        pending, spots = "", []


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _written(
    value: str, spots: list[int], env: Mapping[str, str], notes: list[str], path: str
) -> Iterator[Written]:
    value, spots = value.lstrip("@-:+!"), spots[len(value) - len(value.lstrip("@-:+!")) :]
    words = _split(value)
    if len(words) > MOST_WORDS:
        raise too_large(path, f"a command of more than {MOST_WORDS} words")
    line = spots[0] if spots else 1
    if words and base_name(words[0]) in _SHELLS:
        script = next((w for w in words[1:] if not w.startswith("-")), "")
        for one in shell.read(script, path, line):
            inside = one.around.published is not None
            yield replace(one, env=one.env if inside else {**env, **one.env},
                          notes=(*notes, *one.notes))  # fmt: skip
        return
    lines = _lines_of(words, value, spots)
    filled: list[tuple[str, int]] = []
    source: list[Spelling] = []
    for word, text, at in zip(words, _spelled(words, value), lines, strict=True):
        alone = _ALONE.match(word)
        if alone and alone[1] in env:
            parts = env[alone[1]].split()
            source.append(
                Spelling(text, len(parts), parts=tuple(map(Spelling, map(shell.spelled, parts))))
            )
            filled += [(part, at) for part in parts]
        else:
            source.append(Spelling(text))
            filled.append((_fill(word, env), at))
    found = behind([Filled(word, at, i) for i, (word, at) in enumerate(filled)])
    if found is None:
        return
    if found.quoted is not None:
        for one in shell.read(found.quoted.text, path, found.quoted.line):
            yield replace(one, around=shell.both(found.around, one.around))
        return
    if found.around.published is not None:
        notes = [*notes, shell.INSIDE]
    texts, each, places = zip(*found.before, *found.words, strict=True)
    program = len(found.before)
    yield Written(
        words=texts, path=path, line=each[program], lines=each,
        env=found.env if found.around.published is not None else env,
        notes=tuple(notes), program=program, source=tuple(source), places=places,
        contained=found.contained, dialect=Dialect.SYSTEMD, around=found.around,
    )  # fmt: skip


def _spelled(words: list[str], value: str) -> list[str]:
    """The words as written in the unit."""
    found = _WORD.findall(value)
    if [_split(text) for text in found] == [[word] for word in words]:
        return found
    return list(map(shell.spelled, words))


def _fill(word: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1] or match[2], match[0])

    return _VARIABLE.sub(value, word).replace("%%", "%")


def _lines_of(words: list[str], value: str, spots: list[int]) -> list[int]:
    """The line of each word: where its first characters occur next in the value."""
    lines, at = [], 0
    for word in words:
        found = value.find(word[:24], at)
        at = found if found >= 0 else at
        lines.append(spots[min(at, len(spots) - 1)] if spots else 1)
        at += len(word) if found >= 0 else 0
    return lines
