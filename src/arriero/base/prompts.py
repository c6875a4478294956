"""Find the text of requests and answers in logs and bodies, and remove it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from arriero.base.late import pattern
from arriero.base.secret import OPENING, SEPARATOR, rewrite, string_end, value_span

PROMPT: Final = "<prompt>"

PROMPT_FLAGS: Final = frozenset(
    {
        "-p",
        "--prompt",
        "-sys",
        "--system-prompt",
        "-r",
        "--reverse-prompt",
        "--in-prefix",
        "--in-suffix",
        "--mcp-servers-json",
        "--grammar",
        "-j",
        "--json-schema",
        "--chat-template-kwargs",
        "--reasoning-budget-message",
    }
)
PROMPT_NAMES: Final = frozenset(
    {
        "prompt",
        "negative_prompt",
        "system_prompt",
        "generation_prompt",
        "formatted_prompt",
        "content",
        "messages",
        "generated",
        "choices",
        "delta",
        "reasoning_content",
        "arguments",
        "stop",
        "grammar",
        "json_schema",
        "input",
        "inputs",
        "input_prefix",
        "input_suffix",
        "input_extra",
        "query",
        "documents",
        "system",
        "instruction",
        "tools",
        "tokens",
    }
)

_JSON_NAME: Final = pattern(
    rf"""(?<!\\)(\\*)(["'])(?:{"|".join(sorted(PROMPT_NAMES))})\1\2\s{{0,4}}:\s{{0,4}}"""
)
_BRACKETS: Final = pattern(r"""(?<!\\)(\\*)"|[\[\]{}]""")
_PROMPT_FLAG: Final = pattern(
    r"(?<![\w-])(?:--(?:system-)?prompt|--reverse-prompt|--in-prefix|--in-suffix|-sys"
    r"|--mcp-servers-json|--grammar|--json-schema|--chat-template-kwargs|-[prj](?=\s{1,4}\\*[\"']))(?![\w-])"
    + SEPARATOR
)
# What follows these in a llama-server log is text of a request or of an answer, to the end of the
# line and over the lines that carry no prefix of their own.
_SPOKEN_AFTER: Final = (
    r"next token:\s{0,8}\d{1,9}(?= ')"
    r"|draft candidate [^'\n]{0,60}(?=')"
    r"|prefill token: -?\d{1,9} ="
    r"|(?:Parsed message|converted request|http: streamed chunk|Converted grammar|JSON schema"
    r"|Tool call mismatch|Input prompt|Chat prompt|INPUT|last read|Parsing input[^:\n]{0,60}"
    r"|Generated text|unparsed [\w-]{1,30} output|Grammar \(\w{0,30}\)|MCP '[^'\n]{0,80}' stderr):"
    r"|awaiting trigger after token \d{1,9}(?= \()"
    r"|(?<![\w])(?:old|new): \.\.\."
    r"|(?<![\w-])(?:request|response|body):(?= {0,2}(?:[\[{\"]|data:))"
    r"|(?<![\w-])(?:(?:formatted_|system_|user_|generation_)?prompt|generated(?: text)?)"
    r" ?[:=](?= ?['\"])"
)
_SPOKEN: Final = pattern(rf"(?:{_SPOKEN_AFTER})(?P<said>[^\n]+)")
# More of the kind, in lines of which sharing keeps the rest: what a client sent, or a model's file
# holds, is named in passing.
_ECHOED: Final = pattern(
    rf"{_SPOKEN_AFTER}"
    r"|- kv +\d{1,5}: +\S{1,200} \S{1,40} += "
    r"|general\.[\w.]{1,60} += "
    r"|\btoken *[:=] *\d{1,9} (?=')|: +- \d{1,9} (?=\(')|common_init\w{0,40}: added "
    r"|launching slot ?:"
    r"|(?:by name|example_format:|tool type|for parameter) (?=')"
    r"|(?:accepting piece|generated parser|error parsing grammar|state_\w{0,20}_file"
    r"|triggering error|content part(?: type)?|tool without function|[Tt]emplate application failed"
    r"|apply template|conversion was incomplete|lexer main loop at pos \d{1,9}):"
    r"|conv_id=(?=\S)|/v1/stream/"
    rf"""|(?<!\\)(\\*)["'](?:{"|".join(sorted(PROMPT_NAMES))})\1["']\s{{0,4}}:"""
)
_ECHO_KEYS: Final = (
    *("oken", "candidate", "message:", "request:", "chunk:", "rammar", "schema:", "mismatch:"),
    *("rompt", "INPUT:", "last read", "Parsing input", "enerated", "unparsed", "stderr:"),
    *("old: ...", "new: ...", "response:", "body:", "- kv", "general.", "slot :", "slot:"),
    *("by name", "example_format", "tool type", "parameter", "piece:", "_file:", "error:"),
    *("content part", "function:", "emplate", "incomplete:", "main loop", "conv_id=", "/stream/"),
    *('"', "':", "' :", "('", ": added"),
)
"""One of these is in every line that ``_ECHOED`` fits."""
_PREFIXED: Final = pattern(
    r"[^\n]{0,120}?\b\d{1,5}\.\d\d\.\d{3}\.\d{3} [IWED] |(?:\[\d{1,5}\] )?"
    r"(?:slot|srv|que|res|cmn|spec|main|llama_|llm_|ggml|common_|print_info|load|sched_reserve"
    r"|graph_reserve|decode|init|update|prompt_save|alloc_|set_|request:|response:|prompt:|INFO|WARN"
    r"|ERR|RPC|[A-Z][a-z]{2} [ \d]\d \d\d:)|\s{0,4}[\]}]|\{"
)
_SPOKEN_LINES: Final = 400
# A turn of a conversation in the markup of a chat template, unless log lines lie in between. What
# opens a turn also ends the one before, so that nothing is read twice.
_OPENS: Final = (
    r"<\|im_start\|>(?:system|user|assistant|tool|developer)|<start_of_turn>(?:user|model)"
    r"|<\|start_header_id\|>\w{1,20}<\|end_header_id\|>|\[/?INST\]|\[/?SYSTEM_PROMPT\]"
    r"|<\|message\|>|<\|(?:user|assistant|system|observation|tool)\|>"
    r"|<｜(?:User|Assistant)｜>|<\|(?:USER|CHATBOT|SYSTEM)_TOKEN\|>|<\|END_OF_TURN_TOKEN\|>"
    r"|<\|(?:im_end|end|eot_id)\|>(?=\w)"
    r"|### ?(?:Instruction|Response|Input|Human|Assistant|User|System):"
    r"|(?<!\w)(?:USER|ASSISTANT):(?= )"
)
_CLOSES: Final = (
    r"<\||<｜|</s>|<(?:start|end)_of_turn>|\[/?INST\]|\[/?SYSTEM_PROMPT\]|###"
    r"|(?<!\w)(?:USER|ASSISTANT): "
)
_LOGGED: Final = (
    r"\n(?:[^\n]{0,60}\d\.\d\d\.\d{3}\.\d{3} [IWED] |(?:slot|srv|que|res|cmn) {1,12}\w"
    r"|(?:print_info|load|load_tensors|llama_\w{1,40}|ggml_\w{1,60}|common_\w{1,40}): )"
)
_TURN: Final = pattern(
    rf"(?P<open>{_OPENS})(?!['\"])"
    rf"(?P<said>(?>(?:(?!{_CLOSES}|{_LOGGED})[\s\S]){{1,20000}}))"
    rf"(?P<close>{_CLOSES})"
)
# Whatever the last turn says: nothing tells where it ends but the line.
_LAST_TURN: Final = pattern(
    rf"(?P<open>{_OPENS})(?!['\"])"
    rf"(?P<said>(?:\n(?!{_LOGGED[2:]}))?(?! <prompt>)[^\n<\[#]{{1,20000}}+)"
)


def echo_start(text: str) -> int:
    """Where in a log line the text of a request, an answer or a model's file begins, or -1."""
    if not any(key in text for key in _ECHO_KEYS):
        return -1
    found = _ECHOED.search(text)
    return found.end() if found else -1


def _json_end(text: str, start: int, depth: int, limit: int) -> int:
    """End of the array or object at ``start``, or -1. ``depth`` is that of its quotes' escaping."""
    nested, in_string = 0, False
    for token in _BRACKETS.finditer(text, start, limit):
        if token[1] is not None:
            in_string ^= len(token[1]) % (2 * (depth + 1)) == depth
        elif not in_string:
            nested += 1 if token[0] in "[{" else -1
            if nested <= 0:
                return token.end()
    return -1


def _prompt_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Values of JSON members that hold a request's or an answer's text. Numbers stay."""
    at, limit = 0, len(text)
    while found := _JSON_NAME.search(text, at):
        start = at = found.end()
        if text[start : start + 1] in {"[", "{"}:
            end = _json_end(text, start, len(found[1]), limit)
            if end < 0:
                # Unbalanced once is unbalanced for good: look no further than the line from now on.
                line = text.find("\n", start)
                end = len(text) if line < 0 else line
                limit = min(limit, end)
            quotes = found[1] + found[2]
            at = end
            yield start, end, f"{quotes}{PROMPT}{quotes}" + "\n" * text.count("\n", start, end)
        elif opening := OPENING.match(text, start):
            at = string_end(text, opening)
            if at > opening.end():
                yield opening.end(), at, PROMPT


def _flag_spans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while found := _PROMPT_FLAG.search(text, at):
        start, end = value_span(text, found.end())
        at = max(end, found.end())
        if end > start:
            yield start, end, PROMPT


def _spoken_spans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while found := _SPOKEN.search(text, at):
        start, at = found.span("said")
        for _ in range(_SPOKEN_LINES):
            if at >= len(text) or _PREFIXED.match(text, at + 1):
                break
            line = text.find("\n", at + 1)
            at = len(text) if line < 0 else line
        yield start, at, " " + PROMPT + "\n" * text.count("\n", start, at)


def without_prompts(text: str) -> str:
    """The text without prompts and answers; as many lines as before."""
    for spans in (_spoken_spans, _prompt_spans, _flag_spans):
        text = rewrite(text, spans(text))
    for turn in (_TURN, _LAST_TURN):
        text = turn.sub(_without_said, text)
    return text


def _without_said(turn: re.Match[str]) -> str:
    said = turn["said"]
    if not said.strip() or said.strip() == PROMPT:
        return turn[0]
    close = turn["close"] if "close" in turn.re.groupindex else ""
    return f"{turn['open']} {PROMPT}" + "\n" * said.count("\n") + close
