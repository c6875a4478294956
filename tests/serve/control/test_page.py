"""The page in a real browser: what it shows, what it asks for, what it must not do."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arriero.base.words import Recovery, ServerState
from arriero.record import MemoryUse, SlotUse, Status
from tests.browser import Tab, browsing, needs_browser
from tests.report import served
from tests.serve.control.viewing import KEY, Seen, listening

pytestmark = [pytest.mark.slow, needs_browser]

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e&amp;"
COMPLAINTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
STATE = "document.getElementById('state-word').textContent"
WIDER = "(e => e.scrollWidth - e.clientWidth)(document.documentElement)"
CUT = (
    "[...document.querySelectorAll('.name, .figure, h2, dt')].filter(e => e.offsetParent &&"
    " (e.scrollWidth > e.clientWidth + 1 || e.getClientRects().length > 1)).map(e => e.innerText)"
)


def looking(
    view: Seen, tmp_path: Path, look: Callable[[Tab, str], Awaitable[None]], key: str = ""
) -> None:
    async def run() -> None:
        async with listening(view, key) as url, browsing(tmp_path / "profile") as tab_of:
            await look(tab_of(), url)

    asyncio.run(run())


def shown(name: str) -> str:
    return f"document.getElementById('{name}').innerText"


async def sound(tab: Tab, url: str) -> None:
    """Nothing was asked for but what is the server's own, and nothing complained."""
    asked = {
        event["params"]["request"]["url"].removeprefix(url)
        for event in tab.named("Network.requestWillBeSent")
        if not event["params"]["request"]["url"].startswith("data:")
    }
    known = {"", "status", "incidents", "log"}
    assert asked - known <= {f"incidents/{one.id}" for one in (served.incident(), served.killed())}
    assert tab.named(*COMPLAINTS) == []
    assert await tab.value("typeof window.hacked") == "undefined"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_what_is_shown(width: int, scheme: str, tmp_path: Path) -> None:
    async def look(tab: Tab, url: str) -> None:
        await tab.open(url, width=width, scheme=scheme)
        await tab.until(f"{STATE} === 'ready' && document.querySelector('.incident')")
        await tab.until(f"{shown('log')}.includes('model loaded')")
        assert "gemma-3-270m.gguf" in await tab.value(shown("model"))
        memory = await tab.value(shown("memory"))
        assert "3.02 GiB taken" in memory
        assert "3.10 GiB planned" in memory
        assert "3\u202f120 of 4\u202f096" in await tab.value(shown("slots"))
        assert "32\u00a0%" in await tab.value(shown("tiles"))
        incidents = await tab.value(shown("incidents"))
        assert "Memory ran out on Vulkan0: prompt cache, 1.50 GiB" in incidents
        assert "Killed by SIGKILL" in incidents
        assert "blue whale" not in await tab.value("document.body.innerText")
        assert await tab.value(WIDER) == 0, "the page must not scroll sideways"
        assert await tab.value(CUT) == []
        background = await tab.value("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(243, 245, 247)", "dark": "rgb(15, 19, 23)"}[scheme]
        shot = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
        assert len(base64.b64decode(shot["data"])) > 20_000
        await sound(tab, url)

    looking(Seen(), tmp_path, look)


def changed(status: Status, **changes: Any) -> Status:
    return msgspec.structs.replace(status, **changes)


def test_an_incident_appears_as_it_happens(tmp_path: Path) -> None:
    view = Seen(lost=())
    view.now = changed(view.now, incidents=())
    open_ = msgspec.structs.replace(served.killed(), action=None, down_s=None, complete=False)

    async def look(tab: Tab, url: str) -> None:
        await tab.open(url, width=1200, scheme="light")
        await tab.until(f"{shown('incidents')} === 'None so far.'")
        view.lost = (open_,)
        engine = msgspec.structs.replace(view.now.engine, pid=None, up_s=None)
        view.now = changed(
            view.now, state=ServerState.RECOVERING, engine=engine, incidents=(open_.id,), slots=()
        )
        await tab.until(f"{STATE} === 'recovering' && document.querySelector('.incident')")
        assert "Requests are held" in await tab.value(shown("banner"))
        assert "Requests are held" in await tab.value(
            "document.getElementById('announce').textContent"
        )
        assert "being dealt with" in await tab.value(shown("incidents"))
        view.lost = (msgspec.structs.replace(open_, action=Recovery.RESTART),)
        await tab.until(f"{shown('incidents')}.includes('starting again')")
        view.lost = (served.killed(),)
        view.now = changed(served.status(), incidents=(open_.id,))
        await tab.until(f"{STATE} === 'ready' && {shown('incidents')}.includes('started again')")
        assert await tab.value("document.getElementById('banner').hidden")
        await sound(tab, url)

    looking(view, tmp_path, look)


