"""Write ``base/vocabulary.txt``, the words that may be shared: ``python scripts/vocabulary.py``.

They are those of llama.cpp's messages (``logs/messages.txt`` and ``known_words.txt`` beside this
file), then those that the package itself is written with.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from arriero.base.vocabulary import pieces

HERE: Final = Path(__file__).parent
PACKAGE: Final = HERE.parent / "src" / "arriero"
LIST: Final = PACKAGE / "base" / "vocabulary.txt"
_MESSAGES: Final = (PACKAGE / "logs" / "messages.txt", HERE / "known_words.txt")
_WRITTEN_IN: Final = frozenset((".py", ".txt", ".json"))
_OF_USERS: Final = "verdicts"
"""A folder of records: they quote logs and commands."""


def words() -> str:
    """The whole list: words of messages, an empty line, further words of the package."""
    messages = _words_in(_MESSAGES)
    package = _words_in(
        path
        for path in PACKAGE.rglob("*")
        if path.suffix in _WRITTEN_IN and path.parent.name != _OF_USERS and path != LIST
    )
    return "\n".join([*sorted(messages), "", *sorted(package - messages), ""])


def _words_in(paths: Iterable[Path]) -> set[str]:
    return {word for path in paths for word in pieces(path.read_text("utf-8"))}


if __name__ == "__main__":
    LIST.write_text(words(), "utf-8")
