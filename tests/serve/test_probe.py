"""Saves are tried before the start, on a copy of the model without weights."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arriero.base.errors import EngineError
from arriero.base.redact import Redactor
from arriero.base.words import Kind, TrialOutcome
from arriero.command import builtin_flags, parse_command
from arriero.engine import find_engine, list_devices
from arriero.gguf import read_header, write_model
from arriero.gguf.presets import tiny
from arriero.logs.model import Effective, Failure
from arriero.record import EngineRecord, Peak, Requests, Speed, Trial
from arriero.serve import probe as module
from arriero.serve.probe import Prober
from arriero.store import Store
from arriero.trial import TrialSpec
from tests.serve.fake_engine import Home

RECORD = EngineRecord(
    path="llama-server", found_by="PATH", version="1", build=1, commit=None, backends=()
)


def trial(outcome: TrialOutcome, text: str = "GGML_ASSERT") -> Trial:
    failure = Failure(kind=Kind.CRASH, fatal=True, line=1, text=text)
    return Trial(
        n=1,
        purpose="gate",
        change={},
        argv=(),
        env={},
        outcome=outcome,
        failure=None if outcome is TrialOutcome.SERVED else failure,
        buffers=(),
        effective=Effective(),
        ready_s=None,
        seconds=0.0,
        peak=Peak(),
        headroom=None,
        requests=Requests(),
        speed=Speed(),
        valid=True,
        why_invalid=None,
    )


@pytest.fixture
def prober(tmp_path: Path) -> Prober:
    program = Home(tmp_path / "engine").install()
    engine = find_engine(str(program), option=None, environ=dict(os.environ), cwd=tmp_path)
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    (tmp_path / "scratch").mkdir()
    return Prober(
        engine=engine,
        devices=(),
        record=RECORD,
        header=read_header(model),
        store=Store(tmp_path / "store"),
        redactor=Redactor(),
        scratch=tmp_path / "scratch",
        cwd=tmp_path,
    )


def ran(
    prober: Prober, monkeypatch: pytest.MonkeyPatch, dies: Callable[[Any], TrialOutcome]
) -> tuple[Any, list[Any]]:
    """What a probe found where trials end as told, and the commands that it tried."""
    tried = []

    def run_trial(spec: TrialSpec, _: object) -> Trial:
        tried.append(spec.command)
        return trial(dies(spec.command))

    monkeypatch.setattr(module, "run_trial", run_trial)
    return prober.probe(asked(prober)), tried


def asked(prober: Prober, text: str = "-c 512 -md draft.gguf") -> Any:
    words = ["llama-server", "-m", str(prober.cwd / "m.gguf"), *text.split()]
    return parse_command(words, builtin_flags(), {})


def test_what_serves_is_left_on(prober: Prober, monkeypatch: pytest.MonkeyPatch) -> None:
    found, tried = ran(prober, monkeypatch, lambda _: TrialOutcome.SERVED)
    assert (found.outcome, found.change, found.launches) == ("held", {}, 1)
    (command,) = tried
    assert command.value("-m") == str(prober.scratch / "weightless" / "m.gguf")
    assert not command.has("-md")
    assert not command.has("-cram")


def test_the_least_that_helps_is_turned_off(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_prompts(command: Any) -> TrialOutcome:
        return TrialOutcome.SERVED if command.value("-cram") == "0" else TrialOutcome.READY

    found, tried = ran(prober, monkeypatch, only_prompts)
    assert (found.outcome, found.change) == ("broke", {"-cram": "0"})
    assert found.why == "GGML_ASSERT"
    assert len(tried) == 2


def test_checkpoints_are_turned_off_where_prompts_alone_do_not_help(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(command: Any) -> TrialOutcome:
        return TrialOutcome.SERVED if command.value("-ctxcp") == "0" else TrialOutcome.READY

    found, _ = ran(prober, monkeypatch, both)
    assert (found.outcome, found.change) == ("broke", {"-cram": "0", "-ctxcp": "0"})


@pytest.mark.parametrize("outcome", [TrialOutcome.READY, TrialOutcome.FAILED])
def test_what_no_change_helps_proves_nothing(
    outcome: TrialOutcome, prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, tried = ran(prober, monkeypatch, lambda _: outcome)
    assert found.outcome == "could not run"
    assert "GGML_ASSERT" in found.why
    assert len(tried) == (3 if outcome is TrialOutcome.READY else 1)
    assert prober.known(asked(prober)) is None


def test_a_result_is_remembered_for_the_same_and_nothing_else(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = ran(prober, monkeypatch, lambda _: TrialOutcome.SERVED)
    assert prober.known(asked(prober)) == found
    same = asked(prober, "--port 99 -c 512 --api-key sk-0123456789 -md draft.gguf -a name")
    assert prober.known(same) == found
    assert prober.known(asked(prober, "-c 1024 -md draft.gguf")) is None
    assert prober.known(asked(prober, "-c 512 -md draft.gguf -ngl 1")) is None
    varied = parse_command(asked(prober).words, builtin_flags(), {"GGML_VK_X": "1"})
    assert prober.known(varied) is None


def test_a_worker_that_held_is_tried_again(prober: Prober, monkeypatch: pytest.MonkeyPatch) -> None:
    command = asked(prober, "--rpc a:1")
    monkeypatch.setattr(module, "run_trial", lambda *_: trial(TrialOutcome.SERVED))
    assert prober.probe(command).outcome == "held"
    assert prober.known(command) is None


def test_an_engine_that_cannot_be_started_is_no_result(
    prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_trial(*_: object) -> Trial:
        raise EngineError("it cannot be executed")

    monkeypatch.setattr(module, "run_trial", run_trial)
    found = prober.probe(asked(prober))
    assert found.outcome == "could not run"
    assert "cannot be executed" in found.why


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(("block", "outcome"), [("1048576", "broke"), ("1073741824", "held")])
def test_the_save_abort_is_foreseen(
    block: str, outcome: str, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    """On lavapipe with blocks smaller than a KV tensor, and with blocks that hold one."""
    if not any(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*")):
        pytest.skip("no lavapipe on this machine")
    environ = {
        "PATH": os.environ["PATH"],
        "GGML_VK_VISIBLE_DEVICES": "0",
        "GGML_VK_SUBALLOCATION_BLOCK_SIZE": block,
    }
    path = str(engine_path(10068))
    engine = find_engine(path, option=None, environ=environ, cwd=tmp_path)
    model = write_model(tmp_path / "m.gguf", tiny("llama"))
    text = f"{path} -m {model} -c 32768 -np 1 -ngl 99 -dev Vulkan0 --no-warmup"
    command = parse_command(text.split(), engine.flags, environ)
    prober = Prober(
        engine=engine,
        devices=list_devices(engine, environ) or (),
        record=RECORD,
        header=read_header(model),
        store=Store(tmp_path / "store"),
        redactor=Redactor(),
        scratch=tmp_path,
        cwd=tmp_path,
    )
    found = prober.probe(command)
    assert found.outcome == outcome
    assert found.change == ({"-cram": "0"} if outcome == "broke" else {})
    assert prober.known(command) == found