def test_incidents_open_with_the_keyboard_and_stay_open(tmp_path: Path) -> None:
    view = Seen()

    async def look(tab: Tab, url: str) -> None:
        await tab.open(url, width=1200, scheme="dark")
        await tab.until("document.querySelector('.incident')")
        await tab.value("document.querySelector('.incident summary').focus()")
        await tab.press("Enter", 13, "\r")
        await tab.until(f"{shown('incidents')}.includes('Device memory allocation of size')")
        view.lost = (
            served.incident(),
            served.killed(),
            msgspec.structs.replace(served.killed(), id="inci-1"),
        )
        view.now = changed(view.now, incidents=("inci-1", *view.now.incidents))
        await tab.until("document.querySelectorAll('.incident').length === 3")
        assert await tab.value("document.querySelector('.incident').open")
        await tab.until(f"{shown('incidents')}.includes('Device memory allocation of size')")
        await sound(tab, url)

    looking(view, tmp_path, look)


def test_the_key_is_asked_for_and_kept_in_memory_alone(tmp_path: Path) -> None:
    async def enter(tab: Tab, key: str) -> None:
        await tab.until("document.activeElement.id === 'key'")
        await tab.call("Input.insertText", text=key)
        await tab.press("Enter", 13, "\r")

    async def look(tab: Tab, url: str) -> None:
        await tab.open(url, width=390, scheme="light")
        await tab.until("!document.getElementById('key-form').hidden")
        assert await tab.value("document.getElementById('main').hidden")
        assert "gemma" not in await tab.value("document.documentElement.outerHTML")
        await enter(tab, "wrong")
        await tab.until(f"{shown('key-wrong')} !== ''")
        await enter(tab, KEY)
        await tab.until(f"{STATE} === 'ready'")
        for kept in (
            "{...localStorage}",
            "{...sessionStorage}",
            "document.cookie",
            "location.href",
        ):
            assert KEY not in await tab.value(f"JSON.stringify({kept})")
        assert KEY not in await tab.value("document.documentElement.outerHTML")
        await tab.open(url, width=390, scheme="light")
        await tab.until("!document.getElementById('key-form').hidden")

    looking(Seen(), tmp_path, look, KEY)


def test_whatever_names_and_logs_hold_is_text(tmp_path: Path) -> None:
    incident = msgspec.structs.replace(
        served.incident(),
        verdict=msgspec.structs.replace(
            served.failure(), text=HOSTILE, device=HOSTILE, not_this=(HOSTILE,)
        ),
        change=HOSTILE,
        why=HOSTILE,
        log=(f"I srv  {HOSTILE}",),
    )
    view = Seen(lost=(incident,), lines=[f"0.02.294.521 I srv  llama_server: {HOSTILE}"])
    gates = tuple(msgspec.structs.replace(gate, change=HOSTILE) for gate in view.now.gates)
    view.now = changed(
        view.now,
        model=HOSTILE,
        why=HOSTILE,
        gates=gates,
        memory=(MemoryUse(pool=HOSTILE, actual=1, total=2),),
        slots=tuple(SlotUse(id=n, tokens=n, n_ctx=64, busy=n % 2 == 0) for n in range(64)),
        engine=msgspec.structs.replace(view.now.engine, argv=("llama-server", HOSTILE)),
        incidents=(incident.id,),
    )

    async def look(tab: Tab, url: str) -> None:
        await tab.open(url, width=360, scheme="light")
        await tab.until("document.querySelector('.incident')")
        await tab.value("document.querySelector('.incident').open = true")
        await tab.until(f"!{shown('incidents')}.includes('…\\n')")
        assert HOSTILE in await tab.value("document.getElementById('model').textContent")
        assert await tab.value("document.images.length") == 0
        assert await tab.value("document.scripts.length") == 1
        assert await tab.value(WIDER) == 0
        await sound(tab, url)

    looking(view, tmp_path, look)


def test_it_says_when_the_server_is_gone_and_comes_back_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        view = Seen()
        async with browsing(tmp_path / "profile") as tab_of:
            tab = tab_of()
            async with listening(view) as url:
                await tab.open(url, width=1200, scheme="light")
                await tab.until(f"{STATE} === 'ready'")
            await tab.until(f"{STATE} === 'no connection'")
            assert "Trying again" in await tab.value(shown("banner"))
            port = int(url.split(":")[2].split("/")[0])
            async with listening(view, port=port):
                await tab.until(f"{STATE} === 'ready'")

    asyncio.run(run())
