"""Verdicts: what they may claim, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from arriero.base.errors import RecordError
from arriero.base.words import TrialOutcome
from arriero.gotchas import Standing, registry
from arriero.gotchas.verdicts import check_verdict, merged, own, shipped, write
from arriero.record import GotchaVerdict, RunEvidence

SHOWN = RunEvidence(flags="-np 4", env={}, outcome=TrialOutcome.FAILED, text="it says", shows=True)
NOT = RunEvidence(flags="-np 1", env={}, outcome=TrialOutcome.SERVED, shows=False)


def verdict(
    said: str = "reproduced",
    build: int | None = 10434,
    *,
    run: RunEvidence | None = SHOWN,
    control: RunEvidence | None = NOT,
    reason: str = "",
    name: str = "one",
) -> GotchaVerdict:
    return GotchaVerdict(
        gotcha="a-gotcha", reproduction=name, build=build, verdict=said,  # type: ignore[arg-type]
        reason=reason, run=run, control=control, machine="a test", at="2026-11-30", seconds=1.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (verdict(run=None), "lacks the evidence"),
        (verdict(control=None), "lacks the evidence"),
        (verdict(run=NOT), "does not show the failure"),
        (verdict(run=msgspec.structs.replace(SHOWN, text="")), "does not show the failure"),
        (verdict(control=SHOWN), "workaround does not change the outcome"),
        (verdict("not reproduced"), "gives no reason"),
        (verdict("could not run", run=None, control=None), "gives no reason"),
    ],
)
def test_a_claim_that_its_evidence_does_not_bear_out(
    wrong: GotchaVerdict, says: str, tmp_path: Path
) -> None:
    with pytest.raises(RecordError, match=says):
        check_verdict(wrong)
    with pytest.raises(RecordError, match=says):
        write(tmp_path, [wrong])
    assert not list(tmp_path.iterdir())


def test_what_follows_from_none() -> None:
    standing = Standing(())
    assert (standing.status, standing.confidence, standing.builds) == ("draft", "low", ())
    assert standing.status_on(10434) == "draft"


def test_what_follows_from_some() -> None:
    on = verdict(build=10434)
    off = verdict("not reproduced", 10068, run=NOT, reason="it served")
    standing = Standing((on, off))
    assert (standing.status, standing.confidence) == ("reproduced", "medium")
    assert (standing.builds, standing.not_builds) == ((10434,), (10068,))
    assert standing.status_on(10068) == "refuted"
    assert standing.status_on(10092) == "reproduced"
    assert Standing((on, verdict(build=10092))).confidence == "high"
    assert Standing((off,)).status == "not reproduced"
    assert Standing((off,)).status_on(None) == "draft"
    other = verdict("not reproduced", 10092, run=NOT, reason="it served")
    assert Standing((off, other)).status == "refuted"


def test_one_reproduction_of_several_is_enough() -> None:
    other = verdict("not reproduced", name="two", run=NOT, reason="it served")
    standing = Standing((verdict(), other))
    assert (standing.builds, standing.not_builds) == ((10434,), ())


def test_later_verdicts_win_and_others_stay(tmp_path: Path) -> None:
    write(tmp_path, [verdict("could not run", reason="no device"), verdict(name="two")])
    other = msgspec.structs.replace(verdict(), gotcha="another")
    paths = write(tmp_path, [verdict(), verdict(build=10068), other])
    assert [path.name for path in paths] == ["a-gotcha.json", "another.json"]
    found = {(v.reproduction, v.build): v.verdict for v in own(tmp_path) if v.gotcha == "a-gotcha"}
    assert found == {
        ("one", 10434): "reproduced",
        ("one", 10068): "reproduced",
        ("two", 10434): "reproduced",
    }
    write(tmp_path, [verdict("could not run", reason="no device")])
    assert {v.verdict for v in own(tmp_path)} == {"reproduced"}
    (tmp_path / "damaged.json").write_text("{")
    assert len(own(tmp_path)) == 4
    assert own(tmp_path / "nowhere") == ()


def test_shipped_verdicts_are_of_gotchas_that_there_are() -> None:
    known = {(e.id, r.name) for e in registry().entries for r in e.reproductions}
    found = shipped()
    assert found
    for one in found:
        assert (one.gotcha, one.reproduction) in known
        assert one.machine
        assert one.build is not None
    assert len(merged(found, found)) == len(found)


def test_the_two_first_gotchas_were_reproduced_on_every_build() -> None:
    for name in ("rs-alloc-slots", "rpc-prompt-cache-abort"):
        standing = Standing(tuple(v for v in shipped() if v.gotcha == name))
        assert standing.builds == (10068, 10092, 10434)
        assert standing.confidence == "high"
