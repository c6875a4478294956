"""The answers of ``/v1/responses``: events with names, the last of which repeats the answer."""

from __future__ import annotations

from typing import Any, Final

from arriero.serve.apis.errors import error_events
from arriero.serve.apis.events import event_of
from arriero.serve.apis.growing import Event, Growing
from arriero.serve.http.interface import Request

_OPENING: Final = (
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
)
_DELTA: Final = "response.output_text.delta"
_DONE: Final = (
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
)


class Responses(Growing):
    """Continued by a last message of the assistant, as a chat is."""

    def ends(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return event.startswith(b"event: response.output_text.done")

    def is_last(self, event: bytes) -> bool:
        """See :class:`Growing`."""
        return event.startswith(b"event: response.completed")

    def read(self, event: Event) -> None:
        """See :class:`Growing`."""
        kind = event.get("type")
        if kind in _OPENING:
            self._opened(kind, event)
        elif kind == _DELTA:
            self.say(event.get("delta"))
        elif kind == "response.completed":
            self.close = event["response"]
        elif kind not in _DONE:
            self.other = str(kind)

    def _opened(self, kind: str, event: Event) -> None:
        self.head.setdefault("said", set()).add(kind)
        if "response" in event:
            self.head.setdefault("id", event["response"].get("id"))
        item = event.get("item") or {}
        if item and item.get("type") != "message":
            self.other = str(item.get("type"))
        elif item:
            self.head.setdefault("item", item.get("id"))

    def continuation(self, text: str) -> Request:
        """See :class:`Growing`."""
        given = self.body["input"]
        told = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        part = {"type": "output_text", "text": text}
        told.append({"role": "assistant", "type": "message", "content": [part]})
        body = {
            **self.lowered(),
            "input": told,
            "continue_final_message": True,
            "add_generation_prompt": False,
        }
        return self.wish.asking(body)

    def stitched(self, event: Event) -> list[bytes]:
        """See :class:`Growing`."""
        self._settle()
        kind = str(event.get("type"))
        if kind in self.head.get("said", ()) or (kind == _DELTA and self.spent):
            return []
        item = self.head.get("item")
        if item and "item_id" in event:
            event["item_id"] = item
        text = "".join(self.texts)
        if kind == "response.output_text.done":
            event["text"] = text
        elif kind == "response.content_part.done":
            event["part"]["text"] = text
        elif kind == "response.output_item.done":
            self._mend_item(event["item"], text)
        elif "response" in event:
            self._mend_response(event["response"], text)
        return [event_of(event, kind)]

    def _mend_item(self, item: Event, text: str) -> None:
        item["id"] = self.head.get("item", item.get("id"))
        for part in item.get("content") or ():
            part["text"] = text

    def _mend_response(self, response: Event, text: str) -> None:
        response["id"] = self.head.get("id", response.get("id"))
        for item in response.get("output") or ():
            self._mend_item(item, text)
        usage = response.get("usage")
        if isinstance(usage, dict):
            sent = self.before
            usage["input_tokens"] = usage.get("input_tokens", 0) - sent
            usage["output_tokens"] = usage.get("output_tokens", 0) + sent
            details = usage.get("input_tokens_details")
            if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
                details["cached_tokens"] = min(details["cached_tokens"], usage["input_tokens"])

    def complete(self, text: str) -> Event:
        """See :class:`Growing`."""
        close: dict[str, Any] = self.close
        fields = ("created_at", "id", "model", "object", "output", "status", "usage")
        return {
            "completed_at": close.get("created_at"),
            **{name: close.get(name) for name in fields},
        }

    def failed(self, message: str) -> bytes:
        """See :class:`Growing`."""
        return error_events("/v1/responses", message)
