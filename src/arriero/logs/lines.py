"""From raw log text to llama.cpp's own lines: colours, prefixes, wrapping and order undone.

A line reaches people through journald, docker, Kubernetes, a router, a terminal, a desktop app or a
Markdown quote, each with its own prefix. Rules never anchor on what is left, so an unknown prefix
costs only the looks of the quoted text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from arriero.base.prompts import echo_start
from arriero.logs.quoted import is_of_loop, own_words

MAX_LINE = 4096
"""Characters of a line that are looked at."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|(?:\^\[)?\[\d{1,3}(?:;\d{1,3})*m")
_NOT_A_HOST = r"(?!(?:srv|slot|que|res|cmn|spec)\s)"
_OUTER = re.compile(
    rf"""
    (?P<quote>>\s?)
  | (?P<stamp>\d{{1,9}}\.\d\d\.\d{{3}}\.\d{{3}})\s
  | (?P<level>[IWED])\s+(?=\S)
  | \[\s{{0,4}}(?P<child>\d{{4,5}})\]\s
  | (?P<iso>\d{{4}}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?(?:Z|\s?[+-]\d\d:?\d\d)?)
      (?:\s(?:stdout|stderr)\s[FP])?\s
      (?:{_NOT_A_HOST}\S+\s(?:[\w./@-]+\[\d+\]|kernel|systemd|dockerd|ollama|[\w./@-]*llama[\w./@-]*server):\s)?
  | (?P<syslog>[A-Z][a-z]{{2}}\s[ \d]\d\s\d\d:\d\d:\d\d(?:\.\d+)?)\s
      (?:{_NOT_A_HOST}\S+\s[^\s:\[]+(?:\[\d+\])?:\s)?
  | {_NOT_A_HOST}(?:[\w.-]+\s)?[\w./@-]+\[\d+\]:\s(?!segfault\sat)
  | \[(?:[^\]\n]{{0,80}}(?:\d\d:\d\d|\d{{4}}-\d\d-\d\d|::|/)[^\]\n]{{0,80}}
      |(?i:info|warn(?:ing)?|error|debug|trace|std(?:err|out)|llama[\w.-]*|server|app|engine|lm\s?studio)
      |\s*\d+\.\d{{3,6}})\]:?\s*
  | (?P<clock>\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?(?:\s?[AP]M)?)\s
      (?:(?:DBG|INF|WRN|ERR|TRC)\s)?(?:GRPC\([^)]*\):\s)?(?:std(?:err|out)\s)?
  | [A-Za-z0-9][\w./-]{{0,60}}\s*\|\s
  | (?:\S{{0,255}}[/\\])?llama-[\w-]{{1,40}}(?:\.exe)?\s:\s
  | (?:Loading\smodel\.\.\.\s)?[|/\\-](?=\d{{1,9}}\.\d\d\.\d{{3}}\.\d{{3}}\s)
  | -\s+(?=\S)
  | <[^<>|\s]{{1,60}}>\s
  | (?P<number>\d{{1,7}})(?::\s*|-(?=\D)|\t\s*|\s{{2,}})
  | (?:[\w.]{{1,60}}\s-\s)?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?:\s-|:)\s
    """,
    re.VERBOSE,
)
_MAYBE_OUTER = re.compile(
    r"[<>\[\d|/\\-]|[IWED]\s|[A-Z][a-z]{2}\s[ \d]|[\w./@-]+(?:\s[\w./@-]+)?\[\d"
    r"|\S{1,62}\s{0,200}\|\s|Loading\s|\S{0,255}?llama-[\w.-]{1,44}\s:\s|(?:[\w.]+\s-\s)?[A-Z]{4,8}(?:\s-|:)\s"
)
_STRONG_START = re.compile(
    r"\d+\.\d\d\.\d{3}\.\d{3}\s|\[\s{0,4}\d{4,5}\]\s|[IWED]\s\S|\{\""
    r"|/\S+:\d+: |radv/|(?:CUDA|ROCm|MUSA|HIP) error|current device: "
    r"|(?:cu|hip|mu)[A-Za-z_]\w+\(|terminate called|Segmentation fault|Aborted|Killed"
    r"|(?:srv|slot|que|res|cmn|spec)\s+\w+:|ggml-\w+: "
    r"|(?:ggml|gguf|llama|llm|load|print|common|clip|sched|graph|alloc|resolve|decode|init|main(?!_gpu)|build"
    r"|system_info|set_|reserve|output_reserve|device_info|update|warning|error)\w*:\s"
)
_MESSAGE_KEYS = ("log", "MESSAGE", "msg", "message", "line")
_decode_json = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Line:
    """One line of llama.cpp, cleaned. ``stamp`` is the server's own time in microseconds."""

    number: int
    text: str
    child: str | None = None
    stamp: int | None = None


