"""Words that a shell, a terminal or a reader of files could take for more than words."""

from __future__ import annotations

import random
from typing import Final

PAYLOAD: Final = "PWNED"
"""The file that appears where the shell runs if anything in a word is run."""

PIECES: Final = (
    *("a", "b c", "x=y", "-", "é", "你", "C:\\x", "0", "%self", "=ls", "#x", "!", "!!", "^a^b"),
    *("'", '"', "\\", "\\\\", "\\n", "\\'", "''", '"$X"', "$", "$$", "$HOME", "${HOME}", "$1"),
    *("~", "~/x", "*", "?", "[a]", "{a,b}", "(", ")", "<(x)", "|", "&", "&&", ";", "\n", "\t"),
    *(f"$(touch {PAYLOAD})", f"`touch {PAYLOAD}`", f";touch {PAYLOAD};", f"\ntouch {PAYLOAD}\n"),
    *(f">{PAYLOAD}", f"|touch {PAYLOAD}", f"&touch {PAYLOAD}&", f"${{X:-$(touch {PAYLOAD})}}"),
    *(f"(touch {PAYLOAD})", f"';touch {PAYLOAD};'", f'";touch {PAYLOAD};"', f"<(touch {PAYLOAD})"),
    *("\x1b[201~", "\x1b[31m", "\x1b]0;t\x07", "\x07", "\r", "\x08", "\x7f", "\x9b2J", "\x85"),
    *("\u202e", "\u2066", "\u200d", "\u2028", "\ufeff"),
)  # fmt: skip


def nasty(count: int, seed: int, without: str = "") -> list[str]:
    """So many words, each of up to five pieces, with none of the characters in ``without``."""
    rng = random.Random(seed)
    pieces = [piece for piece in PIECES if not set(piece) & set(without)]
    return ["".join(rng.choices(pieces, k=rng.randint(1, 5))) for _ in range(count)]
