"""A real engine goes on with its own answers, and answers built from its streams are its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.serve.cutting import APIS, Cutter, question
from tests.serve.direct import direct
from tests.serve.model import small_model

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]
PROMPT = "Say 𓀀𓀁𓀂 漢字 and 🐫."
"""Characters that are several tokens, and those that are one: the model repeats them."""
MOST = 18  # inside a character, where the API adds nothing to the prompt


@pytest.fixture(scope="module")
def url(
    engine_path: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("engine") / "log"
    words: list[str | Path] = ["-m", small_model(), "-np", "1", "-c", "256"]
    with direct(engine_path(10434), words, log) as (found, _):
        yield found


@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_is_cut_goes_on_as_the_engine_does(api: str, url: str) -> None:
    cutter = Cutter(url, question(api, PROMPT, MOST))
    for at in (1, 5):
        cut = cutter.cut(at)
        assert cut.sent
        assert cut.after
        assert cut.right, cut


@pytest.mark.parametrize("api", [api for api in APIS if api != "the same, with usage"])
def test_a_whole_answer_is_the_engines_own(api: str, url: str) -> None:
    cutter = Cutter(url, replace(question(api, PROMPT, MOST), stream=False))
    mine, own = cutter.whole()
    assert mine == own
    cut = cutter.cut(5)
    assert cut.right, cut
