"""The containers of Kubernetes manifests, in any object: pods, deployments, jobs.

A container's ``command`` replaces what its image starts; ``args`` are the arguments. ``$(NAME)`` is
replaced from the container's own ``env``. A value from elsewhere (``valueFrom``, ``envFrom``) is
unknown, and a note says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from arriero.command.inputs import shell
from arriero.command.inputs.model import (
    DEEPEST,
    Spelling,
    Written,
    given_to_server,
    is_image,
    is_server,
    no_command,
    too_large,
)
from arriero.command.inputs.starting import behind_words, is_script, script_of
from arriero.command.inputs.tree import Node, entries, first_line, items, scalar, strings
from arriero.command.place import Around, Place, of_image
from arriero.command.prefix import base_name

_HOLDERS: Final = ("initContainers", "containers")
_VARIABLE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)")
_SHELLS: Final = frozenset(["sh", "bash", "dash", "ash", "zsh"])
_PLAIN: Final = re.compile(r"[\w@%+=:,./${}()-]+")


def read(documents: Sequence[Node], path: str) -> tuple[Written, ...]:
    """The llama-server commands of all containers, in the order of the file."""
    found = (_written(one, path) for root in documents for one in _containers(root, path, 0))
    written = tuple(written for several in found for written in several)
    written += tuple(one for root in documents for one in _scripts(root, path))
    if not written:
        started = (
            script_of([word for key in ("command", "args") for word, _ in _words(one.get(key), {})])
            for root in documents
            for one in _containers(root, path, 0)
        )
        raise no_command(path, next(filter(None, started), None))
    return written


def _scripts(root: Node, path: str) -> Iterator[Written]:
    """The commands in the scripts of a ConfigMap."""
    members = entries(root) or {}
    if scalar(members.get("kind")) != "ConfigMap":
        return
    for name, node in (entries(members.get("data")) or {}).items():
        text = scalar(node) or ""
        if is_script(name) or text.startswith("#!"):
            for one in shell.read(text, path, first_line(node)):
                place = one.around.place or Place("a container starts it")
                yield replace(one, name=name, around=replace(one.around, place=place))


def _containers(node: Node, path: str, depth: int) -> Iterator[Mapping[str, Node]]:
    """Every member of a list whose name ends in containers, at any depth."""
    if depth > DEEPEST:
        raise too_large(path, "it is nested too deeply")
    members = entries(node) or {}
    for name, value in members.items():
        for one in items(value) or [value]:
            if name in _HOLDERS:
                container = entries(one)
                if container is not None:
                    yield container
            else:
                yield from _containers(one, path, depth + 1)


def _written(container: Mapping[str, Node], path: str) -> Iterator[Written]:
    notes: list[str] = []
    env = _environment(container, notes)
    entry = _words(container.get("command"), env)
    words = [*entry, *_words(container.get("args"), env)]
    image = container.get("image")
    around = Around(place=of_image(scalar(image) or "no name"), published=())
    if entry and base_name(entry[0][0]) in _SHELLS:
        yield from (replace(one, around=around) for one in _by_a_shell(words, path))
        return
    given = [word for word, _ in words]
    if entry or not is_image(scalar(image) or ""):
        inner = behind_words(given)
        if inner is None or inner.quoted is not None:
            return
        words = words[inner.words[0].place :]
        around = replace(around, doubt=inner.around.doubt)
    elif not (words and is_server(given[0])):
        others = given_to_server(scalar(image) or "", given)
        if others is None or image is None:
            return
        words = words[others:]
        words = [("llama-server", words[0][1] if words else first_line(image)), *words]
    texts, lines = zip(*words, strict=True)
    yield Written(
        words=texts, path=path, line=lines[0], lines=lines, env=env,
        name=scalar(container.get("name")) or "", notes=tuple(notes),
        source=tuple(Spelling(_spelled(text)) for text in texts), places=tuple(range(len(texts))),
        unkept=("the list of words is printed as one line",), contained=True, around=around,
    )  # fmt: skip


def _by_a_shell(words: Sequence[tuple[str, int]], path: str) -> Iterator[Written]:
    """``sh -c SCRIPT``: its first line is the line of that word."""
    script = next((word for word in words[1:] if not word[0].startswith("-")), None)
    if script is not None:
        yield from shell.read(script[0], path, script[1])


def _words(node: Node | None, env: Mapping[str, str]) -> list[tuple[str, int]]:
    return [(_filled(text, env), line) for text, line in strings(node) or []]


def _filled(text: str, env: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else env.get(match[1], match[0])

    return _VARIABLE.sub(value, text)


def _environment(container: Mapping[str, Node], notes: list[str]) -> dict[str, str]:
    env: dict[str, str] = {}
    for one in items(container.get("env")) or []:
        members = entries(one) or {}
        name, value = scalar(members.get("name")), scalar(members.get("value"))
        if name is not None and value is not None:
            env[name] = value
        elif name is not None:
            env[name] = f"${{{name}}}"  # set to an unknown value
            notes.append(f"{name} comes from elsewhere: its value is unknown")
    if "envFrom" in container:
        notes.append("envFrom is not read: its variables are unknown")
    return env


def _spelled(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else shlex.quote(text)
