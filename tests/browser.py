"""A real browser, steered over Chromium's debugging protocol."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
needs_browser = pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)), reason="no Chromium on this machine"
)


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

    async def until(self, expression: str, seconds: float = 30.0) -> None:
        """Wait until an expression is true."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.value(f"!!({expression})"):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.value("document.body.innerText")
            raise AssertionError(
                f"{expression} did not come true; the page shows:\n{shown}"
            ) from None

    async def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def named(self, *methods: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["method"] in methods]


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Callable[[], Tab]]:
    """A browser with one tab; each call gives it anew, without the events before."""
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
                yield lambda: Tab(socket)
    finally:
        process.terminate()
        process.wait(timeout=20)
