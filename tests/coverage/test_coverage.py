"""What Arriero says of 110 public reports, and that ``docs/coverage.md`` says the same."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from arriero.base.words import Component, Kind
from arriero.gotchas import registry
from arriero.logs.notices import NOTICES

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    path = ROOT / "scripts" / "coverage_page.py"
    spec = importlib.util.spec_from_file_location("coverage_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    found: list[Any] = SCRIPT.rows(tmp_path_factory.mktemp("coverage"))
    return found


def test_the_page_is_what_the_script_makes(rows: list[Any]) -> None:
    page = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert SCRIPT.page(rows) == page, "run scripts/coverage_page.py"


def test_a_hundred_reports_are_covered(rows: list[Any]) -> None:
    assert len(rows) == 110
    assert Counter(row.level for row in rows)["covered"] >= 100


def test_what_is_not_covered_has_its_reason(rows: list[Any]) -> None:
    for row in rows:
        assert (row.level == "covered") is (row.reason == ""), row.report["id"]


def test_every_report_is_asked_about_and_nothing_else() -> None:
    asked = set(SCRIPT.tries()) - {"shapes"}
    assert asked == {report["id"] for report in SCRIPT.reports()}


def test_what_counts_as_a_cause_is_a_word_of_arriero() -> None:
    ids = {entry.id for entry in registry().entries}
    for name, entry in SCRIPT.tries().items():
        for one in entry.get("tries", ()) if name != "shapes" else ():
            cause = one["cause"]
            if "plan" in one:
                assert set(cause.split(", ")) <= set(Component)
            elif cause.startswith("notice:"):
                assert cause.removeprefix("notice:") in NOTICES
            elif cause not in ids:
                kind, _, component = cause.partition("/")
                assert kind in set(Kind), name
                assert not component or component in set(Component), name


def _of_log(lines: list[str], cause: str, change: str) -> str:
    told = SCRIPT.of_log(SCRIPT._explained(lines), {"cause": cause, "change": change})
    level: str = told.level
    return level


def test_a_cause_without_the_change_is_half_an_answer() -> None:
    owner = "failed to initialize the context: failed to allocate buffer for rs cache"
    refused = [f"llama_init_from_model: {owner}"]
    assert _of_log(refused, "allocation/rs", "-np 1") == "covered"
    assert _of_log(refused, "rs-alloc-slots", "-np 1") == "covered"
    assert _of_log(refused, "allocation/rs", "--no-such-flag") == "partly"
    assert _of_log(refused, "allocation/kv", "-np 1") == "not"
    assert _of_log(["all is well"], "rs-alloc-slots", "-np 1") == "not"
