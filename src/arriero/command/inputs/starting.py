"""The words before a server in a command: programs that start it, containers, other machines.

Such a program is known by its name. After an unknown program, the words from the last name of a
server on are taken as its command if they look like one, and the doubt is noted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

from arriero.base.errors import UsageError
from arriero.command.flags import builtin_flags, normalise
from arriero.command.inputs.model import given_to_server, is_image, is_server
from arriero.command.place import Around, Place, of_image
from arriero.command.prefix import base_name, read_prefix


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_SCRIPT: Final = re.compile(r"[^/\\]\.(?:sh|bash|dash|ash|zsh|fish|ksh)\Z")
_SYSTEM: Final = re.compile(r"(?:/usr(?:/local)?)?/s?bin/[\w.+-]+\Z")
_BEFORE: Final = re.compile(r"command|builtin|&|call")
_STARTING: Final = _words(
    "exec eval nohup sudo doas time timeout setsid systemd-run su runuser setpriv pkexec "
    "gosu su-exec chpst s6-setuidgid setuidgid sh bash dash zsh fish ksh busybox tmux "
    "screen dtach abduco daemonize daemon start-stop-daemon tini dumb-init catatonit "
    "firejail unbuffer script proxychains proxychains4 torsocks tsocks strace ltrace gdb "
    "lldb perf valgrind heaptrack nsys ncu rocprof rocprofv3 watch entr prlimit cpulimit "
    "cgexec cgclassify gamemoderun gamescope mangohud optirun primusrun prime-run vglrun "
    "xvfb-run dbus-run-session dbus-launch unshare setarch linux64 linux32 arch "
    "caffeinate rlwrap faketime trickle authbind hwloc-bind steam-run nix nix-shell "
    "devbox direnv mise conda mamba micromamba pixi poetry spack module start cmd cmd.exe "
    "powershell powershell.exe pwsh mpirun parallel flock chronic ts"
)
"""Programs that start the rest of their words, or a command in one word, on this machine and with
its installed software."""
_INSIDE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("ssh", "mosh", "autossh"), "on another machine"),
    **dict.fromkeys(("srun", "sbatch", "kubectl", "oc", "k3s"), "on another machine"),
    **dict.fromkeys(("wsl", "wsl.exe"), "in WSL"),
    **dict.fromkeys(("docker", "podman", "nerdctl", "docker-compose", "podman-compose"), "in a"),
    **dict.fromkeys(("lxc", "lxc-attach", "incus", "machinectl", "systemd-nspawn"), "in a"),
    **dict.fromkeys(("toolbox", "distrobox", "distrobox-enter", "apptainer"), "in a"),
    **dict.fromkeys(("singularity", "flatpak", "flatpak-spawn", "ramalama", "nsenter"), "in a"),
    **dict.fromkeys(("chroot", "bwrap", "proot", "fakechroot", "arch-chroot"), "in a root"),
}
"""Programs that start it in a place with other software and devices."""
_WRAPPERS: Final = frozenset(["env", "numactl", "taskset", "nice", "ionice", "chrt", "stdbuf"])
_NO_START: Final = _words(
    "echo printf cat tee less head tail grep egrep rg awk sed pgrep pkill killall kill "
    "which whereis type hash man alias unalias trap test [ [[ cp mv ln install rm ls "
    "chmod chown mkdir touch stat file du git cmake make ninja cargo go pip pip3 apt "
    "apt-get dnf yum pacman brew winget choco systemctl service journalctl rc-service "
    "launchctl supervisorctl loginctl curl wget read export declare local set unset "
    "readonly typeset return if for while case function source . cd pushd popd "
    "notify-send logger say jq"
)
"""Programs that only mention a server."""
_CONTAINERS: Final = frozenset(["docker", "podman", "nerdctl"])
_VERBS: Final = _words(
    "build buildx pull push tag start stop restart rm rmi kill logs inspect ps images image cp "
    "attach stats top port rename update wait save load import export commit login volume network "
    "system pause unpause"
)
"""Subcommands of container programs that start no command from the line."""
_NO_IMAGE: Final = frozenset(
    ["--name", "-v", "--volume", "--mount", "-w", "--workdir", "--network", "--hostname", "-h"]
)
"""Options of ``docker run`` whose values may look like an image's name."""
_RUN_SWITCH: Final = re.compile(
    r"-[ditqPT]+|--(?:rm|init|privileged|detach|interactive|tty|publish-all|read-only|quiet|help"
    r"|no-healthcheck|oom-kill-disable|sig-proxy|replace|tls-verify|no-hosts|rmi|service-ports"
    r"|no-deps|build)"
)
"""Options of ``docker run`` and ``docker exec`` that take no value."""
_VARIABLE_OPTION: Final = re.compile(r"--env=|-e(?=.)")
_GLUED: Final = re.compile(r"--(?:command|entrypoint|exec|startas|run|args)=(?=.)")
_MODEL: Final = frozenset(
    [
        "-m",
        "--model",
        "-hf",
        "-hfr",
        "--hf-repo",
        "-mu",
        "--model-url",
        "-dr",
        "--docker-repo",
        "--models-preset",
        "--models-dir",
    ]
)
_SHARED: Final = _words(
    "--help --version --usage --name --path --host --port --timeout --verbose --offline "
    "--tags --keep --seed --file --log-file --alias --threads --props --slots --metrics "
    "--tools"
)
"""Flags that other programs have too."""


