"""The page in a real browser: what it shows, what it must not do."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.report.laid_out import html
from tests.report.plans import plans
from tests.report.variants import diagnoses, explanations, verifications

pytestmark = pytest.mark.slow

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LIGHT, DARK = "light", "dark"
WIDE = 1920
PAGES = {
    **{name: html(diagnoses()[name]) for name in ("example", "hostile", "gpus", "unicode")},
    **{
        f"plan {name}": html(plans()[name])
        for name in ("example", "ladder", "frontier", "two cards", "hostile")
    },
    "log": html(explanations()["router"]),
    "load": html(verifications()["failed"]),
}


class Tab:
    """One page, steered over Chromium's debugging protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._last = 0
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> Any:
        self._last += 1
        await self._socket.send_json({"id": self._last, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json(timeout=30)
            if message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    async def value(self, expression: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def open(self, url: str, *, width: int, scheme: str) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call("Page.navigate", url=url)
        while await self.value("document.readyState") != "complete":
            await asyncio.sleep(0.05)

    def named(self, *methods: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["method"] in methods]


async def look(tab: Tab, page: Path, width: int, scheme: str) -> dict[str, Any]:
    await tab.open(page.as_uri(), width=width, scheme=scheme)
    shot = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
    return {
        "requests": [
            event["params"]["request"]["url"] for event in tab.named("Network.requestWillBeSent")
        ],
        "complaints": tab.named(
            "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"
        ),
        "hacked": await tab.value("typeof window.hacked"),
        "scripts": await tab.value("document.scripts.length"),
        "page": await tab.value("getComputedStyle(document.body).backgroundColor"),
        "wider": await tab.value("(e => e.scrollWidth - e.clientWidth)(document.documentElement)"),
        "cut": await tab.value(
            "[...document.querySelectorAll('.scroll')]"
            ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.ariaLabel)"
        ),
        "bars": await tab.value(
            "[...document.querySelectorAll('rect')]"
            ".filter(r => r.getBoundingClientRect().width > 0).length"
        ),
        "fill": await tab.value(
            "(e => e && getComputedStyle(e).fill)(document.querySelector('.fill-rs'))"
        ),
        "shot": base64.b64decode(shot["data"]),
    }


async def visit(
    page: Path, profile: Path, looks: Sequence[tuple[int, str]]
) -> list[dict[str, Any]]:
    """What a page is at each width and colour scheme."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    process = subprocess.Popen(
        [
            browser,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
            *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        told = profile / "DevToolsActivePort"
        for _ in range(300):
            if told.exists() and "\n" in told.read_text():
                break
            await asyncio.sleep(0.1)
        port = told.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as reply:
                tabs = await reply.json()
            target = next(tab for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                return [await look(Tab(socket), page, *one) for one in looks]
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no Chromium on this machine")
@pytest.mark.parametrize("name", PAGES)
def test_the_page_in_a_browser(name: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(PAGES[name], encoding="utf-8")
    looks = [*itertools.product((390, 1100), (LIGHT, DARK)), (WIDE, LIGHT)]
    views = asyncio.run(visit(page, tmp_path / "profile", looks))
    for (width, scheme), seen in zip(looks, views, strict=True):
        check(name, page, scheme, seen)
        if width == WIDE:
            assert seen["cut"] == [], "a table is cut off although the screen has room for it"


def check(name: str, page: Path, scheme: str, seen: dict[str, Any]) -> None:
    assert seen["requests"] == [page.as_uri()]
    assert seen["complaints"] == []
    assert seen["hacked"] == "undefined"
    assert seen["scripts"] == 0
    assert seen["page"] == {LIGHT: "rgb(255, 255, 255)", DARK: "rgb(18, 22, 27)"}[scheme]
    assert seen["wider"] == 0, "the page itself must not scroll sideways"
    assert seen["bars"] > 5 or name in ("log", "load")
    assert len(seen["shot"]) > 10_000
    if name in ("example", "plan example"):
        assert seen["fill"] == "rgb(213, 94, 0)", "the style sheet was refused by the policy"
