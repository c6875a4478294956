"""Read commands from the files in which people keep them.

Such a file is data: nothing in it is run, nothing is included, and no variable is read from the
environment of this process. A variable that the file itself assigns once is replaced by its value;
any other stays as written, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from arriero.base.errors import NotFoundError, UsageError
from arriero.command.flags import FlagTable, normalise
from arriero.command.inputs import dockerfile, envfile, preset, recipes, shell, systemd, windows
from arriero.command.inputs.model import LARGEST, MOST_COMMANDS, Written, is_open, no_command
from arriero.command.inputs.starting import is_script
from arriero.command.place import Mark


def _yaml(text: str, path: str) -> tuple[Written, ...]:
    from arriero.command.inputs import yamlfile  # late: most commands are in no YAML

    return yamlfile.read(text, path)


def _json(text: str, path: str) -> tuple[Written, ...]:
    from arriero.command.inputs import argv

    return argv.read(text, path)


_SUFFIXES: Final[dict[str, Callable[[str, str], tuple[Written, ...]]]] = {
    ".service": systemd.read,
    ".container": systemd.read,
    ".dockerfile": dockerfile.read,
    ".containerfile": dockerfile.read,
    ".json": _json,
    ".ini": preset.read,
    ".yml": _yaml,
    ".yaml": _yaml,
    ".mk": recipes.read,
    ".just": recipes.read,
    ".bat": windows.read_batch,
    ".cmd": windows.read_batch,
    ".ps1": windows.read_powershell,
    ".env": envfile.read,
}
_NAMES: Final[dict[str, Callable[[str, str], tuple[Written, ...]]]] = {
    "dockerfile": dockerfile.read,
    "containerfile": dockerfile.read,
    "makefile": recipes.read,
    "gnumakefile": recipes.read,
    "justfile": recipes.read,
}
_TEMPLATES: Final = frozenset([".j2", ".tmpl", ".template", ".example", ".sample", ".dist", ".in"])
"""Suffixes of templates; the part of the name before them says which form the file has."""


_PYTHON: Final = "llama_cpp.server"
_PRESET: Final = re.compile(
    r"^\[[^\]\n\"']+\][ \t]*$\n(?:[ \t]*(?:[;#].*)?\n)*"
    r"[ \t]*(?:m|model|hf|hf-repo|ctx-size)[ \t]*=",
    re.MULTILINE,
)


def read_commands(path: Path, flags: FlagTable) -> tuple[Written, ...]:
    """Every llama-server command in a file. Its name or its text shows which form it has.

    These forms are read: scripts (shell, batch, PowerShell), Makefiles and justfiles, systemd units
    and Quadlet containers, supervisord's programs, Dockerfiles, compose files, llama-swap
    configurations, Kubernetes manifests, llama-server's own model presets, files of its environment
    variables, and JSON arrays of arguments.

    Args:
        flags: Needed to distinguish a flag's value from a word that stands alone.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It cannot be read, is too large or nested too deeply, or contains no command.
    """
    raw = _text(path)
    text = raw.removeprefix("\ufeff").replace("\r\n", "\n")
    form = _by_name(path) or _by_text(text)
    try:
        # Only in the engine's own form do a byte order mark and the ends of lines matter.
        found = _server_commands(form(raw if form is preset.read else text, str(path)), path)
    except UsageError as error:
        if error.id != "no-command" or _PYTHON not in text:
            raise
        raise UsageError(
            f"{path} contains no llama-server command: {_PYTHON} is not llama-server",
            hint="give a llama-server command: llama-cpp-python's server has other options",
            id="no-command",
        ) from None
    if len(found) > MOST_COMMANDS:
        raise UsageError(
            f"{path} contains more than {MOST_COMMANDS} commands", id="input-too-large"
        )
    return tuple(_without_open_words(written, flags) for written in found)


def _server_commands(found: tuple[Written, ...], path: Path) -> tuple[Written, ...]:
    """The same without scripts that only have a name like the server's."""
    scripts = [one.words[one.program] for one in found if _is_script(one)]
    found = tuple(one for one in found if not _is_script(one))
    if not found:
        raise no_command(str(path), scripts[0] if scripts else None)
    return found


def preset_refusals(path: Path, typed: str) -> tuple[Mark, ...]:
    """Why the engine would refuse a models preset; empty if it accepts it.

    Args:
        typed: The preset's name in the command.

    Raises:
        UsageError: It cannot be read, or is too large.
    """
    return tuple(replace(mark, file=typed) for mark in preset.refusals(_text(path)))


def command_behind(words: Sequence[str], flags: FlagTable) -> Written | None:
    """The one llama-server command that a command starts, in a container, by ``sudo`` or a shell.

    It is read like the same line of a script.
    """
    found = shell.read_words(words, "")
    return _without_open_words(found[0], flags) if len(found) == 1 else None


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            missing = not path.exists()
            raise NotFoundError(
                f"there is no file {path}" if missing else f"{path} is not a file",
                hint="write a command after --, as in: arriero check -- llama-server -m …",
                id="no-input",
            )
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if len(data) > LARGEST:
        raise UsageError(
            f"{path} is larger than {LARGEST >> 10} KiB",
            hint="give a file of commands",
            id="input-too-large",
        )
    if b"\0" in data:
        raise UsageError(f"{path} is not a text file", hint="give a file of commands")
    return data.decode("utf-8", "replace")


def _is_script(written: Written) -> bool:
    """Whether the program is a script with a name like the server's and without a server's flag."""
    program, *others = written.words[written.program :]
    return is_script(program) and not any(word.startswith("-") for word in others)


def _by_name(path: Path) -> Callable[[str, str], tuple[Written, ...]] | None:
    """By the suffix, or by a name such as ``Dockerfile.cuda`` or ``.env.local``."""
    name = path.name.lower()
    while (suffix := Path(name).suffix) in _TEMPLATES:
        name = name.removesuffix(suffix)
    stem = name.partition(".")[0] or f".{name.split('.')[1]}" if "." in name else name
    return _SUFFIXES.get(Path(name).suffix) or _NAMES.get(stem) or _SUFFIXES.get(stem)


def _by_text(text: str) -> Callable[[str, str], tuple[Written, ...]]:
    first = next((line for line in map(str.strip, text.splitlines()) if line), "")
    if re.search(r"^\[program:[^\]]+\]\s*$", text, re.MULTILINE):
        return systemd.read_programs
    if first.startswith("[") and re.search(r"^\s*(?:ExecStart|Image)\s*=", text, re.MULTILINE):
        return systemd.read
    if _PRESET.search(text):
        return preset.read
    if first.startswith(("[", "{")) and re.search(r'[\[{]\s*["\[{]', text):
        return _json
    return shell.read


def _without_open_words(written: Written, flags: FlagTable) -> Written:
    """Remove words that stand alone and only others can replace, such as ``$EXTRA_ARGS``."""
    kept: list[int] = []
    notes = list(written.notes)
    at = 0
    takes = 0
    while at < len(written.words):
        word = written.words[at]
        known = flags.get(word)
        if takes:
            takes -= 1
        elif known is not None:
            takes = known.arity
        elif is_open(word) and at > written.program:
            notes.append(f"the value of {word} is unknown: the check leaves it out")
            at += 1
            continue
        elif normalise(word).startswith("-"):
            following = written.words[at + 1 : at + 2]
            takes = int(bool(following) and not following[0].startswith("-"))
        kept.append(at)
        at += 1
    return written.picked(kept, notes)
