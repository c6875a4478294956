"""The answers of ``/v1/chat/completions`` and ``/v1/completions``: chunks with choices."""

from __future__ import annotations

from typing import Any

from arriero.serve.apis.events import event_of
from arriero.serve.apis.growing import Event, Growing
from arriero.serve.apis.reading import text_of
from arriero.serve.http.interface import Request

_HEAD = ("id", "created", "model", "system_fingerprint")


def usage_of_whole(usage: Event, before: int) -> Event:
    """The token counts of an answer, from those of the last of its parts.

    What was sent ``before`` was read as part of the prompt.
    """
    prompt = max(usage.get("prompt_tokens", 0) - before, 0)
    found = {
        **usage,
        "completion_tokens": usage.get("completion_tokens", 0) + before,
        "prompt_tokens": prompt,
    }
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
        cached = min(details["cached_tokens"], prompt)
        found["prompt_tokens_details"] = {**details, "cached_tokens": cached}
    return found


class _Chunks(Growing):
    """Chunks that end with ``[DONE]``."""

    def ends(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return b'"finish_reason":"' in event

    def is_last(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return event.startswith(b"data: [DONE]")

    def read(self, event: Event) -> None:
        """See :class:`Growing`."""
        if not self.head:
            self.head = {name: event[name] for name in _HEAD if name in event}
        for name in ("usage", "timings"):
            if name in event:
                self.close[name] = event[name]
        for choice in event.get("choices") or ():
            if choice.get("index"):
                self.other = "several answers"
            if choice.get("finish_reason"):
                self.close["finish_reason"] = choice["finish_reason"]
            self.read_choice(choice)

    def read_choice(self, choice: Event) -> None:
        """Note the text of a choice."""
        self.say(choice.get("text"))

    def stitched(self, event: Event) -> list[bytes]:
        """See :class:`Growing`."""
        for choice in event.get("choices") or ():
            if not self.keeps(choice):
                return []
            if self.spent and choice.get("finish_reason"):
                choice["finish_reason"] = "length"
        if self.head:
            event = {name: self.head.get(name, value) for name, value in event.items()}
        usage = event.get("usage")
        if isinstance(usage, dict):
            event["usage"] = usage_of_whole(usage, self.before)
        return [event_of(event)]

    def keeps(self, choice: Event) -> bool:
        """Whether a choice of a continuation says something new; what was said is taken out."""
        if self.spent and choice.get("text"):
            choice["text"] = ""
        return bool(choice.get("text") or choice.get("finish_reason"))

    def closed(self, choice: Event, kind: str) -> Event:
        """The whole answer around its one choice, its fields in the engine's order."""
        head = {name: value for name, value in self.head.items() if name != "id"}
        found: dict[str, Any] = {"choices": [choice], **head, "object": kind}
        found["usage"] = self.close.get("usage")
        found["id"] = self.head.get("id")
        if "timings" in self.close:
            found["timings"] = self.close["timings"]
        return found


class Chat(_Chunks):
    """Chat: continued by giving the engine the last message's beginning."""

    def read_choice(self, choice: Event) -> None:
        """See :class:`_Chunks`."""
        delta = choice.get("delta") or {}
        for name, value in delta.items():
            if name not in {"role", "content"} and value:
                self.other = name
        self.say(delta.get("content"))

    def keeps(self, choice: Event) -> bool:
        """See :class:`_Chunks`. The role was said already."""
        delta = choice.get("delta") or {}
        if delta.pop("role", None) and not delta.get("content"):
            delta.pop("content", None)
        if self.spent:
            delta.pop("content", None)
        choice["delta"] = delta
        return bool(delta or choice.get("finish_reason"))

    def continuation(self, text: str) -> Request:
        """See :class:`Growing`."""
        messages = list(self.body["messages"])
        if messages[-1].get("role") == "assistant":
            text = (text_of(messages.pop()["content"]) or "") + text
        messages.append({"role": "assistant", "content": text})
        body = {
            **self.lowered(),
            "messages": messages,
            "continue_final_message": True,
            "add_generation_prompt": False,
        }
        return self.wish.asking(body)

    def complete(self, text: str) -> Event:
        """See :class:`Growing`."""
        message = {"role": "assistant", "content": text}
        finish = self.close.get("finish_reason")
        choice = {"finish_reason": finish, "index": 0, "message": message}
        return self.closed(choice, "chat.completion")


class Completions(_Chunks):
    """``/v1/completions``: continued by a longer prompt."""

    def continuation(self, text: str) -> Request:
        """See :class:`Growing`."""
        prompt = self.body["prompt"]
        longer = prompt + text if isinstance(prompt, str) else [*prompt, text]
        return self.wish.asking({**self.lowered(), "prompt": longer})

    def complete(self, text: str) -> Event:
        """See :class:`Growing`."""
        finish = self.close.get("finish_reason")
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        return self.closed(choice, "text_completion")
