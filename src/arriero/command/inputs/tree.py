"""YAML (and JSON) as a tree of nodes that know their lines.

The nodes are composed, never constructed, so no tag creates an object. An alias is the very node
that it names, so reading cannot multiply data. Walks are limited in depth, and merges (``<<``) in
their number of members.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import yaml

from arriero.base.errors import UsageError
from arriero.command.inputs.model import DEEPEST, MOST_COMMANDS, MOST_WORDS, too_large

Node = yaml.Node
_MERGE: Final = "<<"


def compose(text: str, path: str) -> Node:
    """The root of the one document.

    Raises:
        UsageError: It is not YAML, is empty, or is nested too deeply.
    """
    roots = compose_all(text, path)
    if len(roots) > 1:
        raise UsageError(
            f"{path}:{roots[1].start_mark.line + 1}: a second document begins here",
            hint="put each document into its own file",
            id="input-damaged",
        )
    return roots[0]


def compose_all(text: str, path: str) -> list[Node]:
    """The roots of all documents that are not empty.

    Raises:
        UsageError: It is not YAML, is empty, has too many documents, or is nested too deeply.
    """
    try:
        roots = list(islice(yaml.compose_all(text, Loader=yaml.SafeLoader), MOST_COMMANDS + 1))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it is not valid YAML"
        raise UsageError(
            f"{path}{where}: {problem}", hint="correct the file first", id="input-damaged"
        ) from None
    except RecursionError:
        raise too_large(path, "it is nested too deeply") from None
    if len(roots) > MOST_COMMANDS:
        raise too_large(path, f"it has more than {MOST_COMMANDS} documents")
    found = [root for root in roots if root is not None and scalar(root) != ""]
    if not found:
        raise UsageError(f"{path} is empty", id="no-command")
    return found


def scalar(node: Node | None) -> str | None:
    """The text of a scalar of any type."""
    return node.value if isinstance(node, yaml.ScalarNode) else None


def items(node: Node | None) -> list[Node] | None:
    """The members of a list; None for anything else."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else None


def entries(node: Node | None) -> dict[str, Node] | None:
    """The members of a mapping by name, merged ones included; None for anything else."""
    if not isinstance(node, yaml.MappingNode):
        return None
    found: dict[str, Node] = {}
    _merge(node, found, set(), 0)
    return found


def _merge(node: Node, found: dict[str, Node], seen: set[int], depth: int) -> None:
    """Add members that are not there yet. A node that was merged before adds nothing."""
    if not isinstance(node, yaml.MappingNode) or id(node) in seen:
        return
    if depth > DEEPEST:
        raise too_large("the file", "its merges are nested too deeply")
    seen.add(id(node))
    merged: list[Node] = []
    for key, value in node.value:
        name = scalar(key)
        if name == _MERGE:
            merged += items(value) or [value]
        elif name is not None:
            found.setdefault(name, value)
    for one in merged:
        _merge(one, found, seen, depth + 1)


def strings(node: Node | None) -> list[tuple[str, int]] | None:
    """A list of scalars with their lines; None for anything else."""
    members = items(node)
    if members is None:
        return None
    return [
        (text, member.start_mark.line + 1)
        for member in members[:MOST_WORDS]
        if (text := scalar(member)) is not None
    ]


def first_line(node: Node) -> int:
    """The line of a scalar's first character; the text of a block begins below its indicator."""
    return int(node.start_mark.line) + 1 + int(_is_block(node))


def lines_of(node: Node) -> list[str]:
    """The lines of a scalar as written in the file; a folded block is not folded."""
    if not _is_block(node):
        return str(node.value).split("\n")
    return str(node.start_mark.buffer).split("\n")[node.start_mark.line + 1 : node.end_mark.line]


def _is_block(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
