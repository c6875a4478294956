"""Wrong usage and bad input: one line that says what is wrong, an exact status, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.running import Place, Word, words_of

USAGE, FAILURE, NOT_FOUND = 2, 1, 3

CASES: list[tuple[str | list[Word], int, str]] = [
    # the shape of the command line
    ("frobnicate", USAGE, "frobnicate"),
    ("diagnos -- llama-server", USAGE, "diagnos"),
    ("diagnose", USAGE, "no llama-server command"),
    ("diagnose --", USAGE, "no llama-server command"),
    ("diagnose llama-server -m MODEL", USAGE, "after --"),
    ("diagnose ./engine", USAGE, "./engine"),
    ("diagnose -m MODEL", USAGE, "-m"),
    ("diagnose -- -- llama-server -m MODEL", USAGE, "`--`"),
    ("diagnose -- --limit 3GiB llama-server -m MODEL", USAGE, "--limit"),
    ("verify", USAGE, "address"),
    ("verify http://127.0.0.1:1 -- llama-server", USAGE, "either"),
    ("verify ftp://127.0.0.1", USAGE, "ftp://127.0.0.1"),
    ("verify http://127.0.0.1:x", USAGE, "127.0.0.1:x"),
    ("explain", USAGE, "LOG"),
    ("history --number 0", USAGE, "--number"),
    ("report", USAGE, "ID"),
    ("report x --format pdf", USAGE, "--format"),
    ("schema", USAGE, "NAME"),
    ("schema nothing", USAGE, "nothing"),
    ("skeleton -o x.gguf", USAGE, "--arch"),
    ("skeleton --arch nothing -o x.gguf", USAGE, "nothing"),
    ("skeleton --arch llama -o x.gguf --set layers", USAGE, "layers"),
    ("skeleton --arch llama -o x.gguf --set nothing=1", USAGE, "nothing"),
    # values
    ("diagnose --limit 3XB -- llama-server -m MODEL", USAGE, "--limit"),
    ("diagnose --limit 0 -- llama-server -m MODEL", USAGE, "--limit"),
    ("diagnose --limit-kind ram -- llama-server -m MODEL", USAGE, "--limit-kind"),
    ("diagnose --max-time never -- llama-server -m MODEL", USAGE, "--max-time"),
    ("diagnose --requests 0 -- llama-server -m MODEL", USAGE, "--requests"),
    # commands that cannot be looked at from here
    ("diagnose -- docker run -it image llama-server -m MODEL", USAGE, "inside a container"),
    ("diagnose -- ssh host llama-server -m MODEL", USAGE, "somewhere else"),
    ("diagnose -- sudo llama-server -m MODEL", USAGE, "as another user"),
    ("diagnose -- llama-server", USAGE, "router"),
    ("diagnose -- llama-server -m MODEL -h", USAGE, "--help"),
    ("diagnose -- llama-server --version", USAGE, "--version"),
    # what is not there
    ("diagnose -- llama-server -m missing.gguf", NOT_FOUND, "missing.gguf"),
    (["diagnose", "--", "llama-server", "-m", b"no-\xff.gguf"], NOT_FOUND, r"no-\udcff.gguf"),
    ("diagnose -- ./no-engine -m MODEL", NOT_FOUND, "./no-engine"),
    ("diagnose --engine no-engine -- llama-server -m MODEL", NOT_FOUND, "no-engine"),
    ("diagnose --from-log no.log -- llama-server -m MODEL", NOT_FOUND, "no.log"),
    ("diagnose --from-log small.log -- llama-server -m MODEL", NOT_FOUND, "no failure"),
    ("verify http://127.0.0.1:1", NOT_FOUND, "refused"),
    ("explain no.log", NOT_FOUND, "no.log"),
    (["explain", b"no-\xff.log"], NOT_FOUND, r"no-\udcff.log"),
    (["explain", "no\n\x1b[31m.log"], NOT_FOUND, r"no\n\x1b[31m.log"),
    ("explain small.log no.log", NOT_FOUND, "no.log"),
    ("history no-such-id", NOT_FOUND, "no records"),
    ("report no-such-id", NOT_FOUND, "no records"),
    ("skeleton --arch llama -o no/x.gguf", NOT_FOUND, "no"),
    # what is there and cannot be used
    ("explain directory", USAGE, "directory"),
    ("explain small.log/x", USAGE, "small.log/x"),
    ("skeleton --arch llama -o directory", USAGE, "directory"),
    ("diagnose -- llama-server -m directory", FAILURE, "is a directory"),
    ("verify -- llama-server -m pipe.gguf", FAILURE, "not a regular file"),
    ("diagnose -- ./plain-file -m MODEL", FAILURE, "permission denied"),
    ("diagnose -- ./directory -m MODEL", FAILURE, "is a directory"),
    ("diagnose -- ./not-a-server -m MODEL", FAILURE, "not a llama-server"),
    ("diagnose --out small.log/out -- llama-server -m MODEL", FAILURE, "small.log/out"),
]


@pytest.fixture
def furnished(place: Place) -> Place:
    (place.root / "directory").mkdir()
    os.mkfifo(place.root / "pipe.gguf")
    (place.root / "plain-file").write_text("just text\n")
    (place.root / "small.log").write_text("main: server is listening on http://127.0.0.1:8080\n")
    script = place.root / "not-a-server"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o755)
    return place


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("command", "status", "names"), CASES, ids=[str(c[0]) for c in CASES])
def test_one_line_says_what_is_wrong(
    furnished: Place, model: Path, command: str | list[Word], status: int, names: str
) -> None:
    words = [str(model) if word == "MODEL" else word for word in words_of(command)]
    said = furnished.run(*words)
    assert said.status == status, said.err
    assert said.out == ""
    assert names in said.only_complaint()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("command", "status", "names"), CASES[::4], ids=[str(c[0]) for c in CASES[::4]]
)
def test_the_same_as_a_document(
    furnished: Place, model: Path, command: str | list[Word], status: int, names: str
) -> None:
    verb, *words = [str(model) if word == "MODEL" else word for word in words_of(command)]
    said = furnished.run(verb, "--json", *words)
    error = said.document("error")["error"]
    assert said.status == status
    assert said.err == ""
    assert names in error["message"]
    assert error["id"]


@pytest.mark.thorough
def test_a_key_typed_in_the_wrong_place_is_not_repeated(place: Place) -> None:
    for command in (
        "diagnose llama-server --api-key planted-key-1 -m x",
        "diagnose -- docker run llama-server --api-key planted-key-1",
        "diagnose -- llama-server --api-key planted-key-1 -m planted-key-1.gguf",
        "verify http://user:planted-key-1@127.0.0.1:1",
        "verify http://127.0.0.1:1/planted-key-1 --api-key planted-key-1",
    ):
        said = place.run(*command.split())
        assert said.status in (USAGE, NOT_FOUND)
        assert "planted-key-1" not in said.out + said.err


def test_arguments_after_two_dashes_belong_to_commands_that_take_no_command(place: Place) -> None:
    (place.root / "-odd.log").write_text("main: server is listening on http://127.0.0.1:8080\n")
    assert place.run("explain", "--", "-odd.log").status == 0


def test_a_home_that_is_a_file_is_no_empty_history(furnished: Place) -> None:
    said = furnished.run("history", env={"ARRIERO_HOME": str(furnished.root / "small.log")})
    assert (said.status, said.out) == (FAILURE, "")
    assert "small.log: it is not a directory" in said.only_complaint()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "words",
    ["gotchas list", "gotchas list --json", "history no-such --json", "--help", "--version"],
)
def test_a_standard_output_that_takes_nothing_is_named(words: str, place: Place) -> None:
    said = place.run(*words.split(), through=["sh", "-c", 'exec "$@" >/dev/full', "sh"])
    assert said.status == FAILURE
    assert "cannot write to standard output: No space left" in said.only_complaint()


@pytest.mark.slow  # an engine gets a minute to answer
def test_an_engine_that_hangs_is_given_up(place: Place, model: Path) -> None:
    script = place.root / "hanging"
    script.write_text("#!/bin/sh\nsleep 600\n")
    script.chmod(0o755)
    said = place.run("diagnose", "--", "./hanging", "-m", model, timeout=800)
    assert said.status == FAILURE
    assert "did not answer" in said.only_complaint()
