"""What a launch says of a command, against what servers of three builds log of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from arriero.base.sizes import MIB
from arriero.command import builtin_flags, parse_command
from arriero.gguf import write_model
from arriero.gguf.presets import LADDER_HYBRID
from arriero.launch import Launch, launch_of
from tests.gguf.serving import serve

_SLOTS = re.compile(r"n_slots = (\d+), n_ctx_slot = \d+, kv_unified = '(\w+)'")
_CACHE = re.compile(r"prompt cache is enabled, size limit: (?:(\d+) MiB|no limit)")
_CHECKPOINTS = re.compile(r"context checkpoints enabled, max = (\d+)")
_WEIGHTS = re.compile(r"(CPU|CPU_Mapped) model buffer size = +(\d+\.\d+) MiB")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("model")
    return write_model(home / "m.gguf", replace(LADDER_HYBRID, layers=4), weights="zeros")


def meaning(log: str) -> tuple[object, ...]:
    """Slots, layout, limit of the prompt cache, checkpoints, and whether weights are mapped."""
    slots, cache, checkpoints = (p.search(log) for p in (_SLOTS, _CACHE, _CHECKPOINTS))
    assert slots is not None
    weights = max(_WEIGHTS.findall(log), key=lambda found: float(found[1]))
    return (
        int(slots[1]),
        slots[2] == "true",
        (int(cache[1]) * MIB if cache[1] else None) if cache else 0,
        int(checkpoints[1]) if checkpoints else 0,
        weights[0] == "CPU_Mapped",
    )


def meant(made: Launch) -> tuple[object, ...]:
    slots = made.slots
    return (slots.count, slots.unified, made.cache_ram, made.checkpoints, made.mmap)


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, pytest.param(10092, marks=pytest.mark.slow), 10434])
@pytest.mark.parametrize(
    "flags",
    [
        "-no-kvu --mlock",
        "-np 2 -kvu -cram 512x -ctxcp 5x",
        "-np 3 -cram -7 -ctxcp -3 --mlock --no-mmap",
        "-np -5 -cram 0 -ctxcp 0 -dio",
    ],
)
def test_as_the_server_logs_it(
    flags: str, build: int, model: Path, engine_path: Callable[[int], Path]
) -> None:
    more = [*flags.split(), "-c", "1024", "-nr", "-ngl", "0", "--no-warmup", "-lv", "5"]
    with serve(engine_path(build), model, *more) as server:
        logged = meaning(server.log)
    words = ["llama-server", "-m", str(model), *more]
    assert meant(launch_of(parse_command(words, builtin_flags(build), {}))) == logged
