"""What the body of a request says that matters for its answer's continuation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from arriero.serve.apis.interface import Continue, Defaults
from arriero.serve.http.interface import Request

LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")
"""Names of the most tokens that an answer may have."""

Body = dict[str, Any]
_SAMPLERS: Final = ("temperature", "top_k")


@dataclass(frozen=True, slots=True)
class Wish:
    """A request whose answer is understood.

    Attributes:
        path: Without prefix.
        greedy: The engine always takes the likeliest token.
        why_not: Why a broken answer could not be continued; empty where it can.
    """

    kind: str
    path: str
    prefix: str
    request: Request
    body: Body
    greedy: bool
    why_not: str

    @property
    def streams(self) -> bool:
        """Whether the client wants a stream."""
        return self.body.get("stream") is True

    def asking(self, body: Body, path: str | None = None) -> Request:
        """The same request with another body, at the same path if no other is named."""
        request = self.request
        target = request.target if path is None else (self.prefix + path).encode()
        return Request(
            request.method,
            target,
            request.path if path is None else self.prefix + path,
            tuple(pair for pair in request.headers if pair[0] != b"content-length"),
            msgspec.json.encode(body),
            request.client,
            request.keep_alive,
        )


def wish_of(
    kind: str, path: str, request: Request, body: Body, defaults: Defaults, allowed: Continue
) -> Wish:
    """Read a request of a kind that generates text."""
    greedy = is_greedy(body, defaults)
    why_not = _why_not(kind, body)
    if allowed is Continue.NEVER:
        why_not = "broken answers are not continued (--continue never)"
    elif not why_not and not greedy and allowed is not Continue.ALWAYS:
        why_not = "it is sampled, so the rest would belong to another answer (--continue greedy)"
    return Wish(kind, path, defaults.prefix, request, body, greedy, why_not)


def is_greedy(body: Body, defaults: Defaults) -> bool:
    """Whether the engine takes the likeliest token at each step, whatever its random numbers."""
    temperature = _number(body.get("temperature"), defaults.temperature)
    top_k = _number(body.get("top_k"), float(defaults.top_k))
    spread = ("dynatemp_range", "xtc_probability")
    if any(_number(body.get(name), 0.0) > 0 for name in spread):
        return False
    if body.get("samplers") is not None:  # an order of its own may leave both out
        return False
    return temperature <= 0 or top_k == 1


def most_of(body: Body) -> int | None:
    """The most tokens that an answer may have; None if the request sets no limit."""
    found = [body[name] for name in LIMITS if isinstance(body.get(name), int)]
    return next((most for most in found if most >= 0), None)


def less(body: Body, sent: int) -> Body:
    """The body with every limit less by what was sent; one token at least, 0 means no end."""
    lower = {
        name: max(1, body[name] - sent)
        for name in LIMITS
        if isinstance(body.get(name), int) and body[name] >= 0
    }
    return {**body, **lower}


def is_prefilled(body: Body) -> bool:
    """Whether the client itself gave the beginning of the answer."""
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return isinstance(last, dict) and last.get("role") == "assistant"


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) else default


_NEVER: Final = {
    "tools": "it may call tools",
    "functions": "it may call tools",
    "json_schema": "a grammar shapes it",
    "grammar": "a grammar shapes it",
    "logprobs": "it gives probabilities of tokens",
    "top_logprobs": "it gives probabilities of tokens",
    "n_probs": "it gives probabilities of tokens",
    "multimodal_data": "it is about images or sound",
    "response_fields": "it leaves fields of the answer out",
    "n_indent": "it counts the indents of its lines",
    "previous_response_id": "it goes on from an answer that the engine kept",
    "thinking": "it thinks before it answers",
}


def _why_not(kind: str, body: Body) -> str:
    for name, why in _NEVER.items():
        if body.get(name):
            return why
    shape = body.get("response_format") or _inner(body.get("text"))
    if isinstance(shape, dict) and shape.get("type", "text") != "text":
        return "a grammar shapes it"
    if any(_number(body.get(name), 1.0) > 1 for name in ("n", "n_cmpl", "best_of")):
        return "several answers were asked for"
    if kind == "completion" and not _one_prompt(body.get("prompt")):
        return "several prompts, or images or sound, were sent"
    if kind == "infill":
        return "it fills in between two texts"
    messages = body.get("messages") if kind != "responses" else body.get("input")
    if kind in {"chat", "messages", "responses"} and not _is_text(messages):
        return "the conversation is not plain text"
    if kind != "chat" and is_prefilled(body):
        return "the client began the answer"
    if kind == "messages" and body.get("system") and text_of(body["system"]) is None:
        return "the conversation is not plain text"
    if kind == "messages" and body.get("stop_sequences"):
        return "the engine does not say in every API which stop sequence ended an answer"
    return ""


def _inner(text: object) -> object:
    return text.get("format") if isinstance(text, dict) else None


def _one_prompt(prompt: object) -> bool:
    if isinstance(prompt, list):
        return bool(prompt) and all(type(token) is int for token in prompt)
    return isinstance(prompt, str)


def _is_text(messages: object) -> bool:
    if isinstance(messages, str):
        return True
    return isinstance(messages, list) and all(
        isinstance(message, dict)
        and message.get("role") in {"system", "developer", "user", "assistant"}
        and message.get("type", "message") == "message"
        and not message.get("tool_calls")
        and not message.get("reasoning_content")
        and text_of(message.get("content")) is not None
        for message in messages
    )


def text_of(content: object) -> str | None:
    """The text of a message that has nothing else; None if it has."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or len(content) != 1:
        return None
    part = content[0]
    if not isinstance(part, dict) or part.get("type") not in {"text", "input_text", "output_text"}:
        return None
    text = part.get("text")
    return text if isinstance(text, str) else None
