"""How many slots a server has where its log does not say: by /props, and by that alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arriero.command import builtin_flags, parse_command
from arriero.launch import Serving, serving_of
from arriero.process import free_port
from arriero.trial import run
from arriero.trial.client import slots_in


@pytest.mark.parametrize(
    "props",
    [
        *(None, [], "hello", {}, {"total_slots": 4}, {"total_slots": 4, "n_ctx": 1}),
        {"total_slots": "many", "default_generation_settings": {"n_ctx": 512}},
        {"total_slots": float("inf"), "default_generation_settings": {"n_ctx": 512}},
        {"total_slots": 4, "default_generation_settings": None},
    ],
)
def test_what_no_llama_server_says(props: Any) -> None:
    with pytest.raises(ValueError):
        slots_in(props)


def test_what_a_llama_server_says() -> None:
    assert slots_in({"total_slots": 4, "default_generation_settings": {"n_ctx": 512}}) == (4, 512)


def test_who_does_not_answer_gets_one_slot(tmp_path: Any) -> None:
    words = ["llama-server", "--host", "127.0.0.1", "--port", str(free_port())]
    server: Serving = serving_of(parse_command(words, builtin_flags(), {}), tmp_path)
    assert asyncio.run(run._slots(server, None, None)) == (1, 512)


def test_a_mistake_of_ones_own_is_not_taken_for_silence(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise AttributeError("no such thing")

    monkeypatch.setattr(run, "Client", broken)
    server = serving_of(parse_command(["llama-server"], builtin_flags(), {}), tmp_path)
    with pytest.raises(AttributeError):
        asyncio.run(run._slots(server, None, None))