class Filled(NamedTuple):
    """A word with its variables replaced."""

    text: str
    line: int
    place: int
    """Its number among all words of the line."""


@dataclass(frozen=True)
class Behind:
    """The server's command in a line.

    ``before`` are wrappers and assignments to keep; ``words`` begin with the program. With
    ``quoted`` the command is the text of one word instead.
    """

    before: list[Filled] = field(default_factory=list)
    words: list[Filled] = field(default_factory=list)
    quoted: Filled | None = None
    env: dict[str, str] = field(default_factory=dict)
    around: Around = field(default_factory=Around)
    contained: bool = False


def behind(line: Sequence[Filled]) -> Behind | None:
    """The server's command that a line starts; None if it starts none."""
    at = _container(line)
    if at is not None and (verb := _verb(line, at)) in _VERBS | {"run", "create"}:
        return _in_container(line[at:]) if verb in ("run", "create") else None
    candidates = [
        i
        for i, one in enumerate(line)
        if (is_server(one.text) and not _ASSIGNED.match(one.text)) or holds(one.text)
    ]
    if not candidates:
        return None
    first = next((i for i, one in enumerate(line) if is_flag(one.text)), len(line))
    at = max((i for i in candidates if i < first), default=candidates[0])
    starts = next((i for i, one in enumerate(line[:at]) if _starts(one.text)), at)
    if _is_only_named(line, starts, at):
        return None
    before, around = list(line[:starts]), Around()
    if starts < at:
        rest = line[starts + 1 : at]
        own = next((i for i, one in enumerate(rest) if _is_kept(one.text)), len(rest))
        around = Around(place=_place(line[starts:at]))
        before += rest[own:]
    before = [one for one in before if not _BEFORE.fullmatch(base_name(one.text))]
    if not _leads(before):
        if not _is_doubtful(line, at):
            return None
        name = base_name(before[0].text)
        around = replace(around, doubt=f"whether {name} starts what follows it")
        before = []
    if holds(line[at].text):
        return Behind(quoted=line[at], around=around) if starts < at or around.doubt else None
    return Behind(_through(before, line[at]), _program(line, at), around=around)


