"""``arriero plan`` as people type it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.running import ARRIERO, Place, Word, words_of

USAGE, FAILURE, NOT_FOUND = 2, 1, 3

MISUSE: list[tuple[str | list[Word], int, str]] = [
    ("plan", USAGE, "no model given"),
    ("plan --json-schema {} -c 4096", USAGE, "no model given"),
    ("plan --", USAGE, "no command given"),
    ("plan -- llama-server", USAGE, "router"),
    ("plan MODEL other.gguf", USAGE, "other.gguf"),
    ("plan MODEL -- -c 4096", USAGE, "MODEL"),
    ("plan MODEL --ctx-sise 4096", USAGE, "--ctx-sise"),
    ("plan MODEL -c", USAGE, "-c needs a value"),
    ("plan MODEL -c many", USAGE, "-c cannot be 'many'"),
    ("plan MODEL -c 99999999999", USAGE, "-c"),
    ("plan MODEL -ngl some", USAGE, "-ngl"),
    ("plan MODEL -ctk q9_0", USAGE, "-ctk"),
    ("plan MODEL -fa perhaps", USAGE, "perhaps"),
    ("plan MODEL -sm diagonal", USAGE, "diagonal"),
    ("plan MODEL -dev CUDA9", USAGE, "CUDA9"),
    ("plan MODEL -ot (=CPU", USAGE, "regular expression"),
    ("plan MODEL --version", USAGE, "--version"),
    ("plan MODEL --budget CUDA0", USAGE, "--budget"),
    ("plan MODEL --budget=host=1GiB,host=2GiB", USAGE, "twice"),
    ("plan MODEL --assume-build x", USAGE, "--assume-build"),
    ("plan MODEL --assume-build 10434 --engine x", USAGE, "not both"),
    ("plan MODEL --budget", USAGE, "--budget"),
    ("plan --gpt-oss-20b-default", USAGE, "--gpt-oss-20b-default"),
    ("plan -- docker run -it image llama-server -m MODEL", USAGE, "inside a container"),
    ("plan missing.gguf", NOT_FOUND, "missing.gguf"),
    (["plan", b"no-\xff.gguf"], NOT_FOUND, r"no-\udcff.gguf"),
    ("plan MODEL -md missing.gguf", NOT_FOUND, "missing.gguf"),
    ("plan MODEL --mmproj missing.gguf", NOT_FOUND, "missing.gguf"),
    ("plan MODEL --engine no-engine", NOT_FOUND, "no-engine"),
    ("plan -- ./no-engine -m MODEL", NOT_FOUND, "./no-engine"),
    ("plan .", FAILURE, "directory"),
    ("plan MODEL --out MODEL/out", FAILURE, "/out"),
]


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("command", "status", "names"), MISUSE, ids=[str(c[0]) for c in MISUSE])
def test_one_line_says_what_is_wrong(
    place: Place, model: Path, command: str | list[Word], status: int, names: str
) -> None:
    words = [
        word.replace("MODEL", str(model)) if isinstance(word, str) else word
        for word in words_of(command)
    ]
    said = place.run(*words, env={"LLAMA_ARG_MODEL": ""})
    assert said.status == status, said.err
    assert said.out == ""
    assert names.replace("MODEL", str(model)) in said.only_complaint()


def test_the_nearest_option_is_named(place: Place, model: Path) -> None:
    said = place.run("plan", model, "--ctx-sise", "4096", "--json")
    error = said.document("error")["error"]
    assert (error["id"], error["hint"]) == ("flag-unknown", "did you mean --ctx-size?")
    assert said.err == ""


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("url", "status", "names"),
    [
        ("ftp://127.0.0.1/x.gguf", USAGE, "ftp://"),
        ("http://127.0.0.1:1/x.gguf", FAILURE, "http://127.0.0.1:1/x.gguf"),
        ("hf://nothing", USAGE, "hf://nothing"),
    ],
)
def test_addresses_that_cannot_be_read(place: Place, url: str, status: int, names: str) -> None:
    said = place.run("plan", url)
    reading, complaint, hint = said.err.splitlines()
    assert said.status == status
    assert "reading the header" in reading
    assert names in complaint
    assert hint.startswith("  try: ")


FORMS = [
    "plan --json MODEL -c 4096 -np 2 --budget host=64GiB",
    "plan -c 4096 --budget=host=64GiB -np 2 MODEL --json",
    "plan --budget host=64GiB --json llama-server -m MODEL -c 4096 -np 2",
    "plan --budget host=64GiB --json -- llama-server -m MODEL -c 4096 -np 2",
]


def test_all_ways_to_say_it_are_one_plan(place: Place, model: Path) -> None:
    plans = []
    for form in FORMS:
        words = [str(model) if word == "MODEL" else word for word in form.split()]
        said = place.run("plan", "--assume-build", "10434", *words[1:])
        assert (said.status, said.err) == (0, "")
        found = said.document("plan")
        plans.append((found["context"], found["buffers"], found["pools"], found["fits"]))
        assert sorted(found["argv"]) == sorted(
            ["llama-server", "-m", str(model), "-c", "4096", "-np", "2"]
        )
    assert all(found == plans[0] for found in plans)
    assert plans[0][3] is True


@pytest.mark.engine
def test_the_engine_is_asked_and_the_contract_is_kept(place: Place, model: Path) -> None:
    said = place.run("plan", model, "-c", "4096", "-np", "3", "--json")
    found = said.document("plan")
    assert found["schema"] == "arriero.plan/1"
    assert found["build"] == 10434
    assert found["engine"]["path"] == str(place.engine)
    methods = {b["component"]: b["method"] for b in found["buffers"]}
    assert methods["kv"] == methods["rs"] == "exact"
    assert methods["compute"] == "measured"
    assert (found["context"]["n_ctx"], found["context"]["n_ctx_seq"]) == (4608, 1536)
    for pool in found["pools"]:
        assert {"name", "devices", "total", "free", "limited_by", "planned"} <= set(pool)
        assert {"margin", "headroom", "fits"} <= set(pool)


def test_what_does_not_start_is_status_1(place: Place, model: Path) -> None:
    words = ("plan", model, "-c", "4096", "--budget", "host=2MiB", "--assume-build", "10434")
    found = (said := place.run(*words, "--json")).document("plan")
    assert said.status == 1
    assert (found["fits"], found["starts"]) == (False, False)
    (pool,) = found["pools"]
    assert (pool["starts"], pool["surely"] > pool["free"]) == (False, True)
    text = place.run(*words)
    assert text.status == 1
    assert "DOES NOT FIT" in text.out


def test_what_can_outgrow_is_status_0_with_advice(place: Place, model: Path) -> None:
    words = ("plan", model, "-c", "4096", "--budget", "host=1GiB", "--assume-build", "10434")
    found = (said := place.run(*words, "--json")).document("plan")
    assert said.status == 0
    assert (found["fits"], found["starts"], found["outgrows"]) == (None, True, True)
    (grown,) = (one for one in found["pools"][0]["growth"] if one["component"] == "prompt_cache")
    assert (grown["flag"], grown["enough"] > 1) == ("-cram", True)
    (best,) = (one for one in found["advice"] if one["recommended"])
    assert {"change", "cost", "saves", "argv", "headroom", "fits"} <= set(best)
    again = place.run(
        "plan", "--json", "--budget", "host=1GiB", "--assume-build", "10434", "--", *best["argv"]
    )
    assert (again.status, again.document("plan")["fits"]) == (0, True)
    text = place.run(*words)
    assert text.status == 0
    assert "STARTS, CAN OUTGROW" in text.out
    assert "saved prompts of 4096 tokens (-cram caps it)" in " ".join(text.out.split())
    assert best["change"] in text.out
    assert max(map(len, text.out.splitlines())) <= 80


def test_the_frontier_of_slots(place: Place, model: Path) -> None:
    words = ("plan", model, "-np", "4", "--frontier", "--budget", "host=1GiB", "-cram", "0")
    said = place.run(*words, "--assume-build", "10434", "--json")
    points = said.document("plan")["frontier"]
    assert [point["n_seq_max"] for point in points] == [1, 2, 4]
    assert "4 slots" in said.err


def test_a_plan_is_in_the_history_and_can_be_shared(place: Place, model: Path) -> None:
    out = place.root / "out"
    key = "planted-key-1"
    said = place.run(
        "plan", model, "-c", "4096", "--api-key", key, "--out", out, "--assume-build", "10434"
    )
    assert said.status == 0, said.err
    (record,) = out.glob("*.json")
    written = sorted(path.name for path in out.iterdir())
    assert written == [f"{record.stem}.html", f"{record.stem}.json", f"{record.stem}.md"]
    for path in out.iterdir():
        assert key not in path.read_text()
        assert str(model.parent) not in path.read_text()
    assert key not in said.out + said.err
    shown = place.run("history", record.stem)
    assert shown.out == said.out
    assert "tiny.gguf; plan: fits" in place.run("history").out
    assert place.run("report", record.stem, "--format", "html").out.startswith("<!doctype html>")
    refused = place.run("report", record.stem, "--format", "upstream")
    assert (refused.status, "no upstream report" in refused.err) == (USAGE, True)


def test_a_reader_that_has_gone_changes_nothing(place: Place, model: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*ARRIERO, "plan", str(model), "--assume-build", "10434", "--json"],
        env=place.environment(), cwd=place.root, stdout=writer, stderr=subprocess.PIPE,
        timeout=600, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.engine
def test_interrupted_it_still_gives_the_plan(place: Place, model: Path) -> None:
    with subprocess.Popen(
        [*ARRIERO, "plan", str(model), "--frontier", "--json", "-cram", "0", "-ctxcp", "0"],
        env=place.environment(), cwd=place.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        # the frontier has begun
        assert b"1 slot " in process.stderr.readline()
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    found = json.loads(out)
    assert process.returncode == 130
    assert (found["complete"], found["frontier"]) == (False, [])
    assert b"interrupted" in err
    assert list(place.scratch.iterdir()) == []
