"""Commands in YAML: services of a compose file, models of llama-swap, containers of Kubernetes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from arriero.base.errors import UsageError
from arriero.command.inputs import kubernetes, shell
from arriero.command.inputs.model import (
    DEEPEST,
    LONGEST_WORD,
    Dialect,
    Spelling,
    Written,
    given_to_server,
    is_image,
    is_server,
    no_command,
    too_large,
)
from arriero.command.inputs.starting import behind_words, script_of
from arriero.command.inputs.tree import (
    Node,
    compose_all,
    entries,
    first_line,
    items,
    lines_of,
    scalar,
    strings,
)
from arriero.command.place import Around, Place, of_image
from arriero.command.prefix import base_name

_SHELLS: Final = frozenset(["sh", "bash", "dash", "zsh", "ash"])
_MACRO: Final = re.compile(r"\$\{([\w.-]+)\}")
_PLAIN: Final = re.compile(r"[\w@%+=:,./${}-]+")
_FIRST_PORT: Final = "5800"
"""llama-swap's default for ``startPort``."""
_COMPOSED: Final = re.compile(r"\$\$|\$\{(\w+)(?::?-([^}]*))?\}|\$(\w+)")


def read(text: str, path: str) -> tuple[Written, ...]:
    """The commands of a compose or llama-swap file, or of manifests for Kubernetes.

    Raises:
        UsageError: The file has none of these forms.
    """
    documents = compose_all(text, path)
    if any("apiVersion" in (entries(one) or {}) for one in documents):
        return kubernetes.read(documents, path)
    root = entries(documents[0]) or {}
    services, models = entries(root.get("services")), entries(root.get("models"))
    if services is not None:
        found = tuple(w for name, node in services.items() for w in _service(name, node, path))
        if not found:
            started = (script_of(_started(node, path)) for node in services.values())
            raise no_command(path, next(filter(None, started), None))
        return found
    if models is not None:
        macros = _macros(root.get("macros"))
        macros.setdefault("PORT", scalar(root.get("startPort")) or _FIRST_PORT)
        return tuple(w for name, node in models.items() for w in _model(name, node, macros, path))
    raise UsageError(
        f"{path} has no services (compose), models (llama-swap) or apiVersion (Kubernetes)",
        hint="write the command after -- instead",
        id="no-command",
    )


_Word = tuple[str, int, Spelling]
"""A word of a compose file, its line, and how it is written."""


# --- compose --------------------------------------------------------------------------------------


def _service(name: str, node: Node, path: str) -> list[Written]:
    """One service, if its image or its command is llama.cpp's server."""
    members = entries(node) or {}
    notes: list[str] = []
    entry = _command(members.get("entrypoint"), path, notes)
    words = _command(members.get("command"), path, notes)
    image = scalar(members.get("image")) or ""
    line = node.start_mark.line + 1
    place = of_image(image) if image else Place("it is in an image of its own")
    around = Around(place=place, published=_published(members))
    if inner := _through_a_shell([*entry, *words], path):
        return [replace(one, name=name, around=around) for one in inner]
    made = image or _built_from(members)
    words = [*entry, *words]
    given = [word for word, _, _ in words]
    if entry or not is_image(made):
        behind = behind_words(given)
        if behind is None or behind.quoted is not None:
            return []
        words = words[behind.words[0].place :]
        around = replace(around, doubt=behind.around.doubt)
    elif not (words and is_server(given[0])):
        others = given_to_server(made, given)
        if others is None:
            return []
        words, server = words[others:], "llama-server"
        words = [(server, words[0][1] if words else line, Spelling(server)), *words]
    if "env_file" in members:
        notes.append("env_file is not read: its variables are unknown")
    texts, lines, source = zip(*words, strict=True)
    listed = any(items(members.get(key)) for key in ("entrypoint", "command"))
    env = {key: _filled(value, notes) for key, value in _environment(members).items()}
    return [
        Written(
            words=texts, path=path, line=lines[0], lines=lines, env=env, name=name,
            notes=tuple(dict.fromkeys(notes)), source=source, places=tuple(range(len(words))),
            dialect=Dialect.COMPOSE,
            unkept=("the list of words is printed as one line",) if listed else (),
            around=around,
        )
    ]  # fmt: skip


def _started(node: Node, path: str) -> list[str]:
    """The words of the program that a service starts."""
    members = entries(node) or {}
    both = (_command(members.get(key), path, []) for key in ("entrypoint", "command"))
    return [word for words in both for word, _, _ in words]


def _built_from(members: Mapping[str, Node]) -> str:
    """The source of a service's own image: its directory and the name of its recipe."""
    node = members.get("build")
    parts = entries(node) or {}
    named = [scalar(parts.get(key)) or "" for key in ("context", "dockerfile", "target")]
    return " ".join(filter(None, [scalar(node) or "", *named]))


def _through_a_shell(words: list[_Word], path: str) -> tuple[Written, ...]:
    """The command in ``sh -c "…"``."""
    if not words or base_name(words[0][0]) not in _SHELLS:
        return ()
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"-\w*c", word[0])), None)
    if at is None or at + 1 >= len(words):
        return ()
    text, line, _ = words[at + 1]
    note = "the command in quotes is printed alone, without what starts it"
    found = shell.read(text, path, line)
    return tuple(replace(one, unkept=(*one.unkept, note)) for one in found)


def _published(members: Mapping[str, Node]) -> tuple[str, ...]:
    """Ports in the short form; ``host`` for the host's network."""
    if scalar(members.get("network_mode")) == "host":
        return ("host",)
    ports: list[str] = []
    for one in items(members.get("ports")) or []:
        long = entries(one)
        if long is None:
            ports.append(_filled(scalar(one) or "", []))
        else:
            parts = (scalar(long.get(key)) or "" for key in ("host_ip", "published", "target"))
            ports.append(":".join(_filled(part, []) for part in parts))
    return tuple(filter(None, ports))