def plain(raw: str) -> str:
    """``raw`` without colours, carriage returns, NULs, and at most ``MAX_LINE`` characters."""
    if len(raw) > MAX_LINE:
        raw = raw[:MAX_LINE]
    if "\x1b" in raw or "[" in raw:
        raw = _COLOUR.sub("", raw)
    if "\x00" in raw:
        raw = raw.replace("\x00", "")
    return raw.rstrip("\r\n")


def clean(raw: str, number: int, *, columns: bool = True) -> Line:
    """Take off everything that is around the server's own text.

    ``columns``: also whatever stands in columns before it.
    """
    text = plain(raw).strip()
    child: str | None = None
    stamp: int | None = None
    for _ in range(8):
        if text.startswith("{"):
            unpacked = _unpack(text)
            if unpacked is None:
                break
            text = plain(unpacked).strip()
            continue
        found = _OUTER.match(text) if _MAYBE_OUTER.match(text) else None
        if found is None:
            before = _columns(text) if columns and stamp is None else 0
            if not before:
                break
            text = text[before:]
            continue
        if found["child"]:
            child = found["child"]
        if found["stamp"]:
            stamp = _microseconds(found["stamp"])
        text = text[found.end() :].lstrip()
    return Line(number, text, child, stamp)


_COLUMN = re.compile(r"\t\s*|\s{2,}|\s?\|\s*|[,;](?=\S)")
_COLUMNS_END = 160
"""Characters of a line in which columns before the message end."""


def _columns(text: str) -> int:
    """Where a line of the server begins behind columns of a table or an export; 0 for nowhere."""
    if _STRONG_START.match(text) or is_of_loop(text):
        return 0
    ends = (found.end() for found in _COLUMN.finditer(text, 0, _COLUMNS_END))
    end = next((end for end in ends if _STRONG_START.match(text, end)), 0)
    echo = echo_start(text) if end else -1
    return 0 if 0 <= echo < end else end


_RELAY = re.compile(r"\\n|; (?=\w+: )|\s(?:→|⇒|->|=>)\s")
_PASSED_ON = ("Malloc failed", "error loading model", "failed to allocate", "insufficient memory")


def relayed(text: str) -> list[str]:
    """The messages in a line in which another program passes on what the server said."""
    if not any(words in text for words in _PASSED_ON):
        return [text]
    return _RELAY.split(text)


def _unpack(text: str) -> str | None:
    """The message inside a JSON line (docker's, journald's, or the server's own of early 2024)."""
    if not text.endswith("}"):
        return None
    try:
        record = _decode_json(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    for key in _MESSAGE_KEYS:
        message = record.get(key)
        if isinstance(message, str):
            rest = " ".join(
                f"{k}={v}" for k, v in record.items() if k in ("model", "build", "commit", "error")
            )
            place = record.get("function")
            head = f"{place}: " if isinstance(place, str) else ""
            return f"{head}{message} {rest}".rstrip()
    return None


def _microseconds(stamp: str) -> int:
    minutes, seconds, milli, micro = (int(part) for part in stamp.split("."))
    return ((minutes * 60 + seconds) * 1000 + milli) * 1000 + micro


def outer_time(raw: str) -> str | None:
    """The time that journald or docker put in front, for telling the order of lines."""
    found = _OUTER.match(plain(raw).strip())
    if found is None:
        return None
    return found["iso"] or found["syslog"] or found["clock"]


def is_reversed(raws: Sequence[str]) -> bool:
    """Whether the newest line comes first, as ``journalctl -r`` prints it.

    Told by the server's own clock where there is one, by the prefix's clock otherwise, and by the
    order in which a start goes where there is neither.
    """
    for trend in (_stamp_trend, _outer_trend):
        up, down = trend(raws)
        if max(up, down) >= 2:
            return down > up
    up, down = _milestone_trend(raws)
    return down >= 3 and down > 2 * up


def _count_trend(values: list[int]) -> tuple[int, int]:
    pairs = list(pairwise(values))
    return sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)


def _sum_trends(many: Iterable[list[int]]) -> tuple[int, int]:
    counts = [_count_trend(values) for values in many]
    return sum(up for up, _ in counts), sum(down for _, down in counts)


def _stamp_trend(raws: Sequence[str]) -> tuple[int, int]:
    by_child: dict[str | None, list[int]] = {}
    for raw in raws:
        line = clean(raw, 0)
        if line.stamp is not None:
            by_child.setdefault(line.child, []).append(line.stamp)
    return _sum_trends(by_child.values())


def _outer_trend(raws: Sequence[str]) -> tuple[int, int]:
    times = [time for raw in raws if (time := outer_time(raw)) is not None]
    ranks = {time: rank for rank, time in enumerate(sorted(set(times)))}
    return _count_trend([ranks[time] for time in times])


