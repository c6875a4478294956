"""What a gotcha's file must be, and every way in which it may not be."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import arriero.gotchas
from arriero.base.errors import NotFoundError
from arriero.gguf.presets import tiny
from arriero.gotchas import Facts, registry
from arriero.gotchas.model import (
    Class,
    EngineRun,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Severity,
    Signature,
    Worker,
)
from arriero.gotchas.registry import SECTIONS, GotchaError, collect, modules

FILES = sorted(
    path
    for path in Path(arriero.gotchas.__file__).parent.glob("*/*.py")
    if not path.name.startswith("_")
)
TEXT = "A title\n\n" + "\n\n".join(f"{s}\n{'-' * len(s)}\nSome words." for s in SECTIONS) + "\n"
HEAD = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("slots",),
    provenance=Provenance(issues=("ggml-org/llama.cpp#1",)),
)
RUN = EngineRun(flags="-np 4")
SHORT = EngineRun(flags="--rpc {workers}", workers=(Worker(room=1),))
REPRODUCTION = Reproduction(
    name="one",
    model=tiny("llama"),
    run=RUN,
    control=EngineRun(flags="-np 1"),
    shows=Signature(log="x"),
)


def detect(_: Facts) -> Iterator[Found]:
    yield Found(because="always")


def file(name: str = "slots.a_gotcha", doc: str = TEXT, **parts: Any) -> ModuleType:
    module = ModuleType(f"arriero.gotchas.{name}", doc)
    given = {"GOTCHA": HEAD, "detect": detect, "REPRODUCTIONS": (REPRODUCTION,), **parts}
    for key, value in given.items():
        if value is not None:
            setattr(module, key, value)
    return module


def test_a_file_that_is_right() -> None:
    (entry,) = collect([file()]).entries
    assert (entry.id, entry.bundle, entry.title) == ("a-gotcha", "slots", "A title")
    assert tuple(entry.sections) == SECTIONS
    assert entry.sections["Symptom"] == "Some words."


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"GOTCHA": None}, "needs GOTCHA"),
        ({"detect": None}, "needs GOTCHA"),
        ({"doc": ""}, "must begin with a title"),
        ({"doc": TEXT.replace("A title", "A title\nand more")}, "one line"),
        ({"doc": TEXT.replace("Workaround\n----------\n", "")}, "its sections are"),
        ({"doc": TEXT.replace("Symptom", "Symptoms")}, "its sections are"),
        ({"doc": TEXT.replace("Some words.", "", 1)}, "Symptom is empty"),
        ({"name": "slots.A_Gotcha"}, "lower-case"),
        ({"GOTCHA": replace(HEAD, provenance=Provenance())}, "no provenance"),
        ({"GOTCHA": replace(HEAD, provenance=Provenance(issues=("#1",)))}, "owner/name#number"),
        ({"GOTCHA": replace(HEAD, updated="today")}, "not a day"),
        ({"GOTCHA": replace(HEAD, concepts=())}, "no concepts"),
        ({"GOTCHA": replace(HEAD, related=("a-gotcha",))}, "related to itself"),
        ({"GOTCHA": replace(HEAD, related=("another",))}, "does not exist"),
        ({"GOTCHA": replace(HEAD, reporters=-1)}, "negative"),
        ({"REPRODUCTIONS": (REPRODUCTION, REPRODUCTION)}, "same name"),
        ({"REPRODUCTIONS": (replace(REPRODUCTION, control=RUN),)}, "control is the run itself"),
        ({"REPRODUCTIONS": (replace(REPRODUCTION, run=SHORT),)}, "lacks the workers"),
        ({"REPRODUCTIONS": (replace(REPRODUCTION, shows=Signature()),)}, "match any run"),
        ({"REPRODUCTIONS": (replace(REPRODUCTION, shows=Signature(log="(")),)}, "regular"),
    ],
)
def test_a_file_that_is_not(parts: dict[str, Any], says: str) -> None:
    with pytest.raises(GotchaError, match=says) as raised:
        collect([file(**parts)])
    assert "\n" not in raised.value.message
    assert "gotcha" in raised.value.message


def test_two_of_one_id() -> None:
    with pytest.raises(GotchaError, match="in two bundles: slots, rpc"):
        collect([file(), file("rpc.a_gotcha")])


def test_fields_that_there_are_not() -> None:
    with pytest.raises(TypeError, match="status"):
        Gotcha(status="reproduced")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="builds"):
        replace(HEAD, builds=(10434,))  # type: ignore[call-arg]


def test_no_gotcha_of_that_id() -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        registry().get("nothing")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_defines_nothing_else_in_public(path: Path) -> None:
    """A misspelt ``REPRODUCTIONS`` would be lost without a word."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    assert {n for n in names if not n.startswith("_")} <= {"GOTCHA", "REPRODUCTIONS", "detect"}


def test_every_file_that_comes_with_arriero_is_right() -> None:
    assert collect(modules()) == registry()


def test_every_file_is_loaded() -> None:
    assert {entry.id for entry in registry().entries} == {
        path.stem.replace("_", "-") for path in FILES
    }


@pytest.mark.parametrize("entry", registry().entries, ids=lambda entry: entry.id)
def test_titles_and_texts_read_well(entry: Any) -> None:
    assert len(entry.title) <= 100
    assert not entry.title.endswith(".")
    assert inspect.isgeneratorfunction(entry.detect)
    for text in entry.sections.values():
        assert max(map(len, text.splitlines())) <= 100
