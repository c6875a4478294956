"""What ``explain`` knows by its signs, and that it knows no more than the log says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from arriero.gotchas import registry
from arriero.gotchas.model import Sign
from arriero.gotchas.registry import Registry
from arriero.gotchas.signs import known_in
from arriero.jobs.explain import explain_chunks
from arriero.logs.model import EngineTag
from arriero.record import Explanation

SIGNS: dict[str, dict[str, list[str]]] = yaml.safe_load(
    (Path(__file__).parent / "signs.yaml").read_text("utf-8")
)


def _read(*lines: str) -> Explanation:
    return explain_chunks(["".join(line + "\n" for line in lines).encode()], "-")


def test_every_gotcha_with_signs_has_a_log() -> None:
    assert {entry.id for entry in registry().entries if entry.head.signs} == set(SIGNS)


@pytest.mark.parametrize("gotcha", sorted(SIGNS))
def test_a_log_shows_its_gotcha(gotcha: str) -> None:
    ((applies, lines),) = SIGNS[gotcha].items()
    known = {one.id: one for one in _read(*lines).known}
    assert gotcha in known
    assert known[gotcha].applies == applies
    assert 1 <= known[gotcha].line <= len(lines)
    assert known[gotcha].workaround == registry().get(gotcha).sections["Workaround"]


def test_a_sure_sign_excludes_every_other_sure_one() -> None:
    for gotcha, logs in SIGNS.items():
        for lines in logs.values():
            sure = {one.id for one in _read(*lines).known if one.applies == "yes"}
            assert len(sure | ({gotcha} if "yes" in logs else set())) <= 1


@pytest.mark.parametrize(
    "lines",
    [
        ["llama_server: server is listening on http://127.0.0.1:8080"],
        ["srv  llama_server: n_parallel is set to auto, using n_parallel = 4"],
        ["error loading model: unknown model architecture: 'nothing'"],
        [],
    ],
)
def test_a_log_that_shows_none(lines: list[str]) -> None:
    assert _read(*lines).known == ()


_LOG = "alloc_tensor_range: failed to allocate Vulkan0 buffer of size 1073741824"


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"device": "Vulkan"}, True),
        ({"device": "CUDA"}, False),
        ({"least": 1 << 30}, True),
        ({"least": (1 << 30) + 1}, False),
        ({"text": "Vulkan0 buffer"}, True),
        ({"text": "CUDA0 buffer"}, False),
        ({"notice": "size_line_absent"}, False),
        ({"builds": (9000, 9100)}, True),
    ],
)
def test_everything_that_a_sign_gives_must_hold(changes: dict[str, Any], fits: bool) -> None:
    entry = registry().get("vulkan-chunk-size")
    one = replace(entry, head=replace(entry.head, signs=(Sign(**changes),)))
    said = _read(_LOG)
    assert bool(known_in(said, Registry((one,)))) is fits


def test_a_log_that_names_another_build_does_not_show_it() -> None:
    entry = registry().get("vulkan-chunk-size")
    one = replace(entry, head=replace(entry.head, signs=(Sign(builds=(9000, 9100)),)))
    said = _read(_LOG)
    for build, fits in ((8999, False), (9000, True), (9100, True), (9101, False)):
        of = msgspec.structs.replace(said, engine=EngineTag(build=build))
        assert bool(known_in(of, Registry((one,)))) is fits
