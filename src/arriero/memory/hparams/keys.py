"""The keys of one architecture in a header, checked as llama.cpp checks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.base.errors import ModelError
from arriero.gguf import Header, LazyArray
from arriero.memory.architectures import AFTER_10435, Arch
from arriero.memory.hparams.model import Counts, Flags

MAX_LAYERS: Final = 512
_MAX_EMBEDDING: Final = 1 << 31


@dataclass(frozen=True)
class Keys:
    """The keys of a header as one build of llama.cpp reads them; each is named without its prefix.

    Raises:
        ModelError: In every method: the key is missing or absurd.
    """

    header: Header
    arch: str
    rules: Arch
    build: int

    def number(self, key: str, default: int | None = None) -> int:
        value = self.header.metadata.get(f"{self.arch}.{key}", default)
        if value is None:
            raise self.wrong(key, "is missing, and llama.cpp needs it")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "is no whole number")
        if not -1 <= value < _MAX_EMBEDDING or (value < 0 and value != default):
            raise self.wrong(key, f"is {value}")
        return value

    def integers(self, key: str) -> Counts | None:
        value = self.header.metadata.get(f"{self.arch}.{key}")
        if not isinstance(value, tuple):
            return None
        numbers = tuple(int(v) for v in value if isinstance(v, int))
        if len(numbers) != len(value) or any(not 0 <= n < _MAX_EMBEDDING for n in numbers):
            raise self.wrong(key, "holds what is no count")
        return numbers

    def per_layer(self, key: str, layers: int) -> Counts | None:
        """A number for all layers, or an array of one for each."""
        value = self.header.metadata.get(f"{self.arch}.{key}")
        if value is None:
            return None
        if not isinstance(value, tuple):
            return (self.number(key),) * layers
        if len(value) != layers:
            raise self.wrong(key, f"has {len(value)} entries for {layers} layers")
        return self.integers(key)

    def flags(self, key: str, layers: int) -> Flags:
        """An array of flags; layers beyond its end are off."""
        value = self.integers(key)
        if value is None and self.build < AFTER_10435:
            value = self.per_layer(key, layers)
        if value is None:
            raise self.wrong(key, "is no array, and llama.cpp needs one")
        return (*(bool(v) for v in value[:layers]), *(False,) * (layers - len(value)))

    def vocabulary(self) -> int:
        tokens = self.header.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, LazyArray):
            return tokens.count
        return self.number("vocab_size", 0)

    def wrong(self, key: str, what: str) -> ModelError:
        return ModelError(f"{self.header.parts[0].name}: {self.arch}.{key} {what}")
