"""The words before the program: assignments, and wrappers that replace themselves by it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Final

from arriero.base.errors import UsageError

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Prefix:
    """The words before the program.

    ``assignments`` is the number of leading ``VAR=value`` words, ``length`` the number of all words
    before the program, ``assigned`` the positions of every assignment, those given to ``env``
    included.
    """

    assignments: int
    length: int
    assigned: tuple[int, ...]
    environ: Mapping[str, str] = field(repr=False)
    """The environment that the program sees."""


@dataclass(frozen=True)
class _Wrapper:
    """Options of a program that replaces itself by the command that it is given.

    ``valued`` options have a value: attached, after ``=``, or as the next word. Any other option
    makes the program do something else, so it is refused.
    """

    switches: frozenset[str]
    valued: frozenset[str]
    positionals: int = 0


def _wrapper(switches: str, valued: str, positionals: int = 0) -> _Wrapper:
    return _Wrapper(frozenset(switches.split()), frozenset(valued.split()), positionals)


_WRAPPERS: Final[Mapping[str, _Wrapper]] = {
    "env": _wrapper("- -i --ignore-environment", "-u --unset"),
    "numactl": _wrapper(
        "-l --localalloc -a --all -b --balancing -t --strict",
        "-i --interleave -w --weighted-interleave -N --cpunodebind -C --physcpubind -m --membind"
        " -p --preferred -P --preferred-many -c --cpubind",
    ),
    "taskset": _wrapper("-a --all-tasks -c --cpu-list", "", 1),
    "nice": _wrapper("", "-n --adjustment"),
    "ionice": _wrapper("-t --ignore", "-c --class -n --classdata"),
    "chrt": _wrapper(
        "-a -b --batch -f --fifo -i --idle -o --other -r --rr -R --reset-on-fork -v --verbose",
        "",
        1,
    ),
    "stdbuf": _wrapper("", "-i --input -o --output -e --error"),
}

_EMULATOR: Final = _wrapper(
    "-strace -singlestep -one-insn-per-tb",
    "-cpu -L -s -E -U -0 -r -B -R -p -seed -g -d -dfilter -D -plugin",
)
"""qemu's user mode: it runs one program as on another CPU. Options have one dash or two."""
_EMULATOR_NAME: Final = re.compile(r"qemu-(?!system)[a-z0-9_]+(?:-static)?\Z")

_REASONS: Final = (
    (
        "docker podman nerdctl kubectl lxc apptainer singularity toolbox distrobox flatpak",
        "the server would run inside a container, where its memory and processes cannot be seen",
        "run arriero inside the container, or give the llama-server command itself",
    ),
    (
        "ssh mosh srun sbatch wsl wsl.exe",
        "the server would run somewhere else",
        "run arriero there",
    ),
    (
        "sudo doas su runuser pkexec",
        "the server would run as another user, and arriero could not end it",
        "run arriero itself as that user",
    ),
    (
        "sh bash zsh fish dash ksh busybox pwsh powershell powershell.exe cmd cmd.exe",
        "a shell stands between arriero and the server",
        "give the llama-server command itself",
    ),
    (
        "nohup setsid systemd-run screen tmux daemonize start-stop-daemon disown at batch",
        "the server would detach and be left behind",
        "leave it out: arriero watches the server and ends it",
    ),
    (
        "llama-swap ollama lms llama llamafile koboldcpp local-ai",
        "it is not llama-server",
        "give the llama-server command that it starts, or its log to `arriero explain`",
    ),
    (
        "python python3 uv uvx pipx npx node",
        "it is not llama-server",
        "give the llama-server command itself",
    ),
    (
        "cd export source . exec command eval ulimit unset set alias",
        "it is a command of the shell, not a program",
        "run it in your shell first, then give the llama-server command",
    ),
    (
        "time timeout watch xargs strace gdb valgrind perf prlimit setarch chroot cgexec unbuffer",
        "it stands between arriero and the server",
        "leave it out; only these wrappers are supported: " + ", ".join(_WRAPPERS),
    ),
)
_REFUSED: Final = {name: (why, hint) for names, why, hint in _REASONS for name in names.split()}


