"""A death by an illegal instruction, with what the log does not know: the CPU it met."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from arriero import machine
from arriero.base.words import Kind
from arriero.command import builtin_flags, parse_command
from arriero.engine import find_engine
from arriero.logs.model import Cpu, Failure
from arriero.trial import failure as failures

pytestmark = pytest.mark.engine
ENGINE = 10068


@pytest.fixture
def told(
    engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Failure]:
    def tell(needs: tuple[str, ...], has: str | None = None) -> Failure:
        if has is not None:
            there = frozenset(has.split())
            every = frozenset({"AVX2", "AVX512", "AVX512_VNNI", "AVX_VNNI", "AMX_INT8"})
            monkeypatch.setattr(
                failures,
                "cpu_behind",
                lambda wrapper, environ: machine.CpuFeatures(there, every - there),
            )
        path = engine_path(ENGINE)
        engine = find_engine(None, option=str(path), environ=os.environ, cwd=path.parent)
        command = parse_command(["llama-server", "-m", "x"], builtin_flags(), dict(os.environ))
        failure = Failure(
            kind=Kind.ENVIRONMENT,
            fatal=True,
            line=9,
            text="Illegal instruction",
            cpu=Cpu(needs=needs),
        )
        return failures.on_this_cpu(failure, engine, command)

    return tell


def test_what_this_cpu_lacks(told: Callable[..., Failure]) -> None:
    failure = told(("AVX2", "AVX512"), "AVX2")
    assert failure.kind is Kind.ENVIRONMENT
    assert failure.cpu == Cpu(needs=("AVX2", "AVX512"), lacks=("AVX512",))


def test_a_cpu_that_has_it_all_makes_it_a_crash(told: Callable[..., Failure]) -> None:
    failure = told(("AVX2", "AVX512"), "AVX2 AVX512")
    assert (failure.kind, failure.cpu) == (Kind.CRASH, None)


def test_a_feature_that_nobody_knows_of_leaves_it_open(told: Callable[..., Failure]) -> None:
    failure = told(("AVX2", "AVX1024"), "AVX2 AVX512")
    assert (failure.kind, failure.cpu) == (Kind.ENVIRONMENT, Cpu(needs=("AVX2", "AVX1024")))


def test_without_the_line_in_the_log_the_library_is_asked(told: Callable[..., Failure]) -> None:
    cpu = told((), "SSE3").cpu
    assert cpu is None or "AVX2" in cpu.needs


def test_any_other_failure_stays_as_it_is(engine_path: Callable[[int], Path]) -> None:
    path = engine_path(ENGINE)
    engine = find_engine(None, option=str(path), environ=os.environ, cwd=path.parent)
    command = parse_command(["llama-server", "-m", "x"], builtin_flags(), {})
    failure = Failure(kind=Kind.CRASH, fatal=True, line=1, text="x")
    assert failures.on_this_cpu(failure, engine, command) is failure
