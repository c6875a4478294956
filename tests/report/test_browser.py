"""The page in a real browser: what it shows, what it must not do."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Tab, browsing, needs_browser
from tests.report.laid_out import html
from tests.report.plans import plans
from tests.report.variants import diagnoses, explanations, verifications

pytestmark = pytest.mark.slow

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
    async with browsing(profile) as tab_of:
        return [await look(tab_of(), page, *one) for one in looks]


@needs_browser
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
