"""Recognise secrets in text and remove them.

Every pattern either fails within a bounded distance or consumes what it matched, so that the time
is linear in the text whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, quote_plus

from arriero.base import limits
from arriero.base.late import pattern

SECRET: Final = "***"  # noqa: S105  printed in place of a secret

NOT_SECRET: Final = frozenset({"", "none", "null", "true", "false", "empty", SECRET})
_FLAG: Final = (
    r"(?:-hft|(?i:--(?:[a-z0-9]{1,20}[_-]){0,4}(?:api[_-]?keys?"
    r"|(?:auth|access|private|secret|signing|encryption|ts)[_-]?key"
    r"|token|passw(?:or)?d|passphrase|pass|pwd|pw|secret|credentials?|creds|auth|bearer|cookie)))"
)
_NAME: Final = (
    r"api[_-]?keys?|access[_-]?key(?:[_-]?id)?|secret(?:[_-]?(?:access)?[_-]?key)?|passw(?:or)?d"
    r"|passphrase|private[_-]?key|credentials?"
    r"|(?:auth|access|refresh|bearer|session|hf|id)[_-]?token"
)
SECRET_FLAG: Final = pattern(_FLAG + r"\Z")
SECRET_NAME: Final = pattern(
    # PWD alone is the shell's current directory.
    rf"(?:{_NAME}|hft|authorization|cookie"
    r"|(?:\A(?-i:(?!PWD\Z))|_)(?:key|token|secret|pass|pat|pwd?|auth|creds?)"
    r"(?:_(?:read|write|r[ow]|v?\d{1,3}|prod|dev|test))?)\Z",
    re.IGNORECASE,
)
# A word may also begin right after an ANSI colour or an escaped newline inside a JSON string.
_START: Final = r"(?:(?<![A-Za-z0-9_])|(?<=\[\dm)|(?<=\[\d\dm)|(?<=[;\[]\d\d\dm)|(?<=\\[nrt]))"
_PEM: Final = pattern(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?>(?:[^-]|-(?!----))*)"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_TOKEN: Final = pattern(
    r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|hooks\.slack\.com/services/[A-Za-z0-9/]{10,}"
    r"|eyJ[A-Za-z0-9_-]{12,}(?:\.[A-Za-z0-9_-]*){0,4}"
    r"|(?:npm|gsk|r8|whsec)_[A-Za-z0-9]{16,}|[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"
    r"|dop_v1_[0-9a-f]{32,}|shp(?:at|ca|pa|ss)_[0-9A-Fa-f]{16,}|dckr_pat_[A-Za-z0-9_-]{16,}"
    r"|pypi-AgE[A-Za-z0-9_-]{16,}|(?:nvapi|tskey|pplx|xai|xapp)-[A-Za-z0-9-]{16,}"
    r"|hv[bsr]\.[A-Za-z0-9_-]{20,}|ya29\.[A-Za-z0-9_-]{20,}|ATATT[A-Za-z0-9_=-]{20,}"
    r"|SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r"|(?<!\d)\d{8,10}:AA[A-Za-z0-9_-]{30,}|/api/webhooks/\d{5,25}/[A-Za-z0-9_-]{20,}"
    rf"|(?:{_START}|(?<=_))sk-[A-Za-z0-9_-]{{16,}}"
)
_BEARER: Final = pattern(r"(\bBearer(?:\s|%20|\+){1,4})[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE)
# The server prints the last characters of its only key.
_KEY_TAIL: Final = pattern(r"(api_keys: )\*+[^\s*]{1,16}")
_USERINFO: Final = pattern(r"(:(?:\\?/){2})[^\s/\"'<>?#\\]{1,512}@")
_QUERY: Final = pattern(
    r"([?&;](?:[\w.-]{0,40}(?:token|key|sig|signature|secret|password|passwd|credentials?|auth|"
    r"policy|pass|pwd|pw|sas|jwt|session)|X-(?:Amz|Goog)-[\w-]{1,40})=)[^&\s\"'<>#\\]+",
    re.IGNORECASE,
)
SEPARATOR: Final = r"""(?:\\*["'])?(?:\s{0,4}[=:,]\s{0,4}|(?:\s|\\\r?\n){1,40})(?:-\s{1,4})?"""
_ASSIGN: Final = r"""(?:\\*["'])?\s{0,4}[=:]\s{0,4}+"""
_MIXED: Final = (  # twelve or more characters, letters and digits among them
    r"""(?=["'\\]{0,4}[\w.+/=-]{12})(?=["'\\]{0,4}[A-Za-z_.+/=-]{0,64}\d)"""
    r"""(?=["'\\]{0,4}[\d_.+/=-]{0,64}[A-Za-z])"""
)
_KEY_SHAPED: Final = r"""(?=["']?[^\s"']{10})(?=["']?[^\s"']{0,64}[\d!$%+])"""
_KEYED: Final = pattern(
    rf"(?<![\w-]){_FLAG}(?![\w-]){SEPARATOR}"
    rf"|(?i:{_NAME}){_ASSIGN}(?!\d{{1,4}} keys loaded)"
    r"|(?<=[A-Z0-9])_(?:KEY|TOKEN|SECRET|PASS|PAT|PASSW(?:OR)?D|PWD?|AUTH|CREDS?)"
    rf"(?:_(?:READ|WRITE|R[OW]|V?\d{{1,3}}|PROD|DEV|TEST))?{_ASSIGN}"
    rf"|(?<![A-Za-z0-9_])(?:TOKEN|SECRET|PASSWORD|PASS)="
    r"|(?<![A-Za-z0-9_])[Pp]wd=(?![/~.])"
    rf"|(?<![\w-])token{_ASSIGN}{_MIXED}|(?<=[a-z])(?:Key|Token|Secret|Password){_ASSIGN}{_MIXED}"
    rf"|(?<=[\"'])token\\*[\"']{_ASSIGN}(?=\\*[\"'])"
    r"|(?<![^\n])[ \t]{0,16}(?:- )?token: {1,4}(?=[\"']?[^\s\"']{8,200}[\"']?(?![^\n]))"
    r"|(?<![\w-])(?:-[uU]|--(?:proxy-)?user)[ =][\"']?[^\s:\"']{1,64}:(?!/)"
    r"|(?<![\w-])-b[ =](?=[\"']?[\w.-]{1,40}=)"
    r"|(?<!\w)setx {1,4}\w{0,40}(?:KEY|TOKEN|SECRET|PASS|PASSWORD|PAT)(?: {1,4})"
    r"|(?<!\w)sshpass {1,4}-p ?|(?<!\w)echo {1,4}(?=\S{1,200} ?\| ?sudo )"
    r"|(?i:(?<!\w)(?:for|with|using) (?:the )?(?:key|token|password|secret) (?=[\"']))"
    r"|(?<!\w)login[ \t]{1,4}\S{1,64}[ \t]{1,4}password[ \t]{1,4}"
    rf"|(?i:(?<!\w)(?:api key|password|passphrase)(?: is| for [\w.@-]{{1,64}})?:?) {_KEY_SHAPED}"
)
_HEADER: Final = pattern(
    r"""((?:proxy-)?authorization|(?:set-)?cookie)(?:\\*["'])?\s{0,4}[:=]\s{0,4}""", re.IGNORECASE
)
# The name of a file, all of its path before it: what comes after ": " is said about the file.
_STOPS: Final = r"\s\"'`=(,;\[{?&:<>|\\"
_IN_PATH: Final = pattern(
    r"(?:\A|[\s\"'`=(,;\[{])"
    rf"(?:(?:~[\w.-]{{0,64}}|\.{{1,2}}|/[^{_STOPS}/]+)/[^{_STOPS}]*"
    rf"|(?:[A-Za-z]:|\\)(?:/|\\(?![nrt\"']))(?:[^{_STOPS}]|\\(?![nrt\"']))*)\Z"
)
_LONGEST_PATH: Final = 256
_SAID: Final = pattern(r"[^\"'=]*:[ \t]+\Z")
_KEY_LIKE: Final = pattern(_MIXED)
_HEADER_VALUE: Final = pattern(r"""[^"'\\\n\r]*""")
_BARE: Final = pattern(r"""(?:\\[^nrtu"'\\\s]|\\ |[^\s"'\\&;|<>])*""")
OPENING: Final = pattern(r"""(\\*)(["'`])""")
_QUOTES: Final = {q: pattern(rf"(?<!\\)(\\*){q}") for q in "\"'`"}


_REFERENCE: Final = pattern(
    r"(?:(?:Bearer|Basic|token) )?"
    r"(?:\$\{[A-Za-z_]\w{0,99}\}|\$[A-Z_][A-Z0-9_]{1,99}|%[A-Z_][A-Z0-9_]{1,99}%)\Z"
)


def is_reference(value: str) -> bool:
    """Whether it only names the variable with the secret; with a default it contains the secret."""
    return _REFERENCE.match(value) is not None


def string_end(text: str, opening: re.Match[str]) -> int:
    """Where the string that ``opening`` begins ends, at whatever depth of JSON escaping.

    An unclosed string ends with its line.
    """
    depth = len(opening[1])
    line_end = text.find("\n", opening.end())
    limit = len(text) if line_end < 0 else line_end
    for run in _QUOTES[opening[2]].finditer(text, opening.end(), limit):
        if len(run[1]) % (2 * (depth + 1)) == depth:
            return run.start()
    return limit


def value_span(text: str, start: int, bare: re.Pattern[str] = _BARE) -> tuple[int, int]:
    """First and last index of the value at ``start``, without its quotes."""
    if opening := OPENING.match(text, start):
        return opening.end(), string_end(text, opening)
    found = bare.match(text, start)
    return start, found.end() if found else start


def rewrite(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """The text with each span replaced; spans rise and do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, new in spans:
        parts += (text[at:start], new)
        at = end
    return "".join((*parts, text[at:]))


def _is_said_of_a_file(text: str, found: re.Match[str]) -> bool:
    """Whether ``found`` is the end of a path with a message after it, not the name of a secret.

    Not if a name or value is quoted, nor if there is no space between the two (as ``grep`` writes
    a file's content), nor if what follows looks like a key.
    """
    start = found.start()
    return (
        _SAID.fullmatch(found[0]) is not None
        and _KEY_LIKE.match(text, found.end()) is None
        and OPENING.match(text, found.end()) is None
        and _IN_PATH.search(text, max(0, start - _LONGEST_PATH), start) is not None
    )


def keyed_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Values that follow the name of a secret."""
    at = 0
    while found := _KEYED.search(text, at):
        if _is_said_of_a_file(text, found):
            at = found.end()
            continue
        start, end = value_span(text, found.end())
        if text.startswith("--", start):  # "-hft, --hf-token TOKEN"
            at = start
            continue
        at = max(end, found.end())
        value = text[start:end]
        if value.strip("[]{},").lower() not in NOT_SECRET and not is_reference(value):
            yield start, end, SECRET


def _header_spans(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    while found := _HEADER.search(text, at):
        if _is_said_of_a_file(text, found):
            at = found.end()
            continue
        start, end = value_span(text, found.end(), _HEADER_VALUE)
        at = max(end, found.end())
        if end > start and not is_reference(text[start:end]):
            yield start, end, SECRET


def _variants(secret: str) -> set[str]:
    """The forms of a literal: as it is, in JSON, in a URL, in HTML, in a shell."""
    import html  # late, as few commands have secrets to look for
    import json

    escaped = json.dumps(secret)[1:-1]
    plain = json.dumps(secret, ensure_ascii=False)[1:-1]
    encoded = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    lower = {re.sub(r"%[0-9A-F]{2}", lambda m: m[0].lower(), text) for text in encoded}
    return {
        secret,
        escaped,
        plain,
        json.dumps(escaped)[1:-1],
        repr(secret)[1:-1],
        html.escape(secret),
        secret.replace("'", "'\"'\"'"),
        secret.replace("'", "'\\''"),
        *encoded,
        *lower,
    }


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """The secrets of one command: in its flags, its key file and its environment.

    A list of keys counts as a whole and key by key. A key file that cannot be read adds none.
    """
    found: set[str] = set()
    for flag, value in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, rest = flag.partition("=")
        value = rest if equals else value
        if SECRET_FLAG.match(name) or (equals and SECRET_NAME.search(name)):
            found |= {value, *value.split(",")}
        elif name == "--api-key-file":
            found |= _key_file(value)
    for name, value in env.items():
        if name == "LLAMA_ARG_API_KEY_FILE":
            found |= _key_file(value)
        elif SECRET_NAME.search(name):
            found |= {value, *value.split(",")}
    return frozenset(
        value for value in found if value.lower() not in NOT_SECRET and not is_reference(value)
    )


def _key_file(path: str) -> set[str]:
    try:
        with limits.open_regular(Path(path)) as file:
            lines = file.read(limits.KEY_FILE).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return set()
    return {line.strip() for line in lines if line.strip() and not line.startswith("#")}


def without_secrets(text: str, known: re.Pattern[str] | None = None) -> str:
    """The text without what looks like a secret and without what ``known`` matches.

    A secret over several lines is replaced by as many lines, so that line numbers stay correct.
    """
    text = _PEM.sub(lambda m: SECRET + "\n" * m[0].count("\n"), text)
    if known:
        text = known.sub(SECRET, text)
    text = rewrite(text, _header_spans(text))
    text = rewrite(text, keyed_spans(text))
    text = _TOKEN.sub(SECRET, text)
    text = _BEARER.sub(rf"\1{SECRET}", text)
    text = _KEY_TAIL.sub(rf"\1{SECRET}", text)
    text = _USERINFO.sub(_unless_reference, text)
    return _QUERY.sub(_unless_reference, text)


def _unless_reference(found: re.Match[str]) -> str:
    value = found[0][len(found[1]) :]
    end = "@" * value.endswith("@")
    held = value.removesuffix("@").rpartition(":")[2] if end else value
    return found[0] if is_reference(held) else f"{found[1]}{SECRET}{end}"


def pattern_of(secrets: Collection[str]) -> re.Pattern[str] | None:
    """A pattern for all forms of these secrets; None if there is nothing to look for.

    A secret of fewer than four characters would match everywhere and is left out; one of fewer than
    eight matches only as a whole word.
    """
    words = {word for secret in secrets for word in _variants(secret) if len(word) > 3}
    if not words:
        return None
    return re.compile(
        "|".join(
            re.escape(word)
            if len(word) > 7
            else rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])"
            for word in sorted(words, key=lambda word: (-len(word), word))
        )
    )
