"""Commands in a batch file or a PowerShell script, read like the same lines of a shell script.

``^`` and a backtick continue a line, and a backslash is an ordinary character. ``%NAME%`` and
``$name`` are replaced if the file sets them once, to a text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from arriero.command.inputs import shell
from arriero.command.inputs.model import Room, Written

_SET: Final = re.compile(r"^[ \t]*@?set[ \t]+(\"?\w+)=(.*)$", re.IGNORECASE | re.MULTILINE)
_REMARK: Final = re.compile(r"^[ \t]*(?:@?rem\b|::|:\w).*$", re.IGNORECASE | re.MULTILINE)
_USED: Final = re.compile(r"%(\w+)%")
_ASSIGNED: Final = re.compile(r"^[ \t]*\$(?:\w+:)?(\w+)[ \t]*=[ \t]*(?=[\"'\w])", re.MULTILINE)
_UNKEPT: Final = "the command is printed for a shell, on one line"


def read_batch(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server commands of a ``.bat`` or ``.cmd``."""
    room = Room(path)
    values: dict[str, list[str]] = {}
    for name, value in _SET.findall(text):
        value = value.rstrip()
        if name.startswith('"'):
            name, value = name[1:], value.removesuffix('"')
        values.setdefault(name.lower(), []).append(value)

    def value_of(match: re.Match[str]) -> str:
        found = values.get(match[1].lower(), [])
        return room.take(found[0]) if len(found) == 1 else match[0]

    text = _REMARK.sub("", _SET.sub("", text))
    return _read(_USED.sub(value_of, text), "^", path)


def read_powershell(text: str, path: str) -> tuple[Written, ...]:
    """The llama-server commands of a ``.ps1``."""
    text = re.sub(r"<#.*?(?:#>|\Z)", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    return _read(_ASSIGNED.sub(r"\1=", text), "`", path, r"'[^'\n]*'|\\")


def _escaped(match: re.Match[str]) -> str:
    return r"\\" if match[0] == "\\" else match[0]


def _read(text: str, more: str, path: str, plain: str = r"\\") -> tuple[Written, ...]:
    text = re.sub(plain, _escaped, text)
    text = re.sub(rf"{re.escape(more)}[ \t]*$", lambda _: "\\", text, flags=re.MULTILINE)
    text = text.replace("^", "") if more == "^" else text
    return tuple(
        replace(one, source=(), places=(), unkept=(_UNKEPT,)) for one in shell.read(text, path)
    )
