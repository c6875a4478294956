"""Checks of commands and of files, with an engine and without."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.base.errors import NotFoundError, UsageError
from arriero.engine import find_engine
from arriero.gguf import write_model
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.jobs.check import CheckOptions, check, check_file, fixed_lines, worst
from arriero.memory import parse_pools
from arriero.record import Check, Checks, Finding, decode, encode
from tests.provoked.provoking import worker

INPUTS = Path(__file__).parent.parent / "command" / "data" / "inputs"
BUILD = CheckOptions(assume_build=10434)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRIERO_HOME", str(tmp_path / "home"))


def one(found: Check, name: str) -> Finding:
    """The one finding of a gotcha; there may be others, of other gotchas."""
    (finding,) = [f for f in found.findings if f.id == name]
    return finding


def errors(found: Check) -> list[Finding]:
    return [f for f in found.findings if f.severity == "error"]


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("subprocess.Popen", refuse)


@pytest.mark.usefixtures("nothing_starts")
def test_the_two_original_cases_without_an_engine(tmp_path: Path) -> None:
    hybrid = write_model(tmp_path / "h.gguf", LADDER_HYBRID, weights="zeros")
    budget = CheckOptions(assume_build=10434, budget=parse_pools("host=3GiB"))
    first = check(["llama-server", "-m", str(hybrid), "-c", "65536", "-np", "64"], budget)
    finding = one(first, "rs-alloc-slots")
    assert (finding.severity, finding.applies) == ("error", "yes")
    assert finding.fixed_argv == ("llama-server", "-m", str(hybrid), "-c", "65536", "-np", "16")
    assert first.fixed_argv is not None
    assert {f.id for f in first.later} <= {f.id for f in first.findings}, "of the same gotcha"
    assert "checkpoints" in first.later[0].because
    again = check(first.fixed_argv, budget)
    assert (errors(again), again.fixed_argv) == ([], None)

    words = (
        "llama-server -m M --rpc 127.0.0.1:50052,127.0.0.1:50053 --tensor-split 45,40,15 -ngl 999"
        " --split-mode layer -fit off -c 65536"
    )
    second = check(words.split(), BUILD)
    finding = one(second, "rpc-prompt-cache-abort")
    assert (finding.severity, finding.applies, finding.status) == ("warning", "maybe", "reproduced")
    assert finding.missing
    assert finding.builds == (10068, 10092, 10434)
    assert fixed_lines(second) == (f"{words} -cram 0",)
    assert any("M" in note for note in second.notes)


def test_the_document_is_that_of_the_contract() -> None:
    found = check(["llama-server", "-m", "M", "-fa", "--jinja", "--nope"], BUILD)
    assert decode(encode(found), "a test") == found
    document = json.loads(encode(found))
    assert list(document)[:3] == ["schema", "argv", "findings"]
    assert document["schema"] == "arriero.check/1"
    assert {
        "id", "title", "severity", "status", "applies", "because", "missing", "edit", "fixed_argv",
        "where",
    } <= set(document["findings"][0])  # fmt: skip
    assert worst(found) == "error"
    assert worst(check(["llama-server", "-m", "M"], BUILD)) in (None, "info")


@pytest.mark.usefixtures("nothing_starts")
def test_findings_of_a_file_say_where() -> None:
    found = check_file(INPUTS / "llama.service", BUILD)
    assert isinstance(found, Check)
    assert one(found, "open-without-key").where == f"{INPUTS}/llama.service:9"
    assert found.where == f"{INPUTS}/llama.service:8"
    several = check_file(INPUTS / "compose.yaml", BUILD)
    assert isinstance(several, Checks)
    assert one(several.checks[0], "open-without-key").where == f"{INPUTS}/compose.yaml:11"
    assert [errors(check) for check in several.checks] == [[], [], []]
    assert len(fixed_lines(several)) == 3


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.sh", "A=1\nllama-server -m m.gguf \\\n  -fa --jinja\n", 3),
        ("a.service", "[Service]\nExecStart=/bin/llama-server -m m.gguf \\\n -fa --jinja\n", 3),
        ("a.yaml", "services:\n a:\n  image: llama.cpp\n  command:\n  - -fa\n  - --jinja\n", 5),
        ("swap.yaml", "models:\n a:\n  cmd: |\n   llama-server -m m.gguf\n   -fa --jinja\n", 5),
        ("a.ini", "[a]\nmodel = m.gguf\nfa = --jinja\n", 3),
        ("a.json", '["llama-server",\n "-m", "m.gguf",\n "-fa", "--jinja"]', 3),
    ],
)  # fmt: skip
def test_each_form_of_file(name: str, text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = check_file(path, BUILD)
    assert isinstance(found, Check)
    assert one(found, "flag-value").where == f"{path}:{line}"


def test_words_are_mended_before_what_they_lead_to() -> None:
    found = check(["llama-server", "-m", "M", "-c", "64k", "--parallell", "4"], BUILD)
    assert fixed_lines(found) == ("llama-server -m M -c 65536 --parallel 4",)


def test_a_file_does_not_see_this_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLAMA_ARG_HOST", "0.0.0.0")  # noqa: S104 - data
    path = tmp_path / "a.sh"
    path.write_text("llama-server -m m.gguf\n")
    found = check_file(path, BUILD)
    assert isinstance(found, Check)
    assert "open-without-key" not in {f.id for f in found.findings}
    assert one(check(["llama-server", "-m", "m.gguf"], BUILD), "open-without-key")


@pytest.mark.skipif(os.name != "posix", reason="a script that marks that it ran")
def test_what_a_file_names_is_never_started(tmp_path: Path) -> None:
    marker, evil = tmp_path / "ran", tmp_path / "llama-server"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\n")
    evil.chmod(0o755)
    path = tmp_path / "a.sh"
    path.write_text(f"PATH={tmp_path} LD_PRELOAD={evil} ARRIERO_ENGINE={evil} {evil} -m m.gguf\n")
    check_file(path, CheckOptions(), cwd=tmp_path)
    assert not marker.exists()
    check([str(evil), "-m", "m.gguf"], CheckOptions(), cwd=tmp_path)
    assert marker.exists(), "what the user typed is asked for its version"


def test_no_secret_comes_out() -> None:
    words = [
        "llama-server",
        "-m",
        "M",
        "--api-key",
        "sk-very-secret",
        "--host",
        "::",
        "-fa",
        "--jinja",
    ]
    found = check(words, BUILD, environ={"HF_TOKEN": "hf_abcdefghijklmnopqrstu"})
    for text in (encode(found).decode(), *fixed_lines(found)):
        assert "very-secret" not in text
        assert "hf_abc" not in text


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no-such-engine"):
        check(["llama-server", "-m", "M"], CheckOptions(engine="no-such-engine"))
    with pytest.raises(NotFoundError):
        check_file(tmp_path / "nothing.sh", BUILD)
    for words in ([], [""]):
        with pytest.raises(UsageError):
            check(words, BUILD)
    found = check(["/nowhere/llama-server", "-m", "M", "--nope"], CheckOptions())
    assert found.build is None
    finding = one(found, "flag-unknown")
    assert (finding.applies, finding.severity) == ("maybe", "warning")
    assert any("/nowhere/llama-server" in note for note in found.notes)


@pytest.mark.engine
@pytest.mark.parametrize(("build", "knows"), [(10068, False), (10434, True)])
def test_with_an_engine(
    build: int, knows: bool, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    engine = str(engine_path(build))
    words = ["llama-server", "-m", str(model), "-lm", "none", "-np", "1"]
    found = check(words, CheckOptions(engine=engine))
    assert found.build == build
    assert found.engine is not None
    assert [f.id for f in errors(found)] == ([] if knows else ["flag-renamed"])


def test_a_check_loads_little() -> None:
    """What a command without model, engine and devices needs nothing of."""
    code = (
        "import sys; from arriero.cli import run; run(sys.argv[1:]);"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    typed = "check --assume-build 10434 -- llama-server -m no.gguf -c 65536 -np 4 -ngl 99"
    done = subprocess.run(
        [sys.executable, "-c", code, *typed.split()], capture_output=True, text=True, check=True
    )
    assert "slot-context-share" in done.stdout
    loaded = set(done.stderr.split())
    assert not loaded & {
        *("psutil", "sqlite3", "asyncio", "aiohttp", "ctypes", "json", "subprocess", "yaml"),
        *("arriero.engine.oracle", "arriero.engine.installation", "arriero.gguf.reader"),
        *("arriero.machine", "arriero.process", "arriero.store.store"),
        *("arriero.report.view.diagnosis", "arriero.report.view.plan", "arriero.report.html"),
        *("arriero.memory.planner", "arriero.memory.hparams", "arriero.memory.placement"),
    }


BEHIND = {
    "docker run --rm --gpus all -v /srv/m:/m -p 8080:8080 -e LLAMA_ARG_CTX_SIZE=4096"
    " ghcr.io/ggml-org/llama.cpp:server -m /m/x.gguf -np 4": "llama-server -m /m/x.gguf -np 4",
    "sudo podman run -eLLAMA_ARG_CTX_SIZE=4096 x/llama.cpp:full --server -m x -np 4":
        "llama-server -m x -np 4",
    "sudo -u llama LLAMA_ARG_CTX_SIZE=4096 llama-server -m x -np 4":
        "LLAMA_ARG_CTX_SIZE=4096 llama-server -m x -np 4",
    "bash -c 'cd /srv && llama-server -m x -np 4 -c 4096'": "llama-server -m x -np 4 -c 4096",
}  # fmt: skip


@pytest.mark.parametrize("typed", BEHIND)
@pytest.mark.usefixtures("nothing_starts")
def test_a_command_that_something_else_starts(typed: str, tmp_path: Path) -> None:
    """As the same line of a script: the variables of this process have no part in it."""
    script = tmp_path / "a.sh"
    script.write_text(f"{typed}\n")
    written = check_file(script, BUILD)
    assert isinstance(written, Check)
    environ = {"LLAMA_ARG_N_PARALLEL": "64", "LLAMA_ARG_CTX_SIZE": "1"}
    for words in ([typed], shlex.split(typed)):
        found = check(words, BUILD, environ=environ)
        assert shlex.join(found.argv) == BEHIND[typed]
        assert "4 slots share -c 4096" in one(found, "slot-context-share").because
        assert [(f.id, f.because) for f in found.findings] == [
            (f.id, f.because) for f in written.findings
        ]
        assert found.notes[1:] == written.notes
        assert "without what starts it" in found.notes[0]


@pytest.mark.parametrize(
    "typed",
    [
        "ssh host ls",
        "docker ps",
        "docker run alpine echo hello",
        "python -m serve x",
        "bash -c 'llama-server -m x; llama-server -m y'",
        "watch ls",
        "sudo",
    ],
)
def test_what_starts_no_one_server_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="cannot run the server through"):
        check(shlex.split(typed), BUILD)


def test_keys_that_a_container_is_given_are_told_nobody() -> None:
    typed = "docker run -e LLAMA_API_KEY=tr0ub4dor3 x/llama.cpp:server -m x --alias tr0ub4dor3"
    assert b"tr0ub4dor3" not in encode(check(typed.split(), BUILD))


@pytest.mark.engine
def test_workers_are_contacted_only_if_asked(
    engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def ask(_: object, __: object, workers: tuple[str, ...]) -> tuple[tuple[()], dict[str, object]]:
        asked.append(workers)
        return (), {}

    monkeypatch.setattr("arriero.engine.devices.ask_workers", ask)
    words = ["llama-server", "-m", "M", "--rpc", "127.0.0.1:1"]
    engine = str(engine_path(10434))
    environ = {**os.environ, "GGML_VK_VISIBLE_DEVICES": "99"}
    check(words, CheckOptions(engine=engine), environ=environ)
    check(words, CheckOptions(engine=engine, probe=True), environ=environ)
    assert asked == [(), ("127.0.0.1:1",)]


@pytest.mark.engine
def test_a_worker_of_another_build(engine_path: Callable[[int], Path], tmp_path: Path) -> None:
    other = find_engine(None, option=str(engine_path(10068)), environ={"PATH": ""}, cwd=tmp_path)
    environ = {**os.environ, "GGML_VK_VISIBLE_DEVICES": "99"}
    options = CheckOptions(engine=str(engine_path(10434)), probe=True)
    with worker(other) as (endpoint, _):
        words = ["llama-server", "-m", "M", "--rpc", endpoint]
        found = check(words, options, environ=environ)
    assert one(found, "rpc-version-skew").because.startswith(f"{endpoint} speaks version 4.")
    assert found.fixed_argv == ("llama-server", "-m", "M")
    assert "rpc-worker-unused" not in {f.id for f in found.findings}


@pytest.mark.parametrize("typed", ["bad.ini", "models/bad.ini"])
def test_the_models_preset_that_a_command_names(typed: str, tmp_path: Path) -> None:
    path = tmp_path / typed
    path.parent.mkdir(exist_ok=True)
    path.write_text("[a]\nmodel = a.gguf\n  ctx-size = 4096\n")
    options = CheckOptions(assume_build=10434)

    def found(words: list[str]) -> Check:
        return check(words, options, environ={}, cwd=tmp_path)

    words = ["llama-server", "--models-preset", typed, "--models-max", "1"]
    (error,) = errors(found(words))
    assert (error.id, error.because.partition(": ")[0]) == ("preset-refused", f"{typed}:3")
    assert not errors(found([*words, "-m", "a.gguf"]))  # then the engine reads no preset

    script = tmp_path / "run.sh"
    script.write_text("\n" + " ".join(words))
    checked = check_file(script, options, cwd=tmp_path)
    assert isinstance(checked, Check)
    assert [(f.id, f.where) for f in errors(checked)] == [("preset-refused", f"{script}:2")]

    path.write_text("[a]\nmodel = a.gguf\n")
    assert not errors(found(words))
    assert f"arriero check {typed}" in " ".join(found(words).notes)
    path.unlink()
    assert f"no models preset {typed}" in " ".join(found(words).notes)
    path.write_bytes(b"[a]\0")
    assert "not a text file" in " ".join(found(words).notes)


def test_the_image_of_a_unit_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.service"
    path.write_text(
        "[Service]\nExecStart=/bin/docker run -p 80:80 x/llama.cpp:server \\\n  -m a.gguf -fa\n"
    )
    found = check_file(path, CheckOptions(assume_build=10434))
    (line,) = fixed_lines(found)
    assert line == "/bin/docker run -p 80:80 x/llama.cpp:server -m a.gguf -fa on"
