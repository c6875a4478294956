"""``docs/serve.md`` names every setting, state and event, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from arriero.base.words import ServerState
from arriero.record.event import Event, Name
from arriero.serve.settings import TABLE
from arriero.serve.upkeep import IDLE
from tests.docs.test_cli_page import script

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "serve.md").read_text("utf-8")


def first_column(section: str) -> list[str]:
    """What the tables of a section have in backquotes in their first column."""
    text = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def test_the_table_is_what_the_settings_say() -> None:
    made = script("serve_page")
    assert made.page() == TEXT, "run: python scripts/serve_page.py"
    assert first_column("Settings") == [setting.option for setting in TABLE]


def test_every_state_and_no_other() -> None:
    assert first_column("States") == [*ServerState]


def test_every_event_and_no_other() -> None:
    assert sorted(first_column("Events")) == sorted(get_args(Name))


def test_every_field_of_an_event() -> None:
    section = TEXT.partition("\n## Events\n")[2].partition("\n## ")[0]
    fields = {field.name for field in msgspec.structs.fields(Event)} - {"schema", "event"}
    named = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `\w+` \| (.*?) \|", section, re.M)))
    )
    assert named == fields


def test_options_in_the_text_are_settings_of_it_or_flags_of_the_engine() -> None:
    of_the_engine = {
        "--host", "--port", "--api-key", "--api-prefix", "--kv-unified", "--mmproj", "--swa-full",
        "--slot-save-path", "--api-key-file", "--sleep-idle-seconds",
    }  # fmt: skip
    ours = {setting.option for setting in TABLE} | {"--force", "--json"}
    assert set(re.findall(r"`(--[a-z-]+)", TEXT)) - ours - of_the_engine == set()


@pytest.mark.parametrize("page", ["serve.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    for target, _, anchor in re.findall(r"\]\(([\w./-]+?)(#([\w-]+))?\)", text):
        linked = (ROOT / "docs" / target).read_text("utf-8")
        heads = re.findall(r"^#+ (.+)$", linked, re.MULTILINE)
        found = {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}
        assert not anchor or anchor in found, f"{target}#{anchor}"


def test_the_pause_before_contexts_are_saved() -> None:
    assert f"nothing has been asked for {IDLE:.0f} seconds" in TEXT
