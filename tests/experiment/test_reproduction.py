"""Reproductions: what counts as shown, what the verdict is, and real ones on a real engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from arriero.base.words import Component, Kind, TrialOutcome
from arriero.engine import find_engine
from arriero.experiment.reproduction import Lab, matches
from arriero.gguf.presets import tiny
from arriero.gotchas import registry
from arriero.gotchas.model import EngineRun, Needs, Reproduction, Signature, Worker
from arriero.gotchas.verdicts import check_verdict
from arriero.logs.model import Effective
from arriero.process import clean_environment
from tests.examples import example_failure, example_trials

FAILED = msgspec.structs.replace(
    example_trials()[0],
    outcome=TrialOutcome.FAILED,
    failure=example_failure(),
    exit_status=1,
    effective=Effective(n_ctx_seq=256),
)


@pytest.mark.parametrize(
    ("shows", "matched"),
    [
        (Signature(kind=Kind.ALLOCATION), True),
        (Signature(kind=Kind.CRASH), False),
        (Signature(component=Component.RS), True),
        (Signature(component=Component.KV), False),
        (Signature(exit_status=1), True),
        (Signature(exit_status=-6), False),
        (Signature(outcome=TrialOutcome.FAILED, log="second .ine"), True),
        (Signature(outcome=TrialOutcome.READY, log="second .ine"), False),
        (Signature(log="third"), False),
        (Signature(effective={"n_ctx_seq": 256}), True),
        (Signature(effective={"n_ctx_seq": 512}), False),
    ],
)
def test_a_signature_holds_whole_or_not(shows: Signature, matched: bool) -> None:
    found, text = matches(shows, FAILED, "first line\n  second line\n")
    assert found is matched
    assert bool(text) is matched
    if shows.log and matched:
        assert text == "second line"


@pytest.fixture
def lab(engine_path: Callable[[int], Path], tmp_path: Path) -> Lab:
    option = str(engine_path(10434))
    engine = find_engine(None, option=option, environ=clean_environment(), cwd=tmp_path)
    return Lab(engine, tmp_path)


RUN = EngineRun(flags="-c 1024 -np 16 --no-warmup")
SIXTEEN = Reproduction(
    name="sixteen",
    model=tiny("llama"),
    run=RUN,
    control=replace(RUN, flags="-c 1024 -np 4 --no-warmup"),
    shows=Signature(effective={"n_ctx": 4096}),
)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        ({}, "reproduced", ""),
        ({"run": SIXTEEN.control, "control": RUN}, "not reproduced", "served every request"),
        (
            {"control": replace(RUN, flags="-c 1024 -np 16 --no-warmup -cb")},
            "not reproduced",
            "the workaround does not change the outcome",
        ),
        (
            {"control": replace(RUN, flags="-c 1024 -ctv q8_0 -fa off")},
            "could not run",
            "the control did not start (exit status 1)",
        ),
        (
            {"control": replace(RUN, flags="--no-such-flag 3")},
            "could not run",
            "this engine has no --no-such-flag",
        ),
        (
            {"run": replace(RUN, flags="-c 256", limit=1 << 20, above="--ctx-sise 3")},
            "could not run",
            "what its limit is measured by does not start",
        ),
    ],
)
def test_verdicts(change: dict[str, object], verdict: str, reason: str, lab: Lab) -> None:
    found = lab.reproduce("a-gotcha", replace(SIXTEEN, **change))  # type: ignore[arg-type]
    assert found.verdict == verdict
    assert reason in found.reason
    assert found.build == 10434
    check_verdict(found)


@pytest.mark.engine
def test_what_is_not_here_is_told(lab: Lab) -> None:
    without = Lab(replace(lab.engine, rpc_server=None), lab.scratch)
    wants = replace(SIXTEEN, needs=(Needs.RPC_SERVER,))
    found = without.reproduce("a-gotcha", wants)
    assert (found.verdict, found.run) == ("could not run", None)
    assert "no ggml-rpc-server" in found.reason


@pytest.mark.engine
def test_a_run_with_workers(lab: Lab) -> None:
    run = EngineRun(
        flags="-c 1024 -np 16 -ngl 99 --no-warmup --rpc {workers}", workers=(Worker(), Worker())
    )
    found = lab.reproduce("a-gotcha", replace(SIXTEEN, run=run, needs=(Needs.RPC_SERVER,)))
    assert (found.verdict, found.reason) == ("reproduced", "")
    assert "workers on this machine" in found.machine


@pytest.mark.engine
@pytest.mark.parametrize(
    ("other", "verdict", "reason"),
    [
        (10068, "reproduced", ""),
        (10434, "could not run", "needs --worker-engine of another build"),
        (None, "could not run", "needs --worker-engine of another build"),
    ],
)
def test_a_worker_of_another_build(
    other: int | None, verdict: str, reason: str, lab: Lab, engine_path: Callable[[int], Path]
) -> None:
    if other is not None:
        option = str(engine_path(other))
        environ = clean_environment()
        lab.worker_engine = find_engine(None, option=option, environ=environ, cwd=lab.scratch)
    (one,) = registry().get("rpc-version-skew").reproductions
    found = lab.reproduce("rpc-version-skew", one)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert ("workers of build 10068" in found.machine) is (other == 10068)


@pytest.mark.engine
def test_a_worker_that_the_engine_takes(engine_path: Callable[[int], Path], tmp_path: Path) -> None:
    """Builds 10068 and 10092 speak the same version of the protocol."""
    engine, other = (
        find_engine(None, option=str(engine_path(b)), environ=clean_environment(), cwd=tmp_path)
        for b in (10068, 10092)
    )
    (one,) = registry().get("rpc-version-skew").reproductions
    found = Lab(engine, tmp_path, worker_engine=other).reproduce("rpc-version-skew", one)
    assert (found.verdict, found.run) == ("could not run", None)
    assert "takes workers of build 10092" in found.reason


@pytest.mark.engine
def test_prompts_that_begin_alike(lab: Lab) -> None:
    """Its control finds a checkpoint within what they share: nothing is read again."""
    one = registry().get("prompt-read-again").reproductions[0]
    assert one.run.shared
    assert lab.reproduce("prompt-read-again", one).verdict == "reproduced"


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("name", ["rs-alloc-slots", "rpc-prompt-cache-abort"])
def test_the_two_first_gotchas(name: str, lab: Lab) -> None:
    for reproduction in registry().get(name).reproductions:
        assert lab.reproduce(name, reproduction).verdict == "reproduced"
