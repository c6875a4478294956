"""One self-contained page: no network, no script, light and dark, printable."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from arriero.report.html.markup import Markup, el, join
from arriero.report.html.pictures import drawing as draw
from arriero.report.view import words as say
from arriero.report.view.verdict import VerdictView


def html_page(
    kicker: Sequence[str],
    setting: Sequence[str],
    verdict: VerdictView,
    sections: Sequence[Markup],
    footer: str,
) -> str:
    title = f"{verdict.word}: {verdict.sentence}"
    body = join(
        el(
            "header",
            el("p", *kicker, class_="kicker"),
            *([el("p", " · ".join(setting), class_="setting")] if setting else []),
        ),
        el("main", *sections),
        el("footer", el("p", " · ".join(filter(None, (footer, "Arriero")))), el("p", say.LEFT_OUT)),
        draw.patterns(),
    )
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{title} – Arriero"),
        el("style", Markup(style)),
    )
    return f"<!doctype html>\n{el('html', head, el('body', body), lang='en')}\n"
