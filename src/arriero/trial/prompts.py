"""What the requests of a load ask: the same in every trial, and no two alike.

Prompts are token arrays, so their length in tokens is exact for any tokenizer.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from arriero.launch import Mode
from arriero.trial.image import data_address

PREDICT: Final = 2
"""Tokens generated per request: enough for decode to run, few enough to be quick."""
TEXT: Final = (
    "The muleteer counted the packs at dawn, tied the second rope over the first and led the "
    "animals down to the ford, where the water was low and the far bank lay in the sun. "
)


@dataclass(frozen=True)
class Request:
    """One request to a server. ``tokens`` is the length of its prompt."""

    path: str
    body: dict[str, Any]
    tokens: int


def about_an_image(pixels: int) -> Request:
    """A question about an image with sides of so many pixels."""
    image = {"type": "image_url", "image_url": {"url": data_address(pixels)}}
    content = [image, {"type": "text", "text": TEXT}]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": PREDICT}
    return Request("/v1/chat/completions", body, 0)


@dataclass
class Prompts:
    """The prompts of one load.

    Two loads with different ``seed`` have none in common. ``longest`` is the most tokens of one,
    ``shared`` the number with which all begin, before their own ones.
    """

    mode: Mode
    seed: int
    longest: int
    shared: int = 0
    vocabulary: list[int] = field(default_factory=list)
    """Token ids of the model; without them prompts are words."""
    asked: int = 0

    def request(self, tokens: int) -> Request:
        """A request whose prompt is unlike the ones before."""
        prompt = self.prompt(tokens)
        if self.mode is Mode.EMBEDDING:
            # The older endpoint; the newer one refuses a model without pooling.
            return Request("/embedding", {"content": prompt}, len(prompt))
        if self.mode is Mode.RERANK:
            query = " ".join(self._random().choices(TEXT.split(), k=6))
            return Request("/v1/rerank", {"query": query, "documents": [TEXT, query]}, len(prompt))
        body = {"prompt": prompt, "n_predict": PREDICT, "seed": self.asked, "temperature": 0}
        return Request("/completion", body, len(prompt))

    def prompt(self, tokens: int) -> list[int] | str:
        """A prompt unlike the ones before; it has exactly ``tokens`` if the tokenizer is known."""
        self.asked += 1
        rng = self._random()
        if not self.vocabulary:
            words = TEXT.split()
            return " ".join(rng.choice(words) for _ in range(max(1, tokens // 4)))
        shared = random.Random(0).choices(self.vocabulary, k=self.shared)
        own = max(1, min(tokens, self.longest - len(shared)))
        return shared + rng.choices(self.vocabulary, k=own)

    def _random(self) -> random.Random:
        return random.Random(f"{self.seed} {self.asked}")
