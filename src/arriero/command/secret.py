"""The parts of a command line that must never be written anywhere."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from typing import Final

from arriero.base.late import pattern

MASK: Final = "***"

_SECRET_NAME: Final = pattern(
    r"(?:^|[-_])(?:key|token|secret|password|passwd|passphrase|credentials?|mcp-servers-json)\Z"
    r"|LLAMA_ARG_MCP_SERVERS_JSON\Z|LLAMA_API_KEY\Z",
    re.IGNORECASE,
)
_USERINFO: Final = pattern(r"\b[a-z][a-z0-9+.-]*://([^\s/@]+)@", re.IGNORECASE)
_QUERY: Final = pattern(
    r"[?&][\w-]*(?:key|token|secret|password|signature|sig|credential)=([^&\s#]+)", re.IGNORECASE
)
_HF_TOKEN: Final = pattern(r"\bhf_[A-Za-z0-9]{16,}\b")
_SHORTEST: Final = 6
"""Characters. A shorter secret is masked only in its own place: `1` is in every command."""


def is_secret_variable(name: str) -> bool:
    """Whether a variable or flag of this name holds a secret itself (not the path of one)."""
    return _SECRET_NAME.search(name) is not None


def secrets_in(
    words: Iterable[str], named: Iterable[str], environ: Mapping[str, str]
) -> frozenset[str]:
    """Every secret in a command: values of secret flags and variables, and those inside addresses.

    Args:
        words: The command as typed.
        named: Values of flags that hold a secret; commas separate several.
        environ: The environment of llama-server.
    """
    found = [*named, *(value for name, value in environ.items() if is_secret_variable(name))]
    for word in words:
        name, equals, value = word.partition("=")
        if equals and is_secret_variable(name):
            found.append(value)
        found += [*_QUERY.findall(word), *_HF_TOKEN.findall(word)]
        for userinfo in _USERINFO.findall(word):
            found += [userinfo, *userinfo.split(":", 1)[1:]]
    found += [part for value in found for part in split_list(value)]
    return frozenset(value for value in found if len(value) >= _SHORTEST)


def split_list(value: str) -> list[str]:
    """The parts of a comma-separated value; quoted parts may hold commas (common/arg.cpp)."""
    try:
        return next(csv.reader([value]), [])
    except csv.Error:
        return value.split(",")


def mask_word(word: str, secrets: Iterable[str]) -> str:
    """The word with every secret replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        word = word.replace(secret, MASK)
    word = _USERINFO.sub(lambda match: match.group(0).replace(match.group(1), MASK), word)
    return _QUERY.sub(lambda match: match.group(0).replace(match.group(1), MASK), word)
