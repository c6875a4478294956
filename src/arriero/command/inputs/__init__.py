"""Commands out of the files that people keep them in.

Such a file is data: nothing in it is run, nothing is included, and no variable is taken from the
environment of this process. What the file itself assigns once is filled in; what it leaves to
others stays as it is written, and a note says so.
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
"""What a file's name ends in where its form is told by what stands before."""


_PYTHON: Final = "llama_cpp.server"
_PRESET: Final = re.compile(
    r"^\[[^\]\n\"']+\][ \t]*$\n(?:[ \t]*(?:[;#].*)?\n)*"
    r"[ \t]*(?:m|model|hf|hf-repo|ctx-size)[ \t]*=",
    re.MULTILINE,
)


def read_commands(path: Path, flags: FlagTable) -> tuple[Written, ...]:
    """Every llama-server command in a file, by the form that its name or its text tells.

    Read are scripts (shell, batch, PowerShell), Makefiles and justfiles, systemd units and Quadlet
    containers, supervisord's programs, Dockerfiles, compose files, llama-swap configurations,
    manifests of Kubernetes, llama-server's own model presets, files of its variables and JSON
    arrays of arguments.

    Args:
        flags: To tell a flag's value from a word that stands alone.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It cannot be read, is too large or nested too deep, or holds no command.
    """
    raw = _text(path)
    text = raw.removeprefix("\ufeff").replace("\r\n", "\n")
    form = _by_name(path) or _by_text(text)
    try:
        # A byte order mark and the ends of lines mean something to the engine's own form alone.
        found = _server_commands(form(raw if form is preset.read else text, str(path)), path)
    except UsageError as error:
        if error.id != "no-command" or _PYTHON not in text:
            raise
        raise UsageError(
            f"no llama-server command in {path}: {_PYTHON} is not llama-server",
            hint="it is the server of llama-cpp-python, whose options are others",
            id="no-command",
        ) from None
    if len(found) > MOST_COMMANDS:
        raise UsageError(f"more than {MOST_COMMANDS} commands in {path}", id="input-too-large")
    return tuple(_without_open_words(written, flags) for written in found)


def _server_commands(found: tuple[Written, ...], path: Path) -> tuple[Written, ...]:
    """The same without scripts that are only called after the server."""
    scripts = [one.words[one.program] for one in found if _is_script(one)]
    found = tuple(one for one in found if not _is_script(one))
    if not found:
        raise no_command(str(path), scripts[0] if scripts else None)
    return found


def preset_refusals(path: Path, typed: str) -> tuple[Mark, ...]:
    """Why the engine would refuse a models preset, if it would.

    Args:
        typed: What the command calls it.

    Raises:
        UsageError: It cannot be read, or is too large.
    """
    return tuple(replace(mark, file=typed) for mark in preset.refusals(_text(path)))


def command_behind(words: Sequence[str], flags: FlagTable) -> Written | None:
    """The one llama-server command that a command starts: in a container, by ``sudo``, by a shell.

    It is read like the same line of a script.
    """
    found = shell.read_words(words, "")
    return _without_open_words(found[0], flags) if len(found) == 1 else None


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            missing = not path.exists()
            raise NotFoundError(
                f"no file {path}" if missing else f"{path} is not a file",
                hint="a command goes after --, as in: arriero check -- llama-server -m …",
                id="no-input",
            )
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if len(data) > LARGEST:
        raise UsageError(
            f"{path} is larger than {LARGEST >> 10} KiB",
            hint="is it a file of commands?",
            id="input-too-large",
        )
    if b"\0" in data:
        raise UsageError(f"{path} is not a text file", hint="is it a file of commands?")
    return data.decode("utf-8", "replace")


def _is_script(written: Written) -> bool:
    """Whether the program is a script called after the server, which is given no flag of it."""
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
    """Words that stand alone and that only others can fill in, such as ``$EXTRA_ARGS``, go."""
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
            notes.append(f"{word} is not filled in: it is left out of the check")
            at += 1
            continue
        elif normalise(word).startswith("-"):
            following = written.words[at + 1 : at + 2]
            takes = int(bool(following) and not following[0].startswith("-"))
        kept.append(at)
        at += 1
    return written.picked(kept, notes)
