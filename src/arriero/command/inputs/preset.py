"""The commands of a models preset (``--models-preset``): one for each section.

Keys are flags without their dashes, or variables; ``[*]`` holds for every model. A switch has a
truth as its value. The router adds address and port of its own.
"""

from __future__ import annotations

import re
from typing import Final

from arriero.command.flags import FlagTable, builtin_flags
from arriero.command.inputs.model import Written

_SECTION: Final = re.compile(r"\[([^\]]+)\]\s*\Z")
_SETTING: Final = re.compile(r"([\w.-]+)\s*=\s*(.*)\Z")
_ROUTER: Final = frozenset(["version", "load-on-startup", "stop-timeout"])
"""Keys for the router itself."""
_OFF: Final = frozenset(["false", "off", "0", "no", "disabled"])
_ON: Final = frozenset(["true", "on", "1", "yes", "enabled"])
_Setting = tuple[str, str, int]


def read(text: str, path: str) -> tuple[Written, ...]:
    """One command for each model."""
    sections: dict[str, tuple[int, list[_Setting]]] = {}
    current: list[_Setting] = []
    everywhere: list[_Setting] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", ";")):
            continue
        if section := _SECTION.match(stripped):
            name = section[1].strip()
            current = everywhere if name == "*" else sections.setdefault(name, (number, []))[1]
        elif (setting := _SETTING.match(stripped)) and setting[1] not in _ROUTER:
            current.append((setting[1], setting[2].strip().strip('"'), number))
    flags = builtin_flags()
    return tuple(
        _written(name, line, [*everywhere, *own], path, flags)
        for name, (line, own) in sections.items()
    )


def _written(
    name: str, line: int, settings: list[_Setting], path: str, flags: FlagTable
) -> Written:
    words, lines, env = ["llama-server"], [line], {}
    last = {key: (value, number) for key, value, number in settings}
    for key, (value, number) in last.items():
        if key.startswith("LLAMA_"):
            env[key] = value
            continue
        new = _words(key, value, flags)
        words += new
        lines += [number] * len(new)
    return Written(words=tuple(words), path=path, line=line, lines=tuple(lines), env=env, name=name)


def _words(key: str, value: str, flags: FlagTable) -> list[str]:
    spelling = f"--{key}" if flags.get(f"--{key}") or not flags.get(f"-{key}") else f"-{key}"
    flag = flags.get(spelling)
    if flag is not None and flag.arity == 0:
        if value.lower() in _OFF:
            return [flag.negatives[-1]] if flag.negatives else []
        return [spelling]
    if flag is None and value.lower() in _ON:
        return [spelling]
    return [spelling, value]
