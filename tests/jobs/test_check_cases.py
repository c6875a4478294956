"""Files that were once read wrongly, each with what is right; by the rules of build 10434."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero.jobs.check import CheckOptions, check, check_file
from arriero.record import Check, Checks

CASES = Path(__file__).parent / "data" / "cases"


@pytest.fixture
def read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_path: Callable[[int], Path]
) -> Callable[[str], list[Check]]:
    monkeypatch.setenv("ARRIERO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ARRIERO_ENGINE", str(engine_path(10434)))

    def found(name: str) -> list[Check]:
        document = check_file(CASES / name, CheckOptions(), cwd=tmp_path)
        return list(document.checks) if isinstance(document, Checks) else [document]

    return found


def ids(check: Check, *severities: str) -> set[str]:
    return {f.id for f in check.findings if not severities or f.severity in severities}


pytestmark = pytest.mark.engine


def test_a_comment_behind_a_value(read: Callable[[str], list[Check]]) -> None:
    (check,) = read("check-01-ini-hash-comment.ini")
    assert check.findings == ()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("check-02-ini-indented.ini", 2),
        ("check-03-ini-colon.ini", 2),
        ("check-05-ini-underscore.ini", 3),
    ],
)
def test_a_preset_that_is_refused(name: str, line: int, read: Callable[[str], list[Check]]) -> None:
    (check,) = read(name)
    (error,) = [f for f in check.findings if f.severity == "error"]
    assert (error.id, error.where) == ("preset-refused", f"{CASES / name}:{line}")


def test_values_of_a_preset(read: Callable[[str], list[Check]]) -> None:
    a, b, c, d = read("check-07-ini-values.ini")
    assert a.argv[-1] == '"/models/a b.gguf"'
    assert b.argv[-1] == "/models/a"
    assert c.argv[-1] == '{"x":"a'
    assert "preset-misread" in ids(a) & ids(b) & ids(c)
    assert "flag-value" in ids(c, "error")
    assert ids(d) == {"preset-without-model"}


def test_wrappers(read: Callable[[str], list[Check]]) -> None:
    checks = read("check-08-wrappers.sh")
    assert len(checks) == 7
    assert all("flag-value" in ids(check) for check in checks)
    sure = [check.findings[0].applies for check in checks]
    assert sure == ["maybe", "yes", "maybe", "maybe", "maybe", "maybe", "yes"]


def test_a_device_of_another_machine(read: Callable[[str], list[Check]]) -> None:
    (check,) = read("check-10-device-of-another-machine.yml")
    assert ids(check) == {"flag-value", "open-without-key"}
    assert not ids(check, "error")
    assert check.fixed_argv is None
    (missing,) = [one.missing for one in check.unchecked if one.id == "device-unknown"]
    assert "unknown here" in missing


def test_values_that_the_engine_refuses(read: Callable[[str], list[Check]]) -> None:
    checks = read("check-12-values.sh")
    assert len(checks) == 9
    assert [ids(check, "error") for check in checks] == [{"flag-value"}] * 9


def test_a_variable_is_no_secret(read: Callable[[str], list[Check]]) -> None:
    (check,) = read("check-14-fix-of-key-variable.yml")
    assert "${LLAMA_API_KEY:-EMPTY}" in " ".join(check.spelled)


def test_a_command_cut_short(read: Callable[[str], list[Check]]) -> None:
    (check,) = read("check-15-docker-run-cut-short.sh")
    (cut,) = [f for f in check.findings if f.id == "line-cut"]
    assert cut.severity == "warning"
    assert "lines 4 to 6 begin with a flag" in cut.because
    assert "at the end of line 3" in cut.because
    assert not any("--models-max is not given" in f.because for f in check.findings)


def test_eval(read: Callable[[str], list[Check]]) -> None:
    (check,) = read("sec-eval.sh")
    assert check.argv == ("llama-server", "-m", "e.gguf")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("llama-server -m a -fmoe -rtr", "ik_llama.cpp"),
        ("llama-server -m a --spec-dflash-cross-ctx 512", "beellama.cpp"),
        ("./ik_llama.cpp/build/bin/llama-server -m a -fa", "ik_llama.cpp"),
    ],
)
def test_a_fork_is_named(
    typed: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARRIERO_HOME", str(tmp_path))
    found = check(typed.split(), CheckOptions(), environ=dict(os.environ), cwd=tmp_path)
    assert any(name in note for note in found.notes)
    assert not ids(found, "error")
    assert found.fixed_argv is None


@pytest.mark.parametrize(
    "typed",
    ["mywrap --x y llama-server -m a -fa -c 1", "uv run launch.py -- llama-server -m a -fa -c 1"],
)
def test_behind_an_unknown_program(
    typed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ARRIERO_HOME", str(tmp_path))
    found = check(typed.split(), CheckOptions(), environ=dict(os.environ), cwd=tmp_path)
    (finding,) = [f for f in found.findings if f.id == "flag-value"]
    assert (finding.severity, finding.applies) == ("warning", "maybe")
