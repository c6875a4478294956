"""What ``arriero serve`` decides before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec
import pytest

from arriero.advice import advise
from arriero.base.errors import ArrieroError, UsageError
from arriero.cli._argv import take_apart
from arriero.command import builtin_flags, parse_command
from arriero.gguf import Shape, read_header, write_model
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.jobs._fitting import Fitted, chosen, refuse_misfit
from arriero.jobs._listening import refuse_open
from arriero.jobs.plan import Planning
from arriero.jobs.serve import ServeOptions, assign
from arriero.launch import serving_of
from arriero.memory import Planner, parse_pools
from arriero.memory.frontier import WhatIf
from arriero.process import temporary_directory
from arriero.record import Event
from arriero.report.progress import Silent
from arriero.serve.assignment import Assignment
from arriero.serve.settings import TABLE, Listen, Settings
from arriero.serve.settings_sources import Sources, Value
from arriero.store import Store

WIDE = Shape(
    arch="llama", name="wide-kv", layers=2, embedding=64, heads=128, heads_kv=128, head_dim=64,
    feed_forward=64,
)  # fmt: skip
"""64 KiB of KV for each token: a TiB for 16 million, and their cells still take no time."""
KEY = "sk-arriero-0123456789"


@dataclass
class Door:
    """The front door without what is behind it."""

    home: Path
    engine: Path
    model: Path
    environ: dict[str, str]
    notes: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def assign(
        self,
        words: Sequence[str],
        options: dict[str, Value] | None = None,
        *,
        force: bool = False,
        bare: bool = False,
    ) -> Assignment:
        return assign(
            words,
            ServeOptions(Sources(options or {}, self.environ, self.home), force, bare),
            tell=self.events.append,
            note=self.notes.append,
            store=Store(self.home / "store"),
            progress=Silent(),
        )

    def command(self, text: str = "") -> list[str]:
        return [str(self.engine), "-m", str(self.model), *text.split()]

    def refused(
        self, words: Sequence[str], options: dict[str, Value] | None = None, **more: bool
    ) -> ArrieroError:
        with pytest.raises(ArrieroError) as caught:
            self.assign(words, options, **more)
        assert caught.value.hint
        assert "\n" not in caught.value.message
        return caught.value


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "m.gguf", tiny("llama"))


@pytest.fixture
def door(
    tmp_path: Path,
    model: Path,
    engine_path: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> Door:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    environ = {
        "PATH": "/usr/bin:/bin", "GGML_VK_VISIBLE_DEVICES": "99", "TMPDIR": str(tmp_path),
    }  # fmt: skip
    return Door(tmp_path, engine_path(10068), model, environ)


@pytest.mark.engine
def test_a_command_that_fits_is_served_as_it_is(door: Door) -> None:
    words = door.command("-c 512 -np 1 --port 9123 -cram 64")
    found = door.assign(words)
    assert list(found.command.words) == words
    assert found.listen == Listen("127.0.0.1", 9123)
    assert found.gates == ()
    assert door.events == []
    assert [pool.name for pool in found.pools] == ["host"]
    assert found.build == 10068
    assert found.model == "m.gguf"


@pytest.mark.engine
def test_what_exact_sums_show_not_to_fit_is_refused_with_a_command_that_fits(door: Door) -> None:
    door.model = write_model(door.home / "wide.gguf", WIDE, weights="zeros")
    words = door.command("-c 16000000 -np 1 -cram 0")
    error = door.refused(words)
    assert (error.exit_code, error.id) == (1, "does-not-fit")
    assert "host has" in error.message
    begun = f"arriero serve -- {door.engine} -m {door.model} -c "
    assert error.hint.startswith(begun)
    # not started: what is free on a busy machine is another amount by now
    assert 0 < int(error.hint.removeprefix(begun).split()[0]) < 16000000


@pytest.mark.engine
def test_force_starts_what_does_not_fit_and_says_so(door: Door) -> None:
    door.model = write_model(door.home / "wide.gguf", WIDE, weights="zeros")
    found = door.assign(door.command("-c 16000000 -np 1 -cram 0"), force=True)
    assert found.command.number("-c") == 16000000
    assert any("too small by exact sums" in note for note in door.notes)


@pytest.mark.engine
def test_caches_are_capped_and_it_is_told(door: Door) -> None:
    found = door.assign(door.command("-c 512 -np 1 -cram 9000000"))
    (gate,) = found.gates
    assert gate.change.startswith("-cram 9000000 -> ")
    assert found.command.number("-cram") != 9000000
    (event,) = door.events
    assert (event.event, event.change, event.why) == ("gate", gate.change, gate.why)
    assert any(gate.change in note for note in door.notes)
    off = door.assign(door.command("-c 512 -np 1 -cram 9000000"), {"gates": "off"})
    assert off.gates == ()
    assert off.command.number("-cram") == 9000000


@pytest.mark.engine
@pytest.mark.parametrize("text", ["--host 0.0.0.0", "--host ::"])
def test_an_open_address_needs_a_key(door: Door, text: str) -> None:
    error = door.refused(door.command(text))
    assert (error.exit_code, error.id) == (2, "open-without-key")
    keys = door.home / "keys.txt"
    keys.write_text(f"# mine\n{KEY}\n")
    found = door.assign(door.command(text), {"api-key-file": (str(keys),)})
    assert found.redactor.secrets(f"key {KEY}") != f"key {KEY}"


@pytest.mark.engine
def test_a_listen_address_counts_before_the_command(door: Door) -> None:
    found = door.assign(door.command("--host 0.0.0.0"), {"listen": "127.0.0.1:9"})
    assert found.listen == Listen("127.0.0.1", 9)
    assert door.refused(door.command(), {"listen": "0.0.0.0:9"}).id == "open-without-key"


@pytest.mark.parametrize(
    ("listen", "key", "options", "wanted"),
    [
        (Listen("127.0.0.1", 1), "", Settings(), True),
        (Listen("127.8.8.8", 1), "", Settings(), True),
        (Listen("localhost", 1), "", Settings(), True),
        (Listen("::1", 1), "", Settings(), True),
        (Listen("", 0, Path("/x.sock")), "", Settings(), True),
        (Listen("", 1), "", Settings(), False),
        (Listen("0.0.0.0", 1), "", Settings(), False),  # noqa: S104 - compared
        (Listen("::ffff:192.0.2.1", 1), "", Settings(), False),
        (Listen("gpu.example", 1), "", Settings(), False),
        (Listen("gpu.example", 1), KEY, Settings(), True),
        (Listen("gpu.example", 1), "", Settings(allow_no_key=True), True),
    ],
)
def test_who_may_listen_without_a_key(
    listen: Listen, key: str, options: Settings, wanted: bool
) -> None:
    words = ["llama-server", "-m", "m.gguf", *(["--api-key", key] if key else [])]
    serving = serving_of(parse_command(words, builtin_flags(), {}), Path("/"))
    try:
        refuse_open(listen, serving, options)
    except UsageError:
        assert not wanted
    else:
        assert wanted


@pytest.mark.engine
def test_a_unix_socket_is_private(door: Door) -> None:
    found = door.assign(door.command("--host front.sock"))
    assert found.listen.socket == door.home / "front.sock"


@pytest.mark.parametrize("text", ["", "\n# only this\n"])
@pytest.mark.engine
def test_a_key_file_without_a_key_protects_nothing(door: Door, text: str) -> None:
    keys = door.home / "keys.txt"
    keys.write_text(text)
    error = door.refused(door.command("--host 0.0.0.0"), {"api-key-file": (str(keys),)})
    assert "no key" in error.message
    gone: dict[str, Value] = {"api-key-file": (str(door.home / "none"),)}
    assert "cannot read" in door.refused(door.command(), gone).message


@pytest.mark.engine
def test_a_prompt_key_or_flag_that_the_engine_refuses_is_told_before_the_start(door: Door) -> None:
    error = door.refused(door.command("--no-such-flag"))
    assert (error.exit_code, error.id) == (2, "flag-unknown")
    assert door.refused(door.command("--version")).id == "ends-at-once"


@pytest.mark.engine
def test_nothing_to_serve(door: Door) -> None:
    assert door.refused([]).exit_code == 2
    words = [str(door.engine), "-m", "none.gguf"]
    assert door.refused(words).exit_code == 3
    assert door.refused(["/none/llama-server", "-m", str(door.model)]).exit_code == 3


@pytest.mark.engine
def test_the_command_can_stand_in_the_file(door: Door) -> None:
    config = door.home / "serve.toml"
    words = msgspec.json.encode(door.command("-c 512 -np 1 -cram 64")).decode()
    config.write_text(f'command = {words}\nhold = "1m"\n')
    found = door.assign([], {"config": str(config)}, bare=True)
    assert found.command.value("-c") == "512"
    assert found.settings.hold == 60.0


@pytest.mark.engine
def test_what_an_earlier_run_left_is_told(door: Door) -> None:
    left = temporary_directory() / "arriero-1-dead"
    left.mkdir()
    (left / "arriero.lock").touch()
    (left / "engine.log").write_text("x")
    door.assign(door.command("-c 512 -np 1 -cram 64"))
    assert not left.exists()
    assert any("earlier run" in note and str(left) in note for note in door.notes)


@pytest.mark.engine
def test_a_router_is_served_without_a_plan(door: Door) -> None:
    found = door.assign([str(door.engine), "--models-dir", str(door.model.parent)])
    assert found.serving.router
    assert found.pools == ()
    assert any("router" in note for note in door.notes)


def test_settings_are_options_and_the_rest_is_the_servers() -> None:
    argv = ["serve", "--hold", "5s", "--json", "m.gguf", "-c", "512", "--gates=off", "--force"]
    found = take_apart(argv)
    assert found.own == ["serve", "--hold", "5s", "--json", "--gates=off", "--force"]
    assert found.words == ["m.gguf", "-c", "512"]
    assert found.bare


def test_every_setting_is_an_option() -> None:
    from arriero.cli.serve import serve

    own = serve.takes_value()
    assert {one.option for one in TABLE} <= set(own)
    assert {one.option: not one.switch for one in TABLE}.items() <= own.items()


@pytest.mark.engine
def test_wrong_settings_name_themselves(door: Door) -> None:
    with pytest.raises(UsageError, match="--hold"):
        door.assign(["x"], {"hold": "soon"})


# --- with a model alone -------------------------------------------------------------------------


def fit_of(model: Path, text: str, pools: str) -> Fitted:
    command = parse_command(["llama-server", "-m", str(model), *text.split()], builtin_flags(), {})
    header = read_header(model)
    planner = Planner(header, parse_pools(pools), model=model)
    what_if = WhatIf(planner.quick)
    counsel = advise(command, header, what_if)
    plan = msgspec.structs.replace(what_if.plan(command), advice=counsel.advice)
    return Fitted(command, plan, what_if, cast("Planning", None))


@pytest.mark.parametrize("pools", ["host=3GiB", "host=1GiB", "CUDA0=2GiB,host=16GiB"])
def test_settings_that_fit_are_chosen(pools: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", LADDER_HYBRID, weights="zeros")
    fit = fit_of(model, "-c 400000 -np 8", pools)
    assert any(pool.is_short for pool in fit.plan.pools)
    found, told = chosen(fit)
    assert told
    assert not any(pool.is_short for pool in found.plan.pools)
    assert found.command.value("-m") == str(model)


def test_defaults_that_fit_are_kept(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", LADDER_HYBRID, weights="zeros")
    fit = fit_of(model, "", "host=256GiB")
    assert chosen(fit) == (fit, "")


def test_what_no_change_makes_fit_is_left_to_the_refusal(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", LADDER_HYBRID, weights="zeros")
    fit = fit_of(model, "-c 400000 -np 8", "host=8MiB")
    assert chosen(fit) == (fit, "")
    with pytest.raises(ArrieroError, match="does not fit"):
        refuse_misfit(fit.plan)
