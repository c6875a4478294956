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


async def answered(url: str) -> str:
    """The text of one long answer."""
    body = {"prompt": PROMPT, "n_predict": 150, "temperature": 0, "ignore_eos": True}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + "/completion", json=body) as answer,
    ):
        assert answer.status == 200
        return str((await answer.json())["content"])


async def killed_while_looked_at(front: Front, profile: Path) -> None:
    page = front.url + "/arriero/"
    async with browsing(profile) as tab_of:
        tab: Tab = tab_of()
        await tab.open(page, width=1200, scheme="light")
        await tab.until(f"{STATE} === 'ready' && {shown('incidents')} === 'None so far.'")
        answer = asyncio.create_task(answered(front.url))
        await tab.until(f"{shown('in-flight')} === '1' && document.querySelector('.busy')")
        os.kill(front.engine_pid(), signal.SIGKILL)
        await tab.until("document.querySelector('.incident')")
        await tab.until(
            f"{STATE} === 'ready' && {shown('incidents')}.includes('started again')", 60
        )
        assert await answer
        await tab.until(f"{shown('in-flight')} === '0'")
        incidents = await tab.value(shown("incidents"))
        assert "Killed by SIGKILL" in incidents
        assert "without an engine" in incidents
        assert "GiB planned" in await tab.value(
            shown("memory")
        ) or "MiB planned" in await tab.value(shown("memory"))
        assert "taken" in await tab.value(shown("memory"))
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
        assert len(status["incidents"]) == 1
        kept = json.loads(front.get(f"/arriero/incidents/{status['incidents'][0]}"))
        assert kept["signal"] == "SIGKILL"
        requests = kept["requests"]
        assert requests["in_flight"] == requests["replayed"] + requests["continued"] == 1
        metrics = front.get("/arriero/metrics").decode()
        assert 'arriero_incidents_total{kind="killed"} 1.0' in metrics
