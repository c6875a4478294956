"""The page of a real server with a real engine: it is killed, and the incident appears."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.browser import Tab, browsing, needs_browser
from tests.serve.control.test_page import COMPLAINTS, STATE, WIDER, shown
from tests.serve.front import Front
from tests.serve.model import small_model

pytestmark = [pytest.mark.slow, pytest.mark.engine, needs_browser]

PROMPT = "Tell the story of the blue whale and the lighthouse keeper"


async def answered(url: str, begun: asyncio.Event, *, stream: bool) -> None:
    """Ask for one long answer, and read it to its end."""
    body = {"prompt": PROMPT, "n_predict": 150, "temperature": 0, "ignore_eos": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + "/completion", json={**body, "stream": stream}) as answer,
    ):
        assert answer.status == 200
        text = b""
        async for piece in answer.content.iter_any():
            begun.set()
            text += piece
    assert b'"error"' not in text
    assert b'"stop":true' in text


async def killed(tab: Tab, front: Front, *, stream: bool) -> None:
    """Kill the engine while it answers; back when the page shows that it is answered after all."""
    before = await tab.value("document.querySelectorAll('.incident').length")
    begun = asyncio.Event()
    answer = asyncio.create_task(answered(front.url, begun, stream=stream))
    await tab.until(f"{shown('in-flight')} === '1' && document.querySelector('.busy')")
    if stream:
        await asyncio.wait_for(begun.wait(), 60)
    os.kill(front.engine_pid(), signal.SIGKILL)
    await tab.until(f"document.querySelectorAll('.incident').length === {before + 1}")
    await tab.until(f"{STATE} === 'ready' && !document.querySelector('.incident .open')", 60)
    await answer
    await tab.until(f"{shown('in-flight')} === '0'")


async def killed_while_looked_at(front: Front, profile: Path) -> None:
    page = front.url + "/arriero/"
    async with browsing(profile) as tab_of:
        tab: Tab = tab_of()
        await tab.open(page, width=1200, scheme="light")
        await tab.until(f"{STATE} === 'ready' && {shown('incidents')} === 'None so far.'")
        await killed(tab, front, stream=False)
        await killed(tab, front, stream=True)
        incidents = await tab.value(shown("incidents"))
        assert incidents.count("Killed by SIGKILL") == 2
        assert incidents.count("without an engine") == 2
        memory = await tab.value(shown("memory"))
        assert "taken" in memory
        assert "planned" in memory
        assert "tokens/s" in await tab.value(shown("tps"))
        await tab.value("document.querySelector('.incident').open = true")
        await tab.until("document.querySelector('.incident pre').innerText.length > 200")
        whole = await tab.value("document.documentElement.outerHTML")
        assert "lighthouse" not in whole
        assert await tab.value(WIDER) == 0
        assert tab.named(*COMPLAINTS) == []


@pytest.mark.parametrize("build", [10434])
def test_a_kill_is_seen_on_the_page(
    build: int, engine_path: Callable[[int], Path], tmp_path: Path
) -> None:
    options = ["-c", "2048", "-np", "1", "--port", "0"]
    with Front(tmp_path, [engine_path(build), "-m", small_model(), *options]) as front:
        asyncio.run(killed_while_looked_at(front, tmp_path / "profile"))
        status = front.status()
        assert status["requests"]["lost"] == 0
        streamed, whole = (
            json.loads(front.get(f"/arriero/incidents/{id_}")) for id_ in status["incidents"]
        )
        assert streamed["signal"] == whole["signal"] == "SIGKILL"
        assert streamed["requests"]["continued"] == 1
        # One that is wanted whole goes on as well, unless nothing of its answer was there yet.
        assert whole["requests"]["continued"] + whole["requests"]["replayed"] == 1
        metrics = front.get("/arriero/metrics").decode()
        assert 'arriero_incidents_total{kind="killed"} 2.0' in metrics
