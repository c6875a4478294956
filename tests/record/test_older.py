"""Records that an earlier version wrote, kept as it wrote them: they read like one of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.base.words import Component
from arriero.record import Diagnosis, Plan, encode, read_document
from arriero.record.older import completed
from tests.report.laid_out import html, markdown, terminal
from tests.report.plans import example
from tests.report.variants import with_

BEFORE = Path(__file__).parent / "data" / "before"


def old_plan() -> Plan:
    doc = read_document(BEFORE / "plan.json")
    assert isinstance(doc, Plan)
    return doc


def old_diagnosis() -> Diagnosis:
    doc = read_document(BEFORE / "diagnosis.json")
    assert isinstance(doc, Diagnosis)
    return doc


def test_the_kept_records_lack_what_is_filled_in() -> None:
    assert '"pool": ' not in (BEFORE / "plan.json").read_text("utf-8").split('"pools"')[0]
    assert "slots_given" not in (BEFORE / "plan.json").read_text("utf-8")
    assert "on_host" not in (BEFORE / "diagnosis.json").read_text("utf-8")


def test_each_line_of_an_old_plan_is_in_its_pool() -> None:
    homes = {(b.component, b.pool) for b in old_plan().buffers}
    assert (Component.WEIGHTS, "host") in homes
    assert (Component.KV, "CUDA0") in homes
    text = terminal(old_plan())
    assert "in no known pool" not in text
    host, card = text.index("host  32768 MiB free"), text.index("CUDA0  24576 MiB free")
    assert "weights" in text[host:card]
    assert "KV" in text[card:]


def test_an_old_plan_knows_who_chose_the_slots_and_how_many_checkpoints_they_keep() -> None:
    context = old_plan().context
    assert context is not None
    assert (context.slots_given, context.checkpoints) == (False, 32)
    text = " ".join(terminal(old_plan(), width=200).split())
    assert "the server's own choice" in text
    assert "4 × 32 × " in markdown(old_plan())


@pytest.mark.parametrize(
    ("words", "checkpoints", "given"),
    [
        ("", 32, False),
        ("-np 4 -ctxcp 8", 8, True),
        ("--parallel 4 --ctx-checkpoints 0", 0, True),
        ("--spec-type draft-mtp", None, False),
        ("-md small.gguf -ctxcp 8", None, False),
        ("-ctxcp many", None, False),
    ],
)
def test_what_an_old_plan_left_to_its_command(
    words: str, checkpoints: int | None, given: bool
) -> None:
    doc = example()
    bare = with_(
        doc,
        argv=(*doc.argv, *words.split()),
        buffers=tuple(with_(b, pool="") for b in doc.buffers),
        context=with_(doc.context, n_seq_max=4, kv_unified=True),
    )
    context = completed(bare).context
    assert context is not None
    assert (context.checkpoints, context.slots_given) == (checkpoints, given)


def test_a_plan_of_today_is_left_as_it_is() -> None:
    doc = example()
    said = with_(doc, context=with_(doc.context, checkpoints=7, slots_given=True))
    assert completed(said) == said


def test_an_old_plan_that_does_not_fit_lacks_what_it_took() -> None:
    doc = example()
    bare = with_(
        doc,
        buffers=tuple(with_(b, pool="", grows=False) for b in doc.buffers),
        pools=tuple(with_(pool, surely=0) for pool in doc.pools),
    )
    found = completed(bare)
    full = {pool.name: pool.surely == pool.at_start for pool in found.pools}
    assert full == {pool.name: pool.fits is False for pool in found.pools}
    assert {b.component for b in found.buffers if b.grows} == {
        Component.PROMPT_CACHE,
        Component.CHECKPOINTS,
    }


def test_an_old_diagnosis_knows_what_was_the_host_s() -> None:
    doc = old_diagnosis()
    assert doc.verdict is not None
    assert doc.verdict.memory == "host"
    assert all("CPU" in trial.on_host for trial in doc.trials)
    assert doc.baseline.given == {"-np": "64", "-c": "4096"}
    page = html(doc)
    assert "Memory on host per trial" in page
    assert "Memory on CPU" not in page
    assert "64 slots × 62.81 MiB" in terminal(doc)


@pytest.mark.parametrize("name", ["plan", "diagnosis"])
def test_what_is_filled_in_is_kept_when_it_is_written_again(name: str, tmp_path: Path) -> None:
    doc = read_document(BEFORE / f"{name}.json")
    (tmp_path / "again.json").write_bytes(encode(doc))
    assert read_document(tmp_path / "again.json") == doc
