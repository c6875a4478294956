"""The page as one file: nothing is loaded besides it, and only its own script runs."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Final

_STYLE: Final = "/*style*/"
_SCRIPT: Final = "/*script*/"


@cache
def page() -> tuple[bytes, str]:
    """The page and the policy it is served with."""
    folder = resources.files(__package__).joinpath("page")
    html, style, script = (
        folder.joinpath(name).read_text("utf-8") for name in ("page.html", "page.css", "page.js")
    )
    policy = (
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        "img-src data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    whole = html.replace(_STYLE, style).replace(_SCRIPT, script)
    return whole.encode(), "; ".join(policy)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