def _command(node: Node | None, path: str, notes: list[str]) -> list[_Word]:
    """A command as a list or as a string that is split like a shell's."""
    listed = strings(node)
    if listed is not None:
        return [(_filled(text, notes), line, _on_a_line(text)) for text, line in listed]
    text = scalar(node)
    if node is None or not text:
        return []
    words = shell.split(_continued(lines_of(node)), path, first_line(node), notes)
    return [(_filled(one.text, notes), one.line, spelling) for one, spelling in words]


def _on_a_line(text: str) -> Spelling:
    """A member of a list. Compose replaces variables in single quotes too."""
    return Spelling(text if _PLAIN.fullmatch(text) else shlex.quote(text))


def _environment(members: Mapping[str, Node]) -> dict[str, str]:
    node = members.get("environment")
    mapping = entries(node)
    if mapping is not None:
        return {name: scalar(value) or "" for name, value in mapping.items()}
    pairs = (text.partition("=") for text, _ in strings(node) or [])
    return {name: value for name, equals, value in pairs if equals}


def _filled(text: str, notes: list[str]) -> str:
    """Compose's own expansion, using only the defaults in the file."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[2] is not None:
            notes.append(f"{match[1]} is assumed to have its default: {match[2]}")
            return match[2]
        return match[0]

    return _COMPOSED.sub(value, text)


# --- llama-swap -----------------------------------------------------------------------------------


def _macros(node: Node | None) -> dict[str, str]:
    found = {name: scalar(value) for name, value in (entries(node) or {}).items()}
    for one in items(node) or []:  # newer files keep them in order, as a list
        found |= {name: scalar(value) for name, value in (entries(one) or {}).items()}
    return {name: value for name, value in found.items() if value is not None}


def _model(name: str, node: Node, macros: Mapping[str, str], path: str) -> list[Written]:
    members = entries(node) or {}
    command = members.get("cmd")
    if command is None or not scalar(command):
        return []
    known = {**macros, **_macros(members.get("macros")), "MODEL_ID": name}
    env = dict(pair.split("=", 1) for pair, _ in strings(members.get("env")) or [] if "=" in pair)
    # A macro may contain several lines; its words have the line of the macro's name.
    one_line = {name: re.sub(r"\\?\n", " ", value) for name, value in known.items()}
    text, rounds = _expand(_continued(lines_of(command)), one_line, path)
    found = shell.read(text, path, first_line(command), plain=True)
    return [
        replace(
            written, env={**env, **written.env}, name=name, dialect=Dialect.SWAP,
            source=_unexpanded(written.source, text, rounds),
        )
        for written in found
    ]  # fmt: skip


_Span = tuple[int, int, tuple[Spelling, ...]]
_Round = tuple[str, list[tuple[int, int]]]
"""A text, and for each character of its expansion the part of the text that produced it."""


def _expand(text: str, macros: Mapping[str, str], path: str) -> tuple[str, list[_Round]]:
    """The text with its macros replaced, and the text before each round of replacement."""
    rounds: list[_Round] = []
    for _ in range(DEEPEST):
        pieces: list[tuple[str, int, int]] = []
        at = 0
        for match in _MACRO.finditer(text):
            pieces += [(text[at : match.start()], at, at)]
            pieces += [(macros.get(match[1], match[0]), *match.span())]
            at = match.end()
        pieces += [(text[at:], at, at)]
        if sum(len(piece) for piece, _, _ in pieces) > LONGEST_WORD:
            raise too_large(path, "its macros expand to more text than any command has")
        expanded = "".join(piece for piece, _, _ in pieces)
        if expanded == text:
            return text, rounds
        spots: list[tuple[int, int]] = []
        for piece, start, end in pieces:
            here = range(start, start + len(piece))
            spots += [(start, end)] * len(piece) if end > start else [(i, i + 1) for i in here]
        rounds.append((text, spots))
        text = expanded
    raise too_large(path, "its macros refer to each other without end")


def _unexpanded(
    source: Sequence[Spelling], text: str, rounds: Sequence[_Round]
) -> tuple[Spelling, ...]:
    """The source with the macros that made its words; unchanged if it is from another text."""
    if any(text[one.at : one.at + len(one.text)] != one.text for one in source):
        return tuple(source)
    spans: list[_Span] = [(one.at, one.at + len(one.text), (one,)) for one in source]
    for before, spots in reversed(rounds):
        merged: list[_Span] = []
        for start, end, made in spans:
            start, end = spots[start][0], spots[end - 1][1]
            if merged and start < merged[-1][1]:  # one macro made both
                start, _, others = merged.pop()
                made = (*others, *made)
            merged.append((start, end, made))
        spans = [
            (start, end, (_made_of(before[start:end], start, made),))
            for start, end, made in merged
        ]  # fmt: skip
    return tuple(one for _, _, made in spans for one in made)


def _made_of(text: str, at: int, parts: tuple[Spelling, ...]) -> Spelling:
    if len(parts) == 1 and parts[0].text == text:
        return replace(parts[0], at=at)
    return Spelling(text, sum(part.count for part in parts), at, parts)


def _continued(lines: Sequence[str]) -> str:
    """The lines of one command as a shell needs them, without the comments between them."""
    kept = ["" if line.lstrip().startswith("#") else line for line in lines]
    return " \\\n".join(line.rstrip().removesuffix("\\") for line in kept)
