"""A byte vocabulary that accepts any prompt and answers in printable text.

Tokenizer ``gpt2`` without useful merges: one token per UTF-8 byte of the prompt and no BOS, so a
prompt's size in tokens is its size in bytes. Tokens that are not printable ASCII have the type
"unused": llama.cpp still reads prompts with them and prints nothing for them, so an answer is
always valid text, even from zero weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

PRINTABLE: Final = bytes(range(0x20, 0x7F))
"""The bytes that answers are made of; their token ids are 0 to 94."""

_OTHER: Final = bytes(b for b in range(256) if b not in PRINTABLE)
_CONTROL: Final = ("<|begin|>", "<|end|>", "<|pad|>")

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


class TokenType(IntEnum):
    """Types of tokens in ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    CONTROL = 3
    UNUSED = 5


def _byte_letters() -> dict[int, str]:
    """The visible character that GPT-2 vocabularies write for each byte."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in visible}
    hidden = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}


_LETTERS: Final = _byte_letters()


def tokens(count: int) -> Iterator[str]:
    """Every token's text: of a vocabulary below 259 tokens the last three are control tokens."""
    texts = max(min(count - len(_CONTROL), 256), 0)
    yield from (_LETTERS[byte] for byte in (PRINTABLE + _OTHER)[:texts])
    yield from _CONTROL[: count - texts]
    for i in range(count - texts - len(_CONTROL)):
        yield f"<unused{i}>"


def token_types(count: int) -> Iterator[int]:
    """Every token's type, in the order of :func:`tokens`."""
    texts = max(min(count - len(_CONTROL), 256), 0)
    printable = min(texts, len(PRINTABLE))
    for kind, number in (
        (TokenType.NORMAL, printable),
        (TokenType.UNUSED, texts - printable),
        (TokenType.CONTROL, min(count - texts, len(_CONTROL))),
        (TokenType.UNUSED, count - texts - len(_CONTROL)),
    ):
        for _ in range(number):
            yield kind


def control_ids(count: int) -> dict[str, int]:
    """Metadata keys that name the control tokens."""
    first = max(min(count - len(_CONTROL), 256), 0)
    return {
        f"tokenizer.ggml.{name}_token_id": min(first + i, count - 1)
        for i, name in enumerate(("bos", "eos", "padding"))
    }


def merges() -> list[str]:
    """llama.cpp refuses a vocabulary without merges: one that leads to no token."""
    return [f"{_LETTERS[0]} {_LETTERS[0]}"]