_MILESTONES = tuple(
    re.compile(pattern)
    for pattern in (
        r"^(?:build|version|system_info|device_info)\b",
        r"model_loader: |print_info: |print_meta: ",
        r"load_tensors: (?:loading|offload)",
        r"model buffer size|alloc_tensor_range|Malloc failed|insufficient memory|allocation of",
        r"^llama_\w+: n_(?:ctx|batch)\b",
        r"KV buffer size|RS buffer size|for (?:kv|rs) cache|failed to allocate buffer of size",
        r"compute buffer size|compute (?:pp )?buffers",
        r"warming up",
        r"failed to create.context|failed to load model",
        r"model loaded|listening on http|exiting due|unable to load model",
    )
)


def _milestone_trend(raws: Sequence[str]) -> tuple[int, int]:
    by_child: dict[str | None, list[int]] = {}
    for raw in raws:
        line = clean(raw, 0)
        words, _, end = own_words(line.text)
        rank = next((n for n, told in enumerate(_MILESTONES) if told.search(words[:end])), None)
        if rank is not None:
            by_child.setdefault(line.child, []).append(rank)
    return _sum_trends(by_child.values())


def foreign_prefix(shown: Sequence[str]) -> str | None:
    """A pattern of what most of these plain lines begin with, if it hides their beginning.

    Nobody knows every program that puts something in front. Digits may differ from line to line; it
    counts only if more lines begin like a line of the server without it.
    """
    lines = [line for line in shown if line.strip()]
    alike: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        shape = _NUMBERS.sub("0", line[:PREFIX])
        alike.setdefault(shape[:3], []).append((shape, line))
    most = max(alike.values(), key=len, default=[])
    most.sort()
    if len(most) < max(3, len(lines) * 2 // 5):
        return None
    usual, example = most[len(most) // 2]
    shared = bisect_left(
        range(1, len(usual) + 1),
        True,
        key=lambda n: sum(s.startswith(usual[:n]) for s, _ in most) < len(most) * 9 // 10,
    )
    prefix = _pattern(usual[: usual.rfind(" ", 0, shared) + 1])
    end = re.match(prefix, example)
    own = (at for at in range(end.end() if end else 0) if _begins(example, at))
    prefix = _pattern(_NUMBERS.sub("0", example[: next(own, end.end() if end else 0)]))
    if not prefix:
        return None
    told = sum(_begins(clean(line, 0, columns=False).text, 0) for line in lines)
    without = (re.sub(f"^{prefix}", "", line) for line in lines)
    bare = sum(_begins(clean(line, 0, columns=False).text, 0) for line in without)
    return prefix if bare > told else None


PREFIX: Final = 160
"""Characters of a line in which a prefix ends."""
ALIKE: Final = 7
"""Characters that two lines share which begin with the same unknown prefix."""
_NUMBERS: Final = re.compile(r"\d+")


def _pattern(shape: str) -> str:
    return re.escape(shape).replace("0", r"\d+")


def _begins(text: str, at: int) -> bool:
    """Whether a line of the server begins there."""
    return (at == 0 or text[at - 1] == " ") and _STRONG_START.match(text, at) is not None


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How lines may have been broken: at which column, and whether only between words."""

    width: int
    words: bool


def wrappings(shown: Sequence[str]) -> tuple[Wrapping, ...]:
    """How a terminal or a paste may have broken these plain lines, the likeliest way first.

    The longest line tells, if what comes after lines of that length does not begin like a line of
    the server. It is a guess: a join counts only if a message is found across the seam.
    """
    width = max((len(line) for line in shown), default=0)
    if width < 30:
        return ()
    counts = {
        words: sum(continues(a, b, Wrapping(width, words)) for a, b in pairwise(shown))
        for words in (False, True)
    }
    # a line of full width may be one of either
    likely = counts[True] > 2 * counts[False]
    return tuple(Wrapping(width, words) for words in (likely, not likely) if counts[words])


def continues(before: str, after: str, wrap: Wrapping) -> bool:
    """Whether ``after`` may be what was broken off from ``before``."""
    rest = strip_outer(after)
    if not rest.strip() or _STRONG_START.match(rest.lstrip()):
        return False
    if _NUMBERS.sub("0", rest[:ALIKE]) == _NUMBERS.sub("0", strip_outer(before)[:ALIKE]):
        return False
    if not wrap.words:
        return len(before) == wrap.width
    return len(before) <= wrap.width < len(before) + 1 + len(rest.split(None, 1)[0])


def strip_outer(shown: str, *, numbered: bool = True) -> str:
    """A plain line without what journald or docker put in front; the server's own prefix stays.

    ``numbered``: whether lines may begin with their number.
    """
    text = shown
    for _ in range(8):
        inner = text.lstrip()
        found = _OUTER.match(inner)
        if found is None or found["stamp"] or found["level"] or found["child"]:
            break
        if found["number"] and not numbered:
            break
        text = inner[found.end() :]
    return text
