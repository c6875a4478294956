"""A byte vocabulary that takes any prompt and answers in printable text.

Tokenizer ``gpt2`` without useful merges: one token per UTF-8 byte of the prompt and no BOS, so a
prompt's size in tokens is its size in bytes. Tokens that are not printable ASCII have the type
"unused": llama.cpp still reads prompts with them and prints nothing for them, so an answer is
always valid text, even from zero weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from arriero.gguf.shape import Shape

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


def tokens(shape: Shape) -> Iterator[str]:
    """Every token's text, ``shape.vocab`` of them."""
    yield from (_LETTERS[byte] for byte in PRINTABLE + _OTHER)
    yield from _CONTROL
    for i in range(shape.vocab - 256 - len(_CONTROL)):
        yield f"<unused{i}>"


def token_types(shape: Shape) -> Iterator[int]:
    """Every token's type, in the order of :func:`tokens`."""
    unused = shape.vocab - 256 - len(_CONTROL)
    for kind, count in (
        (TokenType.NORMAL, len(PRINTABLE)),
        (TokenType.UNUSED, len(_OTHER)),
        (TokenType.CONTROL, len(_CONTROL)),
        (TokenType.UNUSED, unused),
    ):
        for _ in range(count):
            yield kind


def control_ids() -> dict[str, int]:
    """Metadata keys that name the control tokens."""
    return {
        "tokenizer.ggml.bos_token_id": 256,
        "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.padding_token_id": 258,
    }


def merges() -> list[str]:
    """llama.cpp refuses a vocabulary without merges: one that leads to no token."""
    return [f"{_LETTERS[0]} {_LETTERS[0]}"]
