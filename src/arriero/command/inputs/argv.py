"""Commands as JSON: an array of words, several such arrays, or an object with the words in it."""

from __future__ import annotations

from arriero.command.inputs.model import Written, is_server
from arriero.command.inputs.tree import Node, compose, entries, items, scalar, strings

_COMMAND = ("command", "cmd", "program", "executable", "argv")


def read(text: str, path: str) -> tuple[Written, ...]:
    """Every array of words. JSON is read as YAML, which it is, since that keeps the lines.

    An object may have ``argv``, or ``command`` and ``args``, and ``env``.
    """
    root = compose(text, path)
    nodes = items(root)
    if (nodes and all(scalar(node) is not None for node in nodes)) or nodes is None:
        nodes = [root]
    found = (_written(node, path) for node in nodes)
    return tuple(written for written in found if written is not None)


def _written(node: Node, path: str) -> Written | None:
    words = strings(node) or []
    env: dict[str, str] = {}
    members = entries(node)
    if members is not None:
        program = next((members[key] for key in _COMMAND if key in members), None)
        words = [*_words(program), *_words(members.get("args"))]
        variables = entries(members["env"]) if "env" in members else None
        env = {name: scalar(value) or "" for name, value in (variables or {}).items()}
    if not any(word.startswith("-") or is_server(word) for word, _ in words):
        return None
    texts, lines = zip(*words, strict=True)
    return Written(words=texts, path=path, line=lines[0], lines=lines, env=env)


def _words(node: Node | None) -> list[tuple[str, int]]:
    if node is None:
        return []
    alone = scalar(node)
    return [(alone, node.start_mark.line + 1)] if alone is not None else strings(node) or []
