"""What runs took, from a trial to the next plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.base.errors import RecordError
from arriero.base.redact import Redactor
from arriero.base.words import Component, Method
from arriero.command import builtin_flags, parse_command
from arriero.engine import Engine, find_engine
from arriero.gguf import Header, presets, read_header, write_model
from arriero.jobs import verify
from arriero.jobs._baseline import survey
from arriero.jobs._runs import Recorder, calibrations
from arriero.memory import DryRuns, Planner
from arriero.memory.taken import fingerprint
from arriero.record import DeviceRecord, Plan, PlanBuffer, Run, Verification
from arriero.store import Store
from tests.examples import example_run, example_trials
from tests.memory.planning import ROOMY

AS_RUN = "-c 4096 -np 4"
SHAPE = presets.tiny("qwen35", layers=8, ssm_state=32, ssm_heads=16, embedding=256)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", SHAPE)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def engine_like(run: Run, **changes: Any) -> Engine:
    """An installation as the one that a run was of."""
    values = {
        "path": Path(run.engine.path),
        "found_by": "a test",
        "version": run.engine.version,
        "build": run.engine.build,
        "build_source": None,
        "commit": run.engine.commit,
        "backends": run.engine.backends,
        "library_path": None,
        "rpc_server": None,
        "flags": builtin_flags(),
    }
    return Engine(**{**values, **changes})


def kept(store: Store, header: Header, **changes: Any) -> Run:
    run = msgspec.structs.replace(example_run(), model=fingerprint(header), **changes)
    store.save_runs([run], Redactor())
    return run


def on_card(run: Run, description: str) -> Run:
    card = DeviceRecord(name="CUDA0", description=description, total=None, free=None)
    settings = msgspec.structs.replace(run.settings, layers=("CUDA0*41",))
    return msgspec.structs.replace(run, devices=(card,), settings=settings)


def test_whose_run_it_was_is_a_matter_of_model_engine_and_devices(
    store: Store, model: Path
) -> None:
    header = read_header(model)
    run = kept(store, header)
    mine = engine_like(run)

    def same(engine: Engine | None, header: Header = header, **kw: Any) -> set[bool]:
        return {c.same for c in calibrations(store, header, engine=engine, **kw)}

    assert same(mine) == {True}
    assert same(None, build=run.engine.build) == {True}
    assert same(None) == same(None, build=1) == set()
    assert same(engine_like(run, build=1)) == set()
    assert same(engine_like(run, commit="another")) == {False}
    assert same(engine_like(run, backends=("cpu", "cuda"))) == {False}
    bigger = replace(header, tensors=header.tensors[1:])
    assert same(mine, bigger) == {False}
    other = replace(header, metadata={**header.metadata, "general.architecture": "llama"})
    assert same(mine, other) == set()


def test_a_card_of_the_same_name_must_be_the_same_card(store: Store, model: Path) -> None:
    header = read_header(model)
    run = on_card(kept(store, header), "RTX 9090")
    store.save_runs([run], Redactor())
    for description, expected in (("RTX 9090", True), ("RTX 1010", False), (None, False)):
        cards = (
            [msgspec.structs.replace(run.devices[0], description=description)]
            if description
            else []
        )
        found = calibrations(store, header, engine=engine_like(run), devices=cards)
        assert {c.same for c in found if c.settings == run.settings} == {expected}


def test_a_history_that_cannot_be_read_gives_none(tmp_path: Path, model: Path) -> None:
    header, engine = read_header(model), engine_like(example_run())
    assert calibrations(Store(tmp_path / "none"), header, engine=engine) == ()
    broken = Store(tmp_path / "broken")
    broken.path.parent.mkdir()
    broken.path.write_bytes(b"this is no database" * 100)
    assert calibrations(broken, header, engine=engine) == ()
    assert calibrations(broken, replace(header, metadata={}), engine=engine) == ()


class Unwritable(Store):
    tries = 0

    def save_runs(self, runs: Iterable[Run], redactor: Redactor) -> None:
        self.tries += 1
        raise RecordError("the disk is full")


@pytest.mark.engine
def test_a_store_that_cannot_be_written_is_left_alone(
    tmp_path: Path, model: Path, engine_path: Callable[[int], Path]
) -> None:
    words = ["llama-server", "-m", str(model), "-c", "4096", "-np", "16"]
    ground = survey(words, engine=str(engine_path(10434)), limit=None, environ=dict(os.environ))
    store = Unwritable(tmp_path / "home")
    recorder = Recorder(store, ground)
    for trial in example_trials():
        recorder.ran(ground.command, trial)
    recorder.close()
    assert store.tries == 1


def planned(model: Path, engine: Engine, store: Store, args: str, *, ask: bool = False) -> Plan:
    words = ["llama-server", "-m", str(model), *args.split()]
    command = parse_command(words, engine.flags, dict(os.environ))
    header = read_header(model)
    return Planner(
        header,
        [ROOMY],
        model=model,
        answers=DryRuns.of(engine, command.environ) if ask else None,
        build=engine.build,
        calibrations=calibrations(store, header, engine=engine),
    ).plan(command)


def compute(plan: Plan) -> PlanBuffer:
    return next(b for b in plan.buffers if b.component is Component.COMPUTE)


@dataclass(frozen=True)
class Verified:
    engine: Engine
    store: Store
    answer: Verification
    before: PlanBuffer

    @property
    def logged(self) -> int:
        assert self.answer.trial is not None
        return sum(b.bytes for b in self.answer.trial.buffers if b.component is Component.COMPUTE)


@pytest.fixture(scope="module")
def verified(
    tmp_path_factory: pytest.TempPathFactory, model: Path, engine_path: Callable[[int], Path]
) -> Verified:
    server, environ = engine_path(10434), dict(os.environ)
    engine = find_engine(None, option=str(server), environ=environ, cwd=model.parent)
    store = Store(tmp_path_factory.mktemp("home"))
    before = compute(planned(model, engine, store, AS_RUN))
    options = verify.VerifyOptions(engine=str(server), requests=2)
    words = ["llama-server", "-m", str(model), *AS_RUN.split(), "--no-warmup"]
    answer = verify.verify(words, options, store=store, environ=environ)
    return Verified(engine, store, answer, before)


@pytest.mark.engine
def test_one_run_and_the_plan_says_what_it_took(verified: Verified, model: Path) -> None:
    assert verified.before.method is Method.ESTIMATED
    assert verified.before.upper_bound
    assert (verified.before.bytes or 0) >= verified.logged
    plan = planned(model, verified.engine, verified.store, AS_RUN)
    after = compute(plan)
    assert (after.bytes, after.method) == (verified.logged, Method.CALIBRATED)
    assert after.residual == verified.logged - (verified.before.bytes or 0)
    assert [note.id for note in plan.notes] == ["calibration"]


@pytest.mark.engine
def test_the_run_says_what_formulas_and_dry_run_had_said(verified: Verified) -> None:
    (run,) = verified.store.runs("qwen35")
    assert {b.component for b in run.buffers} == {
        *(Component.WEIGHTS, Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT)
    }
    for buffer in run.buffers:
        assert buffer.taken is not None
        assert buffer.asked is not None
        assert abs(buffer.taken - buffer.asked) <= buffer.rounding
        if buffer.component is not Component.COMPUTE:
            assert buffer.planned == buffer.asked
    assert run.engine.path
    assert "model.gguf" not in msgspec.json.encode(run).decode()


@pytest.mark.engine
@pytest.mark.parametrize(
    "args",
    ["-c 4096 -np 4 -ub 256", "-c 8192 -np 4", "-c 4096 -np 2", "-c 4096 -np 4 -fa off"],
)
def test_other_settings_get_no_optimism(verified: Verified, model: Path, args: str) -> None:
    line = compute(planned(model, verified.engine, verified.store, args))
    assert (line.method, line.residual) == (Method.ESTIMATED, None)


@pytest.mark.engine
def test_other_words_for_the_same_settings_are_the_same(verified: Verified, model: Path) -> None:
    line = compute(planned(model, verified.engine, verified.store, "-c 4000 -np 4 -b 2048"))
    assert line.method is Method.CALIBRATED


@pytest.mark.engine
def test_what_the_engine_is_asked_stays_measured(verified: Verified, model: Path) -> None:
    plan = planned(model, verified.engine, verified.store, AS_RUN, ask=True)
    assert compute(plan).method is Method.MEASURED
    assert "drift" not in {note.id for note in plan.notes}


@pytest.mark.engine
def test_a_similar_model_borrows_pessimism_alone(
    verified: Verified, tmp_path: Path, store: Store
) -> None:
    similar = write_model(tmp_path / "b.gguf", replace(SHAPE, layers=4, embedding=128))
    bound = compute(planned(similar, verified.engine, store, AS_RUN))
    assert compute(planned(similar, verified.engine, verified.store, AS_RUN)) == bound
    (run,) = verified.store.runs("qwen35")
    more = tuple(
        msgspec.structs.replace(b, taken=2 * (b.planned or 0))
        if b.component is Component.COMPUTE
        else b
        for b in run.buffers
    )
    store.save_runs([msgspec.structs.replace(run, buffers=more)], Redactor())
    line = compute(planned(similar, verified.engine, store, AS_RUN))
    assert (line.bytes, line.method) == (2 * (bound.bytes or 0), Method.ESTIMATED)
    assert "similar model" in line.reason
