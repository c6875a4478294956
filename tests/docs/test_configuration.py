"""Every environment variable that is read is documented, and no other."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from arriero.process.surroundings import _OURS
from tests.docs.variables import reads

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text("utf-8")
OF_LIBRARIES = "Libraries that Arriero uses read these:"


def documented(text: str) -> set[str]:
    """The names in the first column of the tables."""
    cells = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([A-Za-z0-9_*]+)`", cell)}


def plain(name: str) -> str:
    """A proxy's variable may be written in capital letters too; each other has one name."""
    return name.lower() if name.lower().endswith("_proxy") else name


def test_every_variable_that_is_read_is_documented() -> None:
    found = [*reads()]
    assert [read.where for read in found if read.name is None] == []
    names = {plain(name): read.where for read in found if (name := read.name)}
    assert len(names) > 30
    known = documented(TEXT)
    missing = [
        f"{name} ({where})"
        for name, where in names.items()
        if not any(fnmatchcase(one, name) for one in known)
    ]
    assert missing == []


def test_every_documented_variable_is_read() -> None:
    before, _, rest = TEXT.partition(OF_LIBRARIES)
    own = before + rest.partition("## For llama-server")[2].partition("\n## Files")[0]
    assert OF_LIBRARIES in TEXT
    names = {plain(read.name) for read in reads() if read.name}
    assert [n for n in documented(own) if not any(fnmatchcase(n, name) for name in names)] == []


def test_every_variable_that_is_kept_back_is_documented() -> None:
    kept = TEXT.partition("## What Arriero sets and keeps back")[2]
    assert [name for name in (*_OURS, "ARRIERO_") if f"`{name}`" not in kept] == []