def _is_only_named(line: Sequence[Filled], starts: int, at: int) -> bool:
    """Whether the started program only mentions the server, as in ``sudo systemctl restart``."""
    if holds(line[at].text) or any(is_flag(one.text) for one in line[at + 1 :]):
        return False
    between = line[starts:at]
    return any(
        base_name(one.text) in _NO_START and not before.text.startswith("-")
        for before, one in pairwise(between)
    )


def _program(line: Sequence[Filled], at: int) -> list[Filled]:
    """The program and its arguments, without the words for its starter."""
    words = list(line[at:])
    text = words[0].text
    if glued := _GLUED.match(text):
        words[0] = words[0]._replace(text=text[glued.end() :])
        if text.startswith("--command=") and words[1:] and not words[1].text.startswith("-"):
            del words[1]  # flatpak's application
    if words[1:] and words[1].text == "--":
        del words[1]
    return words


def _through(before: list[Filled], program: Filled) -> list[Filled]:
    """The wrappers if they are supported, else only the assignments."""
    try:
        read_prefix([*(one.text for one in before), program.text], {})
    except UsageError:
        return [one for one in before if _ASSIGNED.match(one.text)]
    return before


def _is_doubtful(line: Sequence[Filled], at: int) -> bool:
    """Whether the words after an unknown program look like a server's command."""
    named = [one.text for one in line if not _ASSIGNED.match(one.text)]
    if base_name(named[0]) in _NO_START or named[0].startswith("-"):
        return False
    words = line[at].text.split() if holds(line[at].text) else [one.text for one in line[at:]]
    return any(map(is_flag, words))


def behind_words(words: Sequence[str]) -> Behind | None:
    """The same for plain words, which are numbered in order."""
    return behind([Filled(word, 1, i) for i, word in enumerate(words)])


def is_script(word: str) -> bool:
    """Whether a word has the name of a shell script."""
    return _SCRIPT.search(word) is not None


def script_of(words: Sequence[str]) -> str | None:
    """The script that a command starts, or its own program that may be a script.

    None if it starts only a system program, or if the words contain placeholders.
    """
    said = [part for word in words for part in word.split()]
    sourced = {i + 1 for i, word in enumerate(said) if word in ("source", ".")}
    for i, word in enumerate(said):
        if is_script(word) and i not in sourced and not word.startswith("--"):
            return word
    first = next((word for word in words if not _ASSIGNED.match(word)), "")
    own = "/" in first and not first.startswith("-") and not _SYSTEM.match(first)
    return first if own and not _starts(first) and not is_server(first) else None


def is_flag(word: str) -> bool:
    """Whether a word is a flag that llama-server and few other programs have."""
    if word in _MODEL:
        return True
    known = builtin_flags().knows(word)
    return known and (len(word) > 3 if word[:2] != "--" else normalise(word) not in _SHARED)


def holds(text: str) -> bool:
    """Whether a text of several words is a command that names a server."""
    words = text.split()
    at = next((i for i, word in enumerate(words) if is_server(word)), None)
    return len(words) > 1 and at is not None and any(w.startswith("-") for w in words[at:])


def _starts(word: str) -> bool:
    name = base_name(word)
    return name in _STARTING or name in _INSIDE


def _place(starting: Sequence[Filled]) -> Place | None:
    """The place to which the first word leads that leaves this machine or its software."""
    for one in starting:
        name = base_name(one.text)
        if name in _INSIDE:
            where = _INSIDE[name]
            where = f"{where} container" if where == "in a" else where
            where = f"{where} of its own" if where == "in a root" else where
            return Place(f"{name} starts it {where}")
        if name in ("nix", "nix-shell", "steam-run"):
            return Place(f"{name} brings its own engine")
    return None


def _is_kept(word: str) -> bool:
    return base_name(word) in _WRAPPERS or _ASSIGNED.match(word) is not None


def _leads(before: Sequence[Filled]) -> bool:
    """Whether these words can stand before the program: not ``echo``, not ``pkill``."""
    rest = [one.text for one in before if not _ASSIGNED.match(one.text)]
    return not rest or base_name(rest[0]) in _WRAPPERS


