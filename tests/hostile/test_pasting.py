"""What is printed for pasting passes its words on, in every shell, and runs nothing of them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from arriero.base import paste
from arriero.command import Command, builtin_flags, parse_command
from arriero.command.inputs import command_behind, read_commands
from arriero.command.spelling import respelled
from tests.hostile.words import PAYLOAD, nasty

FLAGS = builtin_flags(10434)
SHELLS = [shell for shell in ("bash", "dash", "sh", "zsh", "fish") if shutil.which(shell)]
"""At least ``sh``: what a machine has beside it is tried too."""
RECORDER = """#!/bin/sh
for word do printf '%s\\0' "$word"; done >>"$RECORD"
printf '\\1' >>"$RECORD"
"""


def given(lines: Sequence[str], shell: str, place: Path) -> list[list[bytes]]:
    """The arguments that each line's llama-server gets where a shell runs the lines."""
    tools, record = place / "bin", place / "record"
    if not tools.exists():
        tools.mkdir()
        (tools / "llama-server").write_text(RECORDER)
        (tools / "llama-server").chmod(0o755)
    record.write_bytes(b"")
    script = place / "pasted"
    script.write_bytes(os.fsencode("".join(f"{line}\n" for line in lines)))
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}", "RECORD": str(record), "HOME": str(place),
        "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    subprocess.run([shell, str(script)], env=env, cwd=place, check=True, capture_output=True)
    assert not (place / PAYLOAD).exists(), f"{shell} ran what a word holds"
    return [one.split(b"\0")[:-1] for one in record.read_bytes().split(b"\1")[:-1]]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_word_is_a_word_in_every_shell(shell: str, tmp_path: Path) -> None:
    words = nasty(300, seed=1)
    lines = [f"llama-server {paste.join(words[at : at + 10])}" for at in range(0, 300, 10)]
    assert all(
        char == " " or char.isprintable() for line in lines for char in line.replace("\n", "")
    )
    passed = [os.fsdecode(word) for line in given(lines, shell, tmp_path) for word in line]
    assert passed == words


# --- files --------------------------------------------------------------------------------------


def compose(words: Sequence[str]) -> str:
    text = ", ".join(json.dumps(word.replace("$", "$$")) for word in words)
    return f"services:\n  a:\n    image: llama.cpp:server\n    command: [{text}]\n"


def compose_line(words: Sequence[str]) -> str:
    line = " ".join(f"'{word}'" for word in words)
    return f"services:\n  a:\n    image: llama.cpp:server\n    command: {json.dumps(line)}\n"


def swap(words: Sequence[str]) -> str:
    line = "llama-server " + " ".join(f"'{word}'" for word in words)
    return f"models:\n  m:\n    cmd: {json.dumps(line)}\n"


def array(words: Sequence[str]) -> str:
    return json.dumps(["llama-server", *words])


def script(words: Sequence[str]) -> str:
    return "llama-server " + " ".join(f"'{word}'" for word in words) + "\n"


def unit(words: Sequence[str]) -> str:
    line = " ".join(f"'{word}'" for word in words)
    return f"[Service]\nExecStart=/usr/bin/llama-server {line}\n"


def kubernetes(words: Sequence[str]) -> str:
    text = ", ".join(json.dumps(word.replace("$", "$$")) for word in words)
    spec = f'{{"containers": [{{"image": "llama.cpp:server", "args": [{text}]}}]}}'
    return f"apiVersion: v1\nkind: Pod\nspec: {spec}\n"


def dockerfile(words: Sequence[str]) -> str:
    return f"FROM llama.cpp:server\nCMD {json.dumps(list(words))}\n"


FORMS: dict[str, tuple[str, Callable[[Sequence[str]], str], str]] = {
    "compose, a list": ("a.yml", compose, ""),
    "compose, a line": ("a.yml", compose_line, "'$\n\\"),
    "llama-swap": ("a.yaml", swap, "'\n\\"),
    "an array": ("a.json", array, ""),
    "a script": ("a.sh", script, "'"),
    "a unit": ("a.service", unit, "'\n\r\\$%"),
    "a manifest": ("pod.yaml", kubernetes, ""),
    "a Dockerfile": ("Dockerfile", dockerfile, "\n"),
}
"""Name of the file, how it is written, and characters that it cannot have in single quotes."""


