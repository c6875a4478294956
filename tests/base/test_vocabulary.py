"""The list of words that may be shared is the one that the package's own text gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from arriero.base.vocabulary import message_words, package_words

SCRIPT = Path(__file__).parents[2] / "scripts" / "vocabulary.py"


def test_the_list_is_what_the_package_is_written_with() -> None:
    spec = importlib.util.spec_from_file_location("vocabulary", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.LIST.read_text("utf-8") == script.words(), "run: python scripts/vocabulary.py"


def test_words_of_messages_are_words_of_the_package() -> None:
    assert message_words() < package_words()
    assert {"allocate", "buffer", "cuda"} <= message_words()
