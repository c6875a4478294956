"""The answers of ``/v1/messages``: events with names, continued as a chat."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from arriero.serve.apis.chat import usage_of_whole
from arriero.serve.apis.errors import error_events
from arriero.serve.apis.events import decoded, event_of
from arriero.serve.apis.growing import Event, Growing
from arriero.serve.apis.interface import ApiError, Ask
from arriero.serve.apis.reading import Body, text_of
from arriero.serve.http.interface import Request

_OWN: Final = ("system", "messages", "metadata", "stop_sequences", "thinking", "tool_choice")
_ENDS: Final = {"length": "max_tokens", "tool_calls": "tool_use"}


class Messages(Growing):
    """Builds 10068 to 10434 continue no last message at this API (it is answered as if it were a
    turn of its own), so the rest is asked for at ``/v1/chat/completions`` and told as this API
    tells it. That both read the conversation as the same prompt is counted first.
    """

    def ends(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return event.startswith((b"event: content_block_stop", b"event: message_delta"))

    def goes_on(self, event: bytes) -> bool:
        """See :class:`Growing`. Thoughts end in a block of their own, and text follows."""
        return event.startswith(b"event: content_block_start")

    def is_last(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return event.startswith(b"event: message_stop")

    def read(self, event: Event) -> None:
        """See :class:`Growing`."""
        kind = event.get("type")
        if kind == "message_start" and not self.head:
            self.head = event["message"]
        elif kind == "content_block_start":
            block = event.get("content_block", {}).get("type")
            self.other = self.other or ("" if block == "text" else str(block))
            self.close["opened"] = True
        elif kind == "content_block_delta":
            self.say(event.get("delta", {}).get("text"))
        elif kind == "content_block_stop" and not self.whole:
            self.other = self.other or "a block that is closed"
        elif kind == "message_delta":
            self.close |= {**event.get("delta", {}), **event.get("usage", {})}

    async def prepare(self, ask: Ask) -> None:
        """Count whether the chat is the same prompt."""
        usage = self.head.get("usage", {})
        meant = usage.get("input_tokens", 0) + usage.get("cache_read_input_tokens", 0)
        chat = msgspec.json.encode(self._as_chat())
        prompt = (decoded(await ask("/apply-template", chat)) or {}).get("prompt")
        asked = {"content": prompt, "add_special": True, "parse_special": True}
        counted = decoded(await ask("/tokenize", msgspec.json.encode(asked))) or {}
        if len(counted.get("tokens") or ()) != meant:
            raise ApiError("the engine reads this conversation in another way as a chat")

    def continuation(self, text: str) -> Request:
        """See :class:`Growing`."""
        body = self._as_chat()
        body["messages"] = [*body["messages"], {"role": "assistant", "content": text}]
        body |= {"continue_final_message": True, "add_generation_prompt": False}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        return self.wish.asking(body, "/v1/chat/completions")

    def _as_chat(self) -> Body:
        body = {name: value for name, value in self.lowered().items() if name not in _OWN}
        system = text_of(self.body.get("system"))
        told: list[Body] = [{"role": "system", "content": system}] if system else []
        for message in self.body["messages"]:
            told.append({"role": message["role"], "content": text_of(message["content"])})
        return {**body, "messages": told}

    def stitched(self, event: Event) -> list[bytes]:
        """See :class:`Growing`."""
        self._settle()
        if "type" in event:  # nothing had been said: this API itself was asked again
            known = event["type"] == "message_start" and self.head
            known = known or (event["type"] == "content_block_start" and self.close.get("opened"))
            return [] if known else [event_of(event, event["type"])]
        told = []
        for choice in event.get("choices") or ():
            told += self._told(choice)
        if isinstance(event.get("usage"), dict):
            told += self._closing(event["usage"])
        return told

    def without_data(self, event: bytes) -> list[bytes]:
        """See :class:`Growing`. A chat ends with a word that this API does not have."""
        return [] if event.startswith(b"data:") else [event]

    def _told(self, choice: Event) -> list[bytes]:
        if choice.get("finish_reason"):
            self.close["finish_reason"] = choice["finish_reason"]
        text = (choice.get("delta") or {}).get("content")
        if not text or self.spent:
            return []
        delta = {"type": "text_delta", "text": text}
        said = {"type": "content_block_delta", "index": 0, "delta": delta}
        return [event_of(said, "content_block_delta")]

    def _closing(self, usage: Event) -> list[bytes]:
        finish = "length" if self.spent else self.close.get("finish_reason", "stop")
        delta = {"stop_reason": _ENDS.get(finish, "end_turn"), "stop_sequence": None}
        tokens = (
            self.before if self.spent else usage_of_whole(usage, self.before)["completion_tokens"]
        )
        said: list[dict[str, Any]] = [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}},
            {"type": "message_stop"},
        ]
        return [event_of(one, one["type"]) for one in said]

    def complete(self, text: str) -> Event:
        """See :class:`Growing`."""
        tokens = self.close.get("output_tokens", 0)
        return {
            **self.head,
            "content": [{"type": "text", "text": text}],
            "stop_reason": self.close.get("stop_reason"),
            "stop_sequence": self.close.get("stop_sequence"),
            "usage": {**self.head.get("usage", {}), "output_tokens": tokens},
        }

    def failed(self, message: str) -> bytes:
        """See :class:`Growing`."""
        return error_events("/v1/messages", message)
