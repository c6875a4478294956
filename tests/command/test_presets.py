"""Models presets, read as the engine read them: its answers are in ``data/presets.json``.

Each entry is a text and what a router of build 10434 made of it: that it did not start, or the
arguments of each model in ``GET /v1/models``, without address, port and alias.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.command import builtin_flags, parse_command
from arriero.command.inputs import preset
from arriero.command.place import Mark

ANSWERS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "presets.json").read_text("utf-8")
)
TABLE = builtin_flags(10434)
NOT_IN_OLDER = {"removed-10092", "new-key", "before-section-version", "version-2", "version-x"}
"""Texts that builds 10068 and 10092 answer otherwise."""


def marks(text: str, about: str) -> list[Mark]:
    found = (mark for one in preset.read(text, "f") for mark in one.around.marks)
    return list(dict.fromkeys(mark for mark in found if mark.about == about))


@pytest.mark.parametrize("name", ANSWERS)
def test_a_preset_is_what_the_engine_reads(name: str) -> None:
    answer = ANSWERS[name]
    found = preset.read(answer["text"], "f")
    commands = {one.name: parse_command(one.words, TABLE, {}) for one in found}
    unknown = [item.name for command in commands.values() for item in command.unknown]
    refused = marks(answer["text"], "preset")
    assert len(refused) <= 1, "one error says where"
    if answer.get("refused"):
        assert refused or unknown
        return
    assert not refused
    assert not unknown
    engine = {
        model: parse_command(["llama-server", *arguments], TABLE, {}).effective()
        for model, arguments in answer["models"].items()
    }
    assert {model: command.effective() for model, command in commands.items()} == engine


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[m]\n# fine\n  model = a\n", 3, "may not be indented"),
        (
            "[m]\r\nmodel = a\r\nctx-size: 4096\r\n",
            3,
            "write = between a key and its value, not a colon",
        ),
        ("[m]\nmodel = a\n\n--jinja = on\n", 4, "must not begin with dashes"),
        ("[m]\nmodel = a\nmlock\n", 3, "not a key with = and a value"),
        ("[m] extra\nmodel = a\n", 1, "a section must be a name in brackets"),
        ("\ufeff[m]\nmodel = a\n", 1, "byte order mark"),
        ("[m]\nmodel = a\nflash_attn = on\n", 3, "write flash-attn, letter by letter"),
        ("[m]\nmodel = a\n[n]\nmodel = b\nalias = x,m\n", 5, "alias of section n"),
    ],
)
def test_a_refused_file_says_where(text: str, line: int, words: str) -> None:
    (mark,) = marks(text, "preset")
    assert mark.line == line
    assert words in mark.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[m]\nmodel = "/a b.gguf"\n', "the quotes are part of the value"),
        ("[m]\nmodel = /a#b.gguf\n", "model is cut to /a"),
        ('[m]\nmodel = a\nchat-template-kwargs = {"x":"a;b"}\n', 'cut to {"x":"a:'),
        ("[m]\nmodel = a\nmlock = no\n", "mlock = no does not turn it off"),
        ("[m]\nmodel = a\n[m]\nmodel = b\n", "is ignored: this one replaces it"),
    ],
)
def test_what_is_read_otherwise_than_it_looks(text: str, words: str) -> None:
    (mark,) = marks(text, "misread")
    assert words in mark.text


@pytest.mark.parametrize(
    "text",
    [
        "[m]\nmodel = a # the small one\nctx-size = 8192; tokens\n",
        "[m]\nmodel = a\nmlock = off\nno-mmap = true\n",
        "[*]\njinja = true\n[org/m-GGUF:Q8_0]\nctx-size = 512\nmodel = a\n",
    ],
)
def test_what_is_read_as_it_looks(text: str) -> None:
    assert not any(one.around.marks for one in preset.read(text, "f"))


def test_a_section_without_a_model() -> None:
    (mark,) = marks("[a]\nmodel = x\n[d]\nctx-size = 512\n", "model")
    assert (mark.line, mark.mild) == (3, False)
    (mark,) = marks("[org/a-GGUF]\nctx-size = 512\n", "model")
    assert mark.mild, "the router's cache may have it"
    (mark,) = marks("ctx-size = 512\n[a]\nmodel = x\n", "model")
    assert "keys before any section" in mark.text
    assert not marks("[*]\nmodel = x\n[d]\nctx-size = 512\n", "model")


def ask(engine: Path, text: str, directory: Path) -> dict[str, Any]:
    """What a router makes of a preset."""
    file = directory / "p.ini"
    file.write_bytes(text.encode())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words: list[str | Path] = [
        engine,
        "--models-preset",
        file,
        "--port",
        str(port),
        "--no-models-autoload",
    ]
    env = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(engine.parent),
        "HOME": str(directory),
    }
    with subprocess.Popen(
        words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as p:
        try:
            for _ in range(600):
                if p.poll() is not None:
                    return {"refused": True}
                try:
                    url = f"http://127.0.0.1:{port}/v1/models"
                    with urllib.request.urlopen(url, timeout=5) as answer:
                        data = json.load(answer)["data"]
                    return {"models": {m["id"]: _arguments(m["status"]["args"]) for m in data}}
                except OSError:
                    time.sleep(0.05)
        finally:
            p.kill()
    return pytest.fail("the router neither answers nor ends")


def _arguments(words: list[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if word in ("--host", "--port", "--alias"):
            next(rest)
        else:
            kept.append(word)
    return kept


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10092, 10434])
def test_the_engine_still_answers_so(
    build: int, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    for name, answer in ANSWERS.items():
        if build == 10434 or name not in NOT_IN_OLDER:
            again = ask(engine_path(build), answer["text"], tmp_path)
            assert again == {key: answer[key] for key in again}, (name, answer["text"])
            assert not re.search("refused", name) or "refused" in answer