# --- containers -----------------------------------------------------------------------------------


def _container(line: Sequence[Filled]) -> int | None:
    """The position of ``docker`` or a similar program, if only its starters stand before it."""
    for i, one in enumerate(line[:8]):
        if base_name(one.text) in _CONTAINERS:
            led = [w.text for w in line[:i]]
            fine = all(_starts(w) or _is_kept(w) or w.startswith("-") for w in led)
            return i if fine or i < 3 else None
    return None


def _verb(line: Sequence[Filled], at: int) -> str:
    rest = [one.text for one in line[at + 1 :]]
    return next((word for word in rest if not word.startswith("-")), "")


def _in_container(words: Sequence[Filled]) -> Behind | None:
    """``docker run … IMAGE args`` → the image's server with its arguments, and ``-e`` variables."""
    env: dict[str, str] = {}
    ports: list[str] = []
    at = next(i for i, one in enumerate(words) if one.text in ("run", "create"))
    entry = ""
    image = None
    i = at + 1
    while i < len(words):
        text = words[i].text
        previous = words[i - 1].text
        glued = _VARIABLE_OPTION.match(text)
        if previous in ("-e", "--env") or glued:
            name, equals, value = text[glued.end() if glued else 0 :].partition("=")
            if equals:
                env[name] = value
        elif previous in ("-p", "--publish"):
            ports.append(text)
        elif text.startswith("--publish=") or re.match(r"-p[\d\[]", text):
            ports.append(text.partition("=")[2] if "=" in text else text[2:])
        elif previous == "--entrypoint" or text.startswith("--entrypoint="):
            entry = text.removeprefix("--entrypoint=")
        elif previous in ("--network", "--net") or re.match(r"--net(work)?=", text):
            if text.rpartition("=")[2] == "host":
                ports.append("host")
        elif is_image(text) and previous not in _NO_IMAGE:
            image = i
            break
        i += 1
    if image is None:
        image = _positional(words, at + 1)
        following = words[image + 1 : image + 2] if image is not None else ()
        if image is None or not (is_server(entry) or any(is_server(w.text) for w in following)):
            return None
    if is_server(words[image].text):  # the program, behind an image called after something else
        image = min(image, _positional(words, at + 1) or image)
    _, line, place = words[image]
    rest = words[image + 1 :]
    others = given_to_server(words[image].text, [one.text for one in rest])
    inside = rest and not is_server(entry) and (is_server(rest[0].text) or others == 1)
    around = Around(place=of_image(words[image].text), published=tuple(ports))
    if rest and not inside and holds(rest[-1].text):  # IMAGE bash -c "llama-server …"
        return Behind(quoted=rest[-1], env=env, around=around)
    if not inside and rest and not rest[0].text.startswith(("-", "$")) and _shown(rest):
        return _with_starter(rest, env, around)
    if others is None and not inside and not is_server(entry) and is_image(words[image].text):
        return None  # it starts llama-cli or another program of the image
    program = Filled("llama-server", line, place)
    return Behind([], [program, *(rest[1:] if inside else rest)], None, env, around, True)


def _shown(rest: Sequence[Filled]) -> bool:
    """Whether a server is named after the program that a container starts."""
    return any(is_server(one.text) for one in rest[1:])


def _with_starter(rest: Sequence[Filled], env: dict[str, str], around: Around) -> Behind | None:
    inner = behind(rest)
    return inner and replace(inner, env=env, around=replace(around, doubt=inner.around.doubt))


def _positional(words: Sequence[Filled], at: int) -> int | None:
    """The first word that is neither an option of ``docker run`` nor the value of one."""
    while at < len(words):
        text = words[at].text
        if not text.startswith("-"):
            return at
        at += 1 if "=" in text or _RUN_SWITCH.fullmatch(text) else 2
    return None
