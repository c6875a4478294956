from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from arriero.record import Explanations, Sample
from tests.examples import example_diagnosis, example_explanation
from tests.report.laid_out import html
from tests.report.variants import HOSTILE, diagnoses, explanations, verifications, with_

DIAGNOSES = diagnoses()
OTHERS = {
    **{f"log, {name}": html(doc) for name, doc in explanations().items()},
    **{f"load, {name}": html(doc) for name, doc in verifications().items()},
}
VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """A page read strictly: every element is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.untitled = 0
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.open and self.open[-1] == "svg" and self.seen[-1][0] == "svg":
            self.untitled += tag != "title" and self.visible()
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def visible(self) -> bool:
        """Whether the last SVG is a picture of its own, not a group inside one."""
        return self.open.count("svg") == 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + " "


@pytest.mark.parametrize("name", DIAGNOSES)
def test_every_page_is_well_formed_and_every_picture_has_a_title(name: str) -> None:
    page = Page(html(DIAGNOSES[name]))
    assert page.open == []
    assert page.untitled == 0


@pytest.mark.parametrize("name", DIAGNOSES)
def test_no_page_can_load_or_run_anything(name: str) -> None:
    text = html(DIAGNOSES[name])
    page = Page(text)
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "a", "form", "base"}
    for _, attributes in page.seen:
        assert not {
            key for key in attributes if key.startswith("on") or key in ("src", "href", "style")
        }
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_the_policy_allows_only_the_page_s_own_style() -> None:
    text = html(example_diagnosis())
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(
        attributes["content"]
        for tag, attributes in Page(text).seen
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_the_page_tells_the_facts() -> None:
    page = Page(html(example_diagnosis()))
    for fact in (
        "CPU refused 4020.00 MiB = 64 slots × 62.81 MiB",
        "served up to 20 · ready up to 32 · fails from 33 (graph, RS from 64)",
        "verified: served 64 of 64 · 268 MiB left at the peak",
        "-np 16 --no-warmup",
        "quantised KV (quality; does not shrink RS)",
        "4020.00 refused",
        "python3 (pid 4242) held",
    ):
        assert fact in page.text


def test_all_trials_are_in_the_table_and_the_telling_ones_in_the_picture() -> None:
    doc = DIAGNOSES["many trials"]
    page = Page(html(doc))
    rows = [a for tag, a in page.seen if tag == "th" and a.get("scope") == "row"]
    assert len(rows) >= len(doc.trials)
    assert "45 trials left out; the table has all" in page.text


def test_refused_memory_is_hatched_and_said() -> None:
    text = html(example_diagnosis())
    bar = re.search(r"<svg[^>]*><title>Trial 2</title>.*?</svg></svg>", text, re.DOTALL)
    assert bar
    assert 'fill="url(#hatch-refused)"' in bar[0]
    assert "RS 4020.00 refused" in bar[0]
    assert 'id="hatch-refused"' in text


def test_devices_are_never_added_up() -> None:
    page = Page(html(DIAGNOSES["gpus"]))
    for name in ("Vulkan0", "Vulkan1", "host"):
        assert f"Memory on {name} per trial" in page.text
    assert "15.98 GiB on Vulkan1" in page.text


def test_pictures_say_in_words_what_they_show() -> None:
    page = Page(html(example_diagnosis()))
    labels = [a.get("aria-label") or "" for tag, a in page.seen if a.get("role") == "img"]
    assert any("-np 33 failed (trial 8)" in label for label in labels)
    assert any("peak address space 3316.00 MiB" in label for label in labels)
    assert any("8 requests from 4.0 s to 9.6 s" in label for label in labels)


def test_without_samples_or_boundaries_there_is_no_empty_picture() -> None:
    page = Page(html(DIAGNOSES["from log"]))
    assert "Over time" not in page.text
    assert not [a for tag, a in page.seen if tag == "figure"]


def test_strangers_text_is_shown_and_harmless() -> None:
    text = html(DIAGNOSES["hostile"])
    assert "<script" not in text
    assert "<img" not in text
    assert not set(text) & {"\x1b", "\u202e"}
    assert "window.hacked=1" in Page(text).text


def test_nothing_is_lost_between_quotes() -> None:
    doc = with_(example_diagnosis(), id=HOSTILE, notes=('a "b" & c < d',))
    assert 'a "b" & c < d' in Page(html(doc)).text


def test_a_long_run_is_thinned_without_losing_its_peak() -> None:
    doc = example_diagnosis()
    last = doc.trials[-1]
    samples = tuple(
        Sample(at=float(i), anonymous=7 << 30 if i == 7777 else 1 << 30, requests=i)
        for i in range(10_000)
    )
    text = html(with_(doc, trials=(*doc.trials[:-1], with_(last, samples=samples))))
    points = re.search(r'<polyline points="([^"]*)"[^>]*></polyline></svg>', text)
    assert points
    assert "at most 7 GiB" in Page(text).text
    assert len(text) < 150_000


def test_the_zones_of_a_boundary_follow_its_values() -> None:
    doc = example_diagnosis()
    edge = doc.boundary["-np"]
    zones = {"served up to 20", "ready up to 32", "fails from 33"}
    text = html(doc)
    assert zones <= set(re.findall(r"<title>([^<]*)</title>", text))
    bare = with_(doc, boundary={"-np": with_(edge, served=None, ready=None, band=None)})
    titles = set(re.findall(r"<title>([^<]*)</title>", html(bare)))
    assert titles & zones == {"fails from 33"}
    assert "served: not shown" in Page(html(bare)).text


@pytest.mark.parametrize("name", OTHERS)
def test_pages_of_logs_and_loads_are_whole_and_harmless(name: str) -> None:
    page = Page(OTHERS[name])
    assert page.open == []
    assert not {tag for tag, _ in page.seen} & {"script", "img", "link", "iframe", "a", "form"}
    assert not set(OTHERS[name]) & {"\x1b", "\u202e"}


def test_a_page_of_logs_tells_all_of_them() -> None:
    both = Explanations(explanations=(example_explanation(), explanations()["router"]))
    text = Page(html(both)).text
    assert "What to do" in text
    assert "rs-alloc-slots" in text
    assert "CPU refused 4020.00 MiB" in text
    assert "router child 41303" in text
    assert text.count("log line") >= 2


def test_a_page_of_a_load_tells_what_shows_each_step() -> None:
    text = Page(html(verifications()["example"])).text
    assert "NOT VERIFIED" in text
    assert "restore from the prompt cache" in text
    assert "no evidence" in Page(html(verifications()["no evidence"])).text
