"""The answers of ``/completion``: the engine's own form."""

from __future__ import annotations

from arriero.serve.apis.events import event_of
from arriero.serve.apis.growing import Event, Growing
from arriero.serve.apis.interface import Ask
from arriero.serve.apis.reading import Body, Wish, most_of
from arriero.serve.http.interface import Request


class Native(Growing):
    """Events that count their tokens; the last repeats what was asked for."""

    def __init__(self, wish: Wish, inside: Request, body: Body) -> None:
        super().__init__(wish, inside, body)
        self.tokens: list[int] = []
        self.asked_after = ""
        """The text that the last continuation had at the end of its prompt."""

    def ends(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return b'"stop":true' in event

    def is_last(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return b'"stop":true' in event

    def read(self, event: Event) -> None:
        """See :class:`Growing`."""
        if event.get("index"):
            self.other = "several answers"
        if not self.head and "tokens_evaluated" in event:
            self.head = {"tokens_evaluated": event["tokens_evaluated"]}
        if event.get("stop") is True:
            self.close = event
        self.pieces = event.get("tokens_predicted", self.pieces)
        self.tokens += event.get("tokens") or ()
        if event.get("content"):
            self.texts.append(event["content"])

    async def tokens_sent(self, ask: Ask, text: str) -> int:
        """See :class:`Growing`. The engine counted them."""
        return self.pieces

    def continuation(self, text: str) -> Request:
        """See :class:`Growing`."""
        self.asked_after = text
        prompt = self.body["prompt"]
        longer = prompt + text if isinstance(prompt, str) else [*prompt, text]
        return self.wish.asking({**self.lowered(), "prompt": longer})

    def stitched(self, event: Event) -> list[bytes]:
        """See :class:`Growing`."""
        if "prompt_progress" in event and not event.get("content"):
            return []
        if isinstance(event.get("tokens_predicted"), int):
            event["tokens_predicted"] += self.before
        event.update({name: value for name, value in self.head.items() if name in event})
        if self.spent:
            event["content"], event["tokens"] = "", []
        if event.get("stop") is True:
            self._mend(event)
        elif self.spent:
            return []
        return [event_of(event)]

    def _mend(self, event: Event) -> None:
        """The last event of a continuation as the last of the whole answer."""
        if isinstance(event.get("prompt"), str):
            event["prompt"] = event["prompt"].removesuffix(self.asked_after)
        settings, most = event.get("generation_settings"), most_of(self.body)
        if isinstance(settings, dict) and most is not None:
            settings.update(
                {name: most for name in ("n_predict", "max_tokens") if name in settings}
            )
        if "has_new_line" in event:
            event["has_new_line"] = bool(event["has_new_line"]) or "\n" in self.asked_after
        if self.spent:
            event["tokens_predicted"] = self.before
            event["stop_type"], event["stopping_word"] = "limit", ""

    def complete(self, text: str) -> Event:
        """See :class:`Growing`."""
        tokens = self.tokens if self.body.get("return_tokens") else []
        found = {**self.close, "content": text, "tokens": tokens}
        if isinstance(found.get("generation_settings"), dict):
            found["generation_settings"] = {**found["generation_settings"], "stream": False}
        return found
