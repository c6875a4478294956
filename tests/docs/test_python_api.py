"""The examples of ``docs/python-api.md`` say what happens, and the page names everything."""

from __future__ import annotations

import dataclasses
import doctest
import re
from pathlib import Path
from typing import Any

import pytest

import arriero
from tests.conftest import locate_engine

TEXT = (Path(__file__).parents[2] / "docs" / "python-api.md").read_text("utf-8")
BLOCK = re.compile(r"^```python *(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(monkeypatch: pytest.MonkeyPatch, place: Path, *kinds: str) -> None:
    """Every block of these kinds, in order, as one session in an empty directory."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("ARRIERO_HOME", str(place / "home"))
    text = "".join(code for kind, code in BLOCK.findall(TEXT) if kind in kinds)
    told: list[str] = []
    examples = doctest.DocTestParser().get_doctest(text, {}, "python-api.md", None, None)
    assert len(examples.examples) > 3
    failed, _ = doctest.DocTestRunner().run(examples, out=told.append)
    assert not failed, "".join(told)


def test_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, tmp_path, "")


@pytest.mark.engine
def test_examples_with_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARRIERO_ENGINE", str(locate_engine(10434)))
    run(monkeypatch, tmp_path, "", "engine")


@pytest.mark.engine
@pytest.mark.slow
def test_examples_that_take_minutes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ARRIERO_ENGINE", str(locate_engine(10434)))
    run(monkeypatch, tmp_path, "", "slow")


def test_every_block_is_run() -> None:
    assert TEXT.count("```python") == len(BLOCK.findall(TEXT))
    assert {kind for kind, _ in BLOCK.findall(TEXT)} == {"", "engine", "slow"}


@pytest.mark.parametrize("name", dir(arriero))
def test_every_public_name_is_on_the_page(name: str) -> None:
    assert re.search(rf"\b{name}\b", TEXT)


def options() -> list[tuple[str, str]]:
    classes: list[Any] = [getattr(arriero, n) for n in dir(arriero) if n.endswith("Options")]
    return [(one.__name__, field.name) for one in classes for field in dataclasses.fields(one)]


def test_every_option_is_on_the_page_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (`.*?`) \|", TEXT, re.MULTILINE)
    told = {(of, field) for field, cell in rows for of in re.findall(r"`(\w+)`", cell)}
    assert told == set(options())
