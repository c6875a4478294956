"""With which command a lost engine is started again when memory, or a worker, was the cause."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arriero.base.sizes import GIB
from arriero.base.words import Component, Kind
from arriero.command import Command, builtin_flags, parse_command
from arriero.engine import Engine
from arriero.gguf import write_model
from arriero.gguf.presets import LADDER_DENSE, LADDER_HYBRID
from arriero.jobs import _policy
from arriero.jobs._policy import Policy
from arriero.logs.model import Failure
from arriero.machine import Pool
from arriero.memory import parse_pools

ENGINE = cast("Engine", SimpleNamespace(build=10434, path=Path("llama-server")))
KILLED = Failure(kind=Kind.KILLED, fatal=True, line=0, text="SIGKILL")
SHORT_OF_KV = Failure(
    kind=Kind.ALLOCATION, component=Component.KV, fatal=True, line=1, text="failed to allocate"
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("models")
    write_model(home / "dense.gguf", LADDER_DENSE, weights="zeros")
    write_model(home / "hybrid.gguf", LADDER_HYBRID, weights="zeros")
    return home


def machine(monkeypatch: pytest.MonkeyPatch, held: str) -> list[str | None]:
    """A machine with these pools; what workers the engine was asked for."""
    asked: list[str | None] = []

    def devices(*_: Any, rpc: str | None = None) -> tuple[()]:
        asked.append(rpc)
        return ()

    def pools(_: Sequence[Any]) -> tuple[Pool, ...]:
        return parse_pools(held)

    monkeypatch.setattr(_policy, "list_devices", devices)
    monkeypatch.setattr(_policy, "pools", pools)
    return asked


def command(text: str) -> Command:
    return parse_command(["llama-server", *text.split()], builtin_flags(), {})


def test_each_smaller_command_takes_less_until_there_is_none(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, "host=64GiB")
    policy, now = Policy(ENGINE, models), command("-m hybrid.gguf -c 8192 -np 4")
    seen = []
    while (found := policy.smaller(now, SHORT_OF_KV)) is not None:
        seen.append(found.change)
        now = found.command
        assert len(seen) < 20
    assert seen[:2] == ["-np 4 -> 2", "-np 2 -> 1"]
    assert seen[2].startswith("-c 8192 -> ")
    assert now.value("-m") == "hybrid.gguf"
    assert now.number("-c") == 512


def test_a_kill_first_costs_the_caches(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "host=64GiB")
    found = Policy(ENGINE, models).smaller(command("-m hybrid.gguf -c 8192 -np 4"), KILLED)
    assert found is not None
    assert found.command.value("-cram") == "0"
    assert found.command.value("-np") == "4"


def test_what_the_plan_recommends_comes_first(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, "host=3GiB")
    now = command("-m dense.gguf -c 262144 -np 4 -cram 0 --api-key sk-secret-0123456789")
    found = Policy(ENGINE, models).smaller(now, SHORT_OF_KV)
    assert found is not None
    assert "sk-secret-0123456789" in found.command.words
    assert found.command.effective() != now.effective()
    assert "sk-secret" not in found.change


def test_without_a_model_here_nothing_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "host=3GiB")
    policy = Policy(ENGINE, Path("/"))
    assert policy.smaller(command("-hf some/model"), KILLED) is None
    assert policy.smaller(command("-m none.gguf"), KILLED) is None


# --- workers ------------------------------------------------------------------------------------

WORKERS = "--rpc a:1,b:2"


def test_a_gone_worker_is_left_out_where_the_rest_holds_it(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = machine(monkeypatch, "RPC0=8GiB,host=64GiB")
    now = command(f"-m dense.gguf -c 4096 -np 1 {WORKERS} -ts 1,1 -cram 64")
    found = Policy(ENGINE, models).without(now, frozenset({"a:1"}))
    assert found is not None
    assert found.command.value("--rpc") == "b:2"
    assert not found.command.has("-ts")
    assert found.change.startswith("without the worker a:1")
    assert asked == ["b:2"]


def test_the_last_worker_leaves_the_machine_itself(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, "host=64GiB")
    now = command("-m dense.gguf -c 4096 -np 1 --rpc a:1 -cram 64")
    found = Policy(ENGINE, models).without(now, frozenset({"a:1"}))
    assert found is not None
    assert not found.command.has("--rpc")


def test_what_the_rest_does_not_hold_stays(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, "RPC0=64MiB,host=64MiB")
    now = command(f"-m dense.gguf -c 65536 -np 1 {WORKERS} -cram 64")
    assert Policy(ENGINE, models).without(now, frozenset({"a:1"})) is None


@pytest.mark.parametrize("more", ["", "-ot blk=RPC0[a:1]"])
def test_what_cannot_be_told_apart_stays(
    more: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, "host=64GiB")
    lost = frozenset({"a:1"} if more else {"c:3"})
    now = command(f"-m dense.gguf -c 4096 {WORKERS} {more}")
    assert Policy(ENGINE, models).without(now, lost) is None


def test_a_worker_named_outside_the_command_stays(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, f"host={64 * GIB}")
    flags = builtin_flags()
    now = parse_command(
        ["llama-server", "-m", "dense.gguf", "-c", "4096"], flags, {"LLAMA_ARG_RPC": "a:1"}
    )
    assert Policy(ENGINE, models).without(now, frozenset({"a:1"})) is None
