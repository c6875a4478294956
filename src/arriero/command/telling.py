"""The parts of a command that may be shared: known flags and variables, and harmless values.

Numbers, types, switches and devices are kept. Any other value is replaced by a word in capitals
that says what it was (``MODEL.gguf``, ``PATH``, ``TEXT``, ``HOST``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from arriero.base.late import pattern
from arriero.base.places import is_loopback
from arriero.base.secret import SECRET, SECRET_FLAG, SECRET_NAME
from arriero.base.vocabulary import ELIDED, Vocabulary
from arriero.command.flags import BUILTIN, Flag, builtin_flags, normalise


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIGURE: Final = r"[+-]?\d{1,20}(?:\.\d{1,20})?(?:[kKmMgGtT](?:i?[bB])?|[a-z%])?"
_FIGURES: Final = pattern(rf"{_FIGURE}(?:[,:;/x-]{_FIGURE})*\Z")
_TYPE: Final = pattern(
    r"(?:b?f\d{1,2}|i?q\d\w{0,6}|tq\d_\d|(?:mx|nv)fp4|i\d{1,2})\Z", re.IGNORECASE
)
_SWITCHES: Final = _words(
    """
    on off auto true false enabled disabled none all yes no default last full
    """
)
_NAMED: Final = _words(
    """
    --numa --load-mode --device --override-tensor --override-kv --samplers --sampler-seq
    --spec-type --spec-draft-device --spec-draft-override-tensor --tools --tools-runtime
    --reasoning-format --reasoning-effort --cors-methods --cors-headers
    """
)
"""Flags whose values are llama.cpp's own words."""
_STANDS_FOR: Final = {
    "--model": "MODEL.gguf",
    "--spec-draft-model": "DRAFT.gguf",
    "--mmproj": "MMPROJ.gguf",
    "--lora": "ADAPTER.gguf",
    "--hf-repo": "REPO",
    "--spec-draft-hf": "REPO",
    "--docker-repo": "REPO",
    "--hf-file": "FILE.gguf",
    "--host": "HOST",
    "--rpc": "HOST",
    "--cors-origins": "HOST",
    "--alias": "NAME",
    "--tags": "NAME",
    "--api-prefix": "PATH",
}
_PLACE: Final = pattern(r"--(?:.*-)?(?:file|dir|path|static|dynamic|vector|config|preset)\Z")
_PUBLIC: Final = pattern(
    r"(?:ggml-org|unsloth|bartowski|lmstudio-community|TheBloke|mradermacher|Qwen|google|meta-llama"
    r"|mistralai|microsoft|deepseek-ai|openai|ibm-granite|nvidia|LiquidAI|tiiuae|CohereLabs"
    r"|HuggingFaceTB|zai-org|moonshotai|MiniMaxAI|ai21labs|allenai|baidu|tencent|LGAI-EXAONE)"
    r"/[\w.-]{1,80}(?::[\w.-]{1,20})?\Z"
)
"""Publishers whose repositories are public."""
_QUANT: Final = pattern(r":(?:UD-)?(?:I?Q\d\w{0,6}|B?F\d{2}|MXFP4\w{0,4})\Z", re.IGNORECASE)
_PROGRAM: Final = pattern(r"(?:llama-[a-z]+(?:-[a-z]+){0,2}|(?:ggml-)?rpc-server)(?:\.exe)?\Z")
_RUNNERS: Final = _words(
    """
    env nice ionice chrt numactl taskset stdbuf sh bash docker podman run exec arriero
    python python3 systemd-run sudo
    """
)
_VARIABLE: Final = pattern(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ADDRESS: Final = pattern(r"(?P<host>\[[0-9A-Fa-f:]+\]|[^,:]+)(?P<port>:\d{1,5})?(?:,|\Z)")
_ALIAS: Final = pattern(r"(?:host|worker)-\d{1,4}\Z")


@cache
def _variables() -> Mapping[str, Flag]:
    flags = [flag for build in BUILTIN for flag in builtin_flags(build).flags]
    return {name: flag for flag in flags for name in (flag.env, flag.env_off) if name}


def _flag(name: str) -> Flag | None:
    tables = (builtin_flags(build) for build in reversed(BUILTIN))
    return next((flag for table in tables if (flag := table.get(name)) is not None), None)


def told_command(words: Sequence[str], vocabulary: Vocabulary) -> tuple[str, ...]:
    """The command in a form that may be shared, with the same number of words."""
    return tuple(_told(words, vocabulary))


def _told(words: Sequence[str], vocabulary: Vocabulary) -> Iterator[str]:
    before, values = "", 0
    """The flag whose values follow, and their least number."""
    for word in words:
        if values > 0 or (before and not word.startswith("-")):
            yield told_value(before, word, vocabulary)
            values -= 1
            before = before if values > 0 else ""
            continue
        name, equals, value = word.partition("=")
        if not word.startswith("-") or word in {"-", "--"}:
            yield _positional(word, vocabulary)
        elif equals:
            yield f"{told_flag(name, vocabulary)}={told_value(name, value, vocabulary)}"
        else:
            yield told_flag(word, vocabulary)
            # An unknown flag may have a value.
            flag = _flag(word)
            values = flag.arity if flag is not None else 0
            before = word if values or flag is None else ""


def told_flag(name: str, vocabulary: Vocabulary) -> str:
    """The name of a flag; of an unknown flag only if it consists of known words."""
    return name if _flag(name) or vocabulary.knows(name) else "--FLAG"


def _positional(word: str, vocabulary: Vocabulary) -> str:
    name, equals, value = word.partition("=")
    if equals and _VARIABLE.match(name):
        return "=".join(told_variable(name, value, vocabulary))
    base = re.split(r"[/\\]", word)[-1]
    if _PROGRAM.match(base) or base in _RUNNERS or word == "--":
        return base
    if word in {"TEXT", "PATH", "WORD"} or _FIGURES.match(word):
        return word
    return "PATH" if base != word else "WORD"


def told_variable(name: str, value: str, vocabulary: Vocabulary) -> tuple[str, str]:
    """A variable of the environment and its value."""
    flag = _variables().get(name)
    if flag is not None:
        return name, told_value(flag.canonical, value, vocabulary)
    if SECRET_NAME.search(name):
        return (name if vocabulary.knows(name) else "VARIABLE"), SECRET
    shown = value if _is_plain(value) or vocabulary.knows(value) else "VALUE"
    return (name if vocabulary.knows(name) else "VARIABLE"), "VALUE" if "/" in shown else shown


def told_value(name: str, value: Any, vocabulary: Vocabulary) -> Any:
    """The value of a flag: numbers, types and switches unchanged, of others only what they are.

    Args:
        name: The flag as written.
        value: Text; numbers, switches and None are returned unchanged.
        vocabulary: The known words.
    """
    if not isinstance(value, str) or not value:
        return value
    name = normalise(name)
    if SECRET_FLAG.match(name):
        return SECRET
    flag = _flag(name)
    canonical = flag.canonical if flag is not None else name
    if _is_plain(value) or (flag is not None and value in flag.choices):
        return value
    if canonical in {"--host", "--rpc"}:
        return _hosts(value)
    if canonical in {"--hf-repo", "--spec-draft-hf"}:
        quant = _QUANT.search(value)
        return value if _PUBLIC.match(value) else "REPO" + (quant[0] if quant else "")
    if canonical in _NAMED:
        shown = vocabulary.plain(value)
        return "VALUE" if ELIDED in shown else shown
    if canonical == "--chat-template" and re.fullmatch(r"[a-z0-9-]{3,16}", value):
        return value if vocabulary.knows(value) else "TEXT"
    if canonical in _STANDS_FOR:
        return _STANDS_FOR[canonical]
    if _PLACE.match(canonical) or re.match(r"[/~.]|[A-Za-z]:\\|<dir>", value):
        return "PATH"
    return "TEXT" if canonical not in {"--model-url", "--mmproj-url"} else "URL"


def _is_plain(value: str) -> bool:
    return (
        value == "*"
        or value.lower() in _SWITCHES
        or bool(_FIGURES.match(value) or _TYPE.match(value))
    )


def _hosts(value: str) -> str:
    """Addresses without names; those of this machine and aliases are kept."""

    def one(found: re.Match[str]) -> str:
        host, port = found["host"], found["port"] or ""
        return (host if is_loopback(host) or _ALIAS.match(host) else "HOST") + port

    found = list(_ADDRESS.finditer(value))
    return ",".join(map(one, found)) if found else "HOST"
