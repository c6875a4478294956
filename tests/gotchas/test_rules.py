"""Every rule by its cases, and all rules on commands that are fine."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace as replace_struct

from arriero.base.sizes import MIB
from arriero.gotchas import Facts, match, registry, repaired
from arriero.gotchas.missing import MissingError
from arriero.gotchas.model import Applies, Class, Found, Severity
from arriero.gotchas.registry import Registry
from arriero.machine.host import ULIMIT
from arriero.record import Edit, Finding
from tests.gotchas.given import Models, facts, facts_of_case

HERE = Path(__file__).parent
CASES: list[tuple[str, dict[str, Any]]] = [
    (path.stem, case)
    for path in sorted((HERE / "cases").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8"))
]
HEALTHY: list[dict[str, Any]] = yaml.safe_load((HERE / "healthy.yaml").read_text("utf-8"))
KEYS = {"name", "command", "model", "mmproj", "budget", "build"}
KEYS |= {"devices", "unified", "env", "workers", "refused", "compiled", "cpu", "around"}
EXPECTED = {"found", "because", "lacks", "fixed", "missing"}


def test_every_gotcha_has_cases_that_it_strikes_and_that_it_spares() -> None:
    for entry in registry().entries:
        cases = [case for name, case in CASES if name == entry.id]
        assert any("found" in case for case in cases), f"{entry.id} has no case to find"
        assert any("found" not in case and "missing" not in case for case in cases), entry.id
        # what only tells has a cure outside of the command, or none but doing without the flag
        tells = entry.head.severity is Severity.INFO and not entry.reproductions
        tells = tells or entry.head.kind is Class.HARDWARE
        tells = tells or entry.bundle == "files"  # the cure is in the file, not in its words
        assert tells or any("fixed" in case for case in cases), f"{entry.id} has no case to fix"
    assert {name for name, _ in CASES} == {entry.id for entry in registry().entries}


@pytest.mark.parametrize(
    ("gotcha", "case"), CASES, ids=[f"{name}-{case['name']}" for name, case in CASES]
)
def test_case(gotcha: str, case: dict[str, Any], models: Models) -> None:
    assert set(case) <= KEYS | EXPECTED
    known = facts_of_case(case, models)
    entry = registry().get(gotcha)
    matched = match(known, Registry((entry,)))
    if "missing" in case:
        (unchecked,) = matched.unchecked
        assert case["missing"] in unchecked.missing
        return
    assert not matched.unchecked
    if "found" not in case:
        assert matched.findings == ()
        return
    finding = matched.findings[0]
    assert finding.severity == case["found"]
    assert re.search(case["because"], finding.because), finding.because
    assert (finding.applies == "maybe") is bool(finding.missing)
    if "lacks" in case:
        assert case["lacks"] in "; ".join(finding.missing)
    if "fixed" in case:
        argv = [_unnamed(word, known) for word in finding.fixed_argv or ()]
        assert shlex.join(argv) == " ".join(case["fixed"].split())
        mended = known.with_edits(finding.edit or ())
        assert not _worse(list(entry.detect(mended)), finding.severity), "the fix does not mend it"


def _unnamed(word: str, known: Facts) -> str:
    if word == known.command.value("--mmproj"):
        return "MMPROJ"
    header = known.header_or_none
    return (
        "MODEL"
        if word == "missing.gguf" or (header and word == str(header.parts[0].name))
        else word
    )


def _worse(found: list[Found], severity: str) -> list[Found]:
    """Sure errors that are left: a milder finding may come after a mended one."""
    return [
        f
        for f in found
        if severity == "error" and f.applies is Applies.YES and f.severity in (None, Severity.ERROR)
    ]


def _found(case: dict[str, Any]) -> tuple[Finding, ...]:
    words = shlex.split(case["command"].replace("\\", "/"))
    return match(facts(words), registry()).findings


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case["source"][:40])
def test_healthy_commands_have_no_error(case: dict[str, Any]) -> None:
    assert [f for f in _found(case) if f.severity == "error"] == []
    assert case["source"]


def test_healthy_commands_are_many_and_warned_of_little() -> None:
    assert len(HEALTHY) >= 40
    warnings = [(case, f) for case in HEALTHY for f in _found(case) if f.severity == "warning"]
    assert len(warnings) <= 4, warnings


def test_edits_are_applied_one_after_another_until_nothing_is_left() -> None:
    words = "llama-server -m MODEL -fa --host ::1 --draft-max 4 --ctx-sise 4096 -np 8 -b 4"
    command = repaired(facts(words.split()), registry())
    assert command.safe_text() == (
        "llama-server -m missing.gguf -fa on --host ::1 --spec-draft-n-max 4 --ctx-size 4096"
        " -np 8 -b 32"
    )


def test_a_repair_that_goes_round_in_circles_ends() -> None:
    entry = registry().get("flag-unknown")

    def restless(known: Facts) -> Any:
        now = known.command.number("-c") or 0
        yield Found(because="never content", edit=(Edit(flag="-c", value=str(1 - now)),))

    rules = Registry((replace(entry, detect=restless),))
    assert repaired(facts(["llama-server", "-m", "MODEL"]), rules).number("-c") in (0, 1)


def test_what_a_rule_lacks_is_told_and_ends_nothing_else() -> None:
    def lacking(known: Facts) -> Any:
        yield Found(because="before")
        raise MissingError("a crystal ball")

    first = replace(registry().get("flag-unknown"), detect=lacking)
    second = registry().get("slots-above-batch")
    command = facts(["llama-server", "-m", "MODEL", "-np", "4", "-b", "2"])
    found = match(command, Registry((first, second)))
    assert found.findings[0].because == "before"
    assert [u.missing for u in found.unchecked] == ["a crystal ball"]
    assert {f.id for f in found.findings} == {"flag-unknown", "slots-above-batch"}


def test_a_copy_beside_the_mapping_is_worse_where_address_space_is_short(models: Models) -> None:
    words = ["llama-server", "-m", "MODEL", "-c", "512", "-np", "1", "-ub", "32"]
    known = facts(words, model=models("quantised"))
    plan, entry = known.plan, registry().get("cpu-repack-copies")

    def severities(limited_by: str) -> list[Severity | None]:
        pool = replace_struct(plan.pools[0], free=240 * MIB, limited_by=limited_by)
        short = replace_struct(plan, pools=(pool,))
        return [f.severity for f in entry.detect(replace(known, planner=lambda _: short))]

    assert severities("memory") == [Severity.INFO]
    assert severities(ULIMIT) == [None]
