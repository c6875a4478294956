"""Files that people published: what is wrong with each is said, and nothing else."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.base.errors import ArrieroError
from arriero.jobs.check import CheckOptions, check_file
from arriero.record import Check, Checks

DATA = Path(__file__).parent / "data" / "found"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads(
    (DATA / "expected.toml").read_text(encoding="utf-8")
)
AS_10434 = CheckOptions(assume_build=10434)


def checks(found: Check | Checks) -> tuple[Check, ...]:
    return found.checks if isinstance(found, Checks) else (found,)


def compare(name: str, options: CheckOptions) -> None:
    want = EXPECTED[name]
    if not want["commands"]:
        with pytest.raises(ArrieroError) as refused:
            check_file(DATA / name, options)
        assert want["says"] in f"{refused.value} {refused.value.hint}"
        return
    each = checks(check_file(DATA / name, options))
    assert len(each) == want["commands"]
    findings = [finding for one in each for finding in one.findings]
    ids = {finding.id for finding in findings}
    accepted = {*want.get("must", []), *want.get("may", []), *want.get("errors_any", [])}
    assert not {f.id for f in findings if f.severity == "error"} - {*want.get("errors_any", [])}
    assert not {f.id for f in findings if f.severity == "warning"} - accepted
    assert {*want.get("must", [])} <= ids
    assert not {*want.get("must_not", [])} & ids
    assert not want.get("errors_any") or ids & {*want["errors_any"]}
    if "says" in want:
        assert any(want["says"] in f.title + f.because for f in findings) or any(
            want["says"] in note for one in each for note in one.notes
        )


def test_every_file_has_its_answer() -> None:
    assert {path.name for path in DATA.iterdir()} == {*EXPECTED, "expected.toml"}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_published_file(name: str) -> None:
    compare(name, AS_10434)


@pytest.mark.engine
def test_an_engine_at_hand_is_not_that_of_the_file(
    engine_path: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its devices say nothing of the machine that a file is for."""
    (tmp_path / "llama-server").symlink_to(engine_path(10434))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name in EXPECTED:
        compare(name, CheckOptions())