def read_prefix(words: Sequence[str], environ: Mapping[str, str]) -> Prefix:
    """Find the program among the words, and the environment that it will see.

    Raises:
        UsageError: There is no program, or an unsupported wrapper stands before it.
    """
    seen = dict(environ)
    assigned: list[int] = []
    at = _assignments(words, 0, seen, assigned)
    leading = at
    while at < len(words) and (wrapper := _wrapper_of(base_name(words[at]))):
        name = base_name(words[at])
        at = _skip_options(words, at + 1, name, wrapper, seen)
        if name == "env":
            at = _assignments(words, at, seen, assigned)
        at += wrapper.positionals
    if at >= len(words):
        raise UsageError(
            "there is no program in the command" if words else "the command is empty",
            hint="write it as you would start it: llama-server -m model.gguf",
        )
    _refuse(words, at)
    return Prefix(leading, at, tuple(assigned), seen)


def is_emulator(word: str) -> bool:
    """Whether a word names qemu's user mode, which runs one program as on another CPU."""
    return _EMULATOR_NAME.match(base_name(word)) is not None


def _wrapper_of(name: str) -> _Wrapper | None:
    return _EMULATOR if is_emulator(name) else _WRAPPERS.get(name)


def base_name(word: str) -> str:
    """The file name of a program on any system."""
    return PurePosixPath(PureWindowsPath(word).name).name


def _assignments(words: Sequence[str], at: int, seen: dict[str, str], assigned: list[int]) -> int:
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        name, _, value = words[at].partition("=")
        seen[name] = value
        assigned.append(at)
        at += 1
    return at


def _skip_options(
    words: Sequence[str], at: int, name: str, wrapper: _Wrapper, seen: dict[str, str]
) -> int:
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word == "--":
            return at + 1
        option, glued, value = _split_option(word, wrapper)
        if option in wrapper.valued:
            if not glued:
                at += 1
                value = words[at] if at < len(words) else ""
        elif option not in wrapper.switches and not (name == "nice" and word[1:].isdigit()):
            raise UsageError(
                f"arriero does not support `{name} {word}` before the command",
                hint=f"leave out `{name}`, or that option",
                id="wrapper-refused",
            )
        if name == "env":
            if option in ("-u", "--unset"):
                seen.pop(value, None)
            else:
                seen.clear()
        elif wrapper is _EMULATOR and option in ("-E", "-U"):
            seen.pop(value, None)
            if option == "-E" and "=" in value:
                variable, _, seen_as = value.partition("=")
                seen[variable] = seen_as
        at += 1
    return at


def _split_option(word: str, wrapper: _Wrapper) -> tuple[str, bool, str]:
    """An option's name, whether its value is attached to it, and that value."""
    if wrapper is _EMULATOR:
        return word.replace("--", "-", 1), False, ""
    if word.startswith("--"):
        option, glued, value = word.partition("=")
        return option, bool(glued), value
    if word[:2] in wrapper.valued and len(word) > 2:
        return word[:2], True, word[2:].removeprefix("=")
    if len(word) > 2 and all(f"-{letter}" in wrapper.switches for letter in word[1:]):
        return word[:2], False, ""
    return word, False, ""


def _refuse(words: Sequence[str], at: int) -> None:
    name = base_name(words[at])
    if name in _REFUSED:
        why, hint = _REFUSED[name]
        raise UsageError(
            f"cannot run the server through `{name}`: {why}", hint=hint, id="wrapper-refused"
        )
    if "llama" in name:
        return
    for word in words[at + 1 :]:
        if base_name(word) in ("llama-server", "llama-server.exe"):
            raise UsageError(
                f"arriero does not know `{name}` in front of {word}",
                hint=f"give the command from {word} on",
                id="wrapper-refused",
            )