def fixed(path: Path) -> tuple[Command, str]:
    (written,) = read_commands(path, FLAGS)
    command = parse_command(written.words, FLAGS, written.env).with_value("-c", "65536")
    spelled, _ = respelled(command, written, lambda text: text)
    return command, " ".join(spelled)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("form", FORMS)
def test_a_fixed_command_of_a_file(form: str, tmp_path: Path) -> None:
    name, write, without = FORMS[form]
    lines, expected = [], []
    for at, word in enumerate(nasty(200, seed=2, without=without)):
        if "${" in word and form == "llama-swap":
            continue  # a macro of its own
        path = tmp_path / str(at) / name
        path.parent.mkdir()
        path.write_text(write(["-m", "m.gguf", "-c", "64k", "-a", word]), newline="")
        command, line = fixed(path)
        assert word in command.words, (word, command.words)
        lines.append(line.replace("/usr/bin/llama-server", "llama-server"))
        expected.append([os.fsencode(one) for one in command.words[1:]])
    for shell in SHELLS:
        assert given(lines, shell, tmp_path) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_given_as_words(shell: str, tmp_path: Path) -> None:
    lines, expected = [], []
    for word in nasty(100, seed=3):
        command = parse_command(["llama-server", "-m", "m.gguf", "-a", word], FLAGS, {})
        spelled, _ = respelled(command, None, lambda text: text)
        lines.append(" ".join(spelled))
        expected.append([os.fsencode(one) for one in command.words[1:]])
    assert given(lines, shell, tmp_path) == expected


def test_what_starts_a_command_is_quoted_too() -> None:
    words = ["env", f"X=$(touch {PAYLOAD})", "llama-server", "-m", "m", "-c", "64k"]
    written = command_behind(words, FLAGS)
    assert written is not None
    command = parse_command(written.words, FLAGS, {}).with_value("-c", "65536")
    spelled, _ = respelled(command, written, lambda text: text)
    assert shlex.split(" ".join(spelled)) == [*words[:-1], "65536"]
    assert f"'X=$(touch {PAYLOAD})'" in spelled


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("llama-server -m a; rm x", "the command after ; is"),
        ("llama-server -m a && rm x", "the command after && is"),
        ("llama-server -m a | tee log", "the command after | is"),
        ("llama-server -m a & wait", "the command after & is"),
        ("llama-server -m a -t $(nproc)", "$(nproc) is the script's own"),
        ("llama-server -m a -t `nproc`", "`nproc` is the script's own"),
        ("llama-server -m a --api-key abcdefgh", "set LLAMA_API_KEY to it"),
    ],
)
def test_nothing_is_left_out_or_run_in_silence(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(f"{line}\n")
    (written,) = read_commands(path, FLAGS)
    command = parse_command(written.words, FLAGS, {})
    _, notes = respelled(command, written, lambda text: text)
    assert any(told in note for note in notes), notes


@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m a", "llama-server -m a;", "llama-server -m a &",
        "if x; then llama-server -m a; fi", "llama-server -m a &\n", "(llama-server -m a)",
    ],
)  # fmt: skip
def test_an_end_is_nothing_left_out(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(text)
    (written,) = read_commands(path, FLAGS)
    assert written.unkept == ()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("${KEY:-EMPTY}", '"${KEY:-EMPTY}"'),
        ('"$KEY"', '"$KEY"'),
        ("/m/${A}-${B:-b}.gguf", '"/m/${A}-${B:-b}.gguf"'),
        ("plain", None),
        ("$(x)", None),
        ("`x`$IFS", None),
        ("${A:-$(x)}", None),
        ("${A:-`x`}", None),
        ("${A}\x1b", None),
        ("${A}\n", None),
        ("${A}'", None),
        ("$1", None),
        ("${A:=b}", None),
        ("${é}", None),
    ],
)
def test_only_names_of_variables_are_left_to_a_shell(text: str, shown: str | None) -> None:
    assert paste.referring(text) == shown
