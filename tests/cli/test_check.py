"""``arriero check`` and ``arriero gotchas`` as commands: output, documents, statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import jsonschema
import psutil
import pytest

from arriero.gotchas.verdicts import own
from tests.cli.running import ARRIERO, Place, schema

BAD = "check --assume-build 10434 -- llama-server -m x.gguf -fa --port 80 --draft-max 3"


def test_findings_for_people(place: Place) -> None:
    said = place.run(*BAD.split())
    assert said.status == 1
    assert max(map(len, said.out.splitlines())) <= 80
    for words in ("flag-value", "because: -fa swallows --port", "FIXED", "NOT CHECKED"):
        assert words in said.out


def test_fix_prints_the_command_and_nothing_else(place: Place) -> None:
    said = place.run(*BAD.replace("check", "check --fix", 1).split())
    assert said.out == "llama-server -m x.gguf -fa on --port 80 --spec-draft-n-max 3\n"
    assert (said.status, said.err) == (1, "")
    again = place.run("check", "--assume-build", "10434", "--fix", "--", *said.out.split())
    assert (again.status, again.out) == (0, said.out)


def test_the_document(place: Place) -> None:
    said = place.run(*BAD.replace("check", "check --json", 1).split())
    document = said.document("check")
    assert said.status == 1
    errors = {f["id"] for f in document["findings"] if f["severity"] == "error"}
    assert errors == {"flag-value", "flag-renamed"}


def test_a_file_of_several_commands(place: Place) -> None:
    script = place.root / "two.sh"
    script.write_text("llama-server -m a.gguf -fa --jinja\nllama-server -m b.gguf\n")
    said = place.run("check", "--json", "--assume-build", "10434", str(script))
    first, second = said.document("checks")["checks"]
    assert said.status == 1
    assert first["findings"][0]["where"] == f"{script}:1"
    assert second["where"] == f"{script}:2"
    assert "error" not in {f["severity"] for f in second["findings"]}
    fixed = place.run("check", "--fix", "--assume-build", "10434", str(script)).out
    assert fixed == "llama-server -m a.gguf -fa on --jinja\nllama-server -m b.gguf\n"


def test_a_repair_keeps_the_spelling_of_what_it_leaves_alone(place: Place) -> None:
    script = place.root / "a.sh"
    script.write_text(
        "ARGS=(--jinja -np 2k)\n"
        'exec llama-server -m "$MODEL" --port ${PORT:-8080} -c 64k "${ARGS[@]}" "$@" >$LOG\n'
    )
    fix = ("check", "--fix", "--assume-build", "10434")
    said = place.run(*fix, str(script))
    fixed = 'exec llama-server -m "$MODEL" --port ${PORT:-8080} -c 65536'
    assert said.out == f'{fixed} "${{ARGS[@]}}" "$@" >$LOG\n'
    assert said.err == ""
    script.write_text(script.read_text().replace("-np 2k", "-c 64k"))
    said = place.run(*fix, str(script))
    # The flag in the array is given twice then: the first of the two goes.
    assert said.out == f'{fixed[:-9]} --jinja -c 65536 "$@" >$LOG\n'
    assert '"${ARGS[@]}" is written out' in said.only_complaint()
    document = place.run("check", "--json", *fix[2:], str(script)).document("check")
    assert " ".join(document["spelled"]) == said.out.strip()
    assert "8080" in document["fixed_argv"]
    assert "$@" not in document["fixed_argv"]
    shown = place.run("check", *fix[2:], str(script)).out
    assert '--jinja -c 65536 "$@" >$LOG' in " ".join(shown.replace("\\\n", "").split())
    typed = 'llama-server -m "$MODEL" --port ${PORT:-8080} -c 64k "$@"'
    said = place.run(*fix, "--", "sh", "-c", typed)
    assert said.out == typed.replace("64k", "65536") + "\n"
    assert "the command in quotes is printed alone" in said.only_complaint()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("check", 2, "either a file"),
        ("check x.sh -- llama-server", 2, "either a file"),
        ("check --", 2, "no llama-server command"),
        ("check no.sh", 3, "no.sh"),
        ("check llama-server -m x.gguf", 2, "after --"),
        ("check --budget lots -- llama-server", 2, "--budget"),
        ("check --engine no-engine -- llama-server -m x", 3, "no-engine"),
        ("check --engine e --assume-build 1 -- llama-server", 2, "not both"),
        ("gotchas frobnicate", 2, "frobnicate"),
        ("gotchas list x", 2, "list takes no ID"),
        ("gotchas show", 2, "show takes one ID"),
        ("gotchas show nothing", 3, "nothing"),
        ("gotchas verify nothing", 3, "nothing"),
        ("gotchas verify --engine no-engine", 3, "no-engine"),
    ],
)
def test_misuse(words: str, status: int, says: str, place: Place) -> None:
    said = place.run(*words.split())
    assert (said.status, said.out) == (status, "")
    assert says in said.only_complaint()


def test_gotchas_are_listed_and_shown(place: Place) -> None:
    listed = place.run("gotchas", "list")
    shown = place.run("gotchas", "show", "rs-alloc-slots")
    assert "rpc-prompt-cache-abort" in listed.out
    assert max(map(len, (listed.out + shown.out).splitlines())) <= 80
    for heading in ("SYMPTOM", "ROOT CAUSE", "WORKAROUND", "BETTER FIX", "10434"):
        assert heading in shown.out
    document = place.run("gotchas", "list", "--json").document("gotchas")
    assert {g["id"]: g["status"] for g in document["gotchas"]}["rs-alloc-slots"] == "reproduced"
    one = place.run("gotchas", "show", "rs-alloc-slots", "--json").document("gotcha")
    assert {v["build"] for v in one["verdicts"]} >= {10068, 10092, 10434}


@pytest.mark.engine
def test_verdicts_are_kept(place: Place) -> None:
    out = place.root / "verdicts"
    words = ("gotchas", "verify", "flag-unknown", "--json", "--out", str(out))
    document = place.run(*words, "--engine", str(place.engine)).document("verdicts")
    (verdict,) = document["verdicts"]
    assert (verdict["gotcha"], verdict["verdict"]) == ("flag-unknown", "reproduced")
    assert document["build"] == verdict["build"]
    assert [path.name for path in out.iterdir()] == ["flag-unknown.json"]


@pytest.mark.engine
def test_a_place_for_verdicts_that_cannot_be_is_told_before_anything_runs(place: Place) -> None:
    (place.root / "file").touch()
    said = place.run("gotchas", "verify", "flag-unknown", "--out", str(place.root / "file" / "x"))
    assert (said.status, said.out) == (1, "")
    assert "cannot create" in said.only_complaint()


@pytest.mark.engine
def test_what_cannot_run_says_why(place: Place) -> None:
    hidden = dict.fromkeys(("VK_ICD_FILENAMES", "VK_DRIVER_FILES"), "/nonexistent")
    words = ("gotchas", "verify", "vulkan-tensor-limit", "--out", str(place.root / "verdicts"))
    said = place.run(*words, env=hidden)
    assert said.status == 1
    assert "COULD NOT RUN" in said.out
    assert "there is no Vulkan device" in said.out


@pytest.mark.engine
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a POSIX signal here")
def test_an_interruption_keeps_what_was_known_and_leaves_nothing_running(place: Place) -> None:
    out = place.root / "verdicts"
    words = ["gotchas", "verify", "flag-unknown", "context-grows-with-slots", "--json"]
    with subprocess.Popen(
        [*ARRIERO, *words, "--out", str(out)], env=place.environment(), cwd=place.root,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if b"context-grows-with-slots" in line:
                break
        process.send_signal(signal.SIGINT)
        told, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"interrupted" in complaint
    document = json.loads(told)
    jsonschema.validate(document, schema("verdicts"))
    assert document["complete"] is False
    assert [v["gotcha"] for v in document["verdicts"]] == ["flag-unknown"]
    assert [path.name for path in out.iterdir()] == ["flag-unknown.json"]
    assert own(out)[0].verdict == "reproduced"
    assert list(place.scratch.iterdir()) == []
    words_of_all = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert not [words for words in words_of_all if str(place.scratch) in words]
