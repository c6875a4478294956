"""What llama.cpp writes, as a table (``messages.txt``), and what the columns of it mean.

How the meanings of lines combine into a failure is in ``story`` and ``verdict``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any, Final

from arriero.base.words import Component, Kind, Phase
from arriero.logs.quoted import own_words


class Act(StrEnum):
    """What a line does to the story of one start."""

    REQUEST = "request"
    """An allocator refused a request; whose it was comes in another line."""
    BUFFER = "buffer"
    """ggml names the buffer type and the size it could not allocate."""
    OWNER = "owner"
    """Says which component the refused request was for."""
    FAILURE = "failure"
    """A failure complete in itself."""
    DETAIL = "detail"
    """A further line of the failure just before: ``of`` says of which."""
    FRAME = "frame"
    """A line of a backtrace: ``to`` says where the process was."""
    DEATH = "death"
    """The process died; by itself this names no cause."""
    END = "end"
    """The start ended; by itself this names no cause."""
    OF_DRAFT = "of_draft"
    """The failure just before was that of the draft model or its context."""
    RETRY = "retry"
    """The buffer just refused is asked for again, smaller."""
    SIZE = "size"
    """A buffer and its size."""
    TOTAL = "total"
    """A cache's size over all devices."""
    VALUE = "value"
    """A value in force; the names of the pattern's groups are fields of ``Effective``."""
    MILESTONE = "milestone"
    """Where in its life the server is."""
    FIT_BEGIN = "fit_begin"
    """Dry runs measure memory from here on; failures in them are not the start's."""
    FIT_END = "fit_end"
    ROLE = "role"
    """From here on lines are about the draft model, the projector, or the main model again."""
    STATE = "state"
    """Saved state in host memory and its size."""
    NOTICE = "notice"
    DEVICE = "device"
    BEGIN = "begin"
    """Printed once in the life of a process."""


class To(StrEnum):
    """What a line turns the story to, beside what its act says."""

    # milestones
    LOAD = "load"
    """A load begins: after an end it is that of the next start."""
    TENSORS = "tensors"
    """The model's tensors are read: sizes are printed once all weights are there."""
    DRY = "dry"
    REAL = "real"
    """What follows is of a dry run, or of the start itself, which alone says such an end."""
    CONTEXT = "context"
    """A context is made: one after the main model's is a draft's."""
    RESERVE = "reserve"
    """The compute buffers are asked for."""
    READY = "ready"
    """The model is loaded, or the server listens with it."""
    IDLE = "idle"
    """It is ready, and every request has come to its end."""
    RELEASED = "released"
    """One request has come to its end."""
    IMAGE = "image"
    """The projector works from here on."""
    SLEEP = "sleep"
    """The model leaves memory, or comes back."""
    EXIT = "exit"
    # roles
    DRAFT = "draft"
    MMPROJ = "mmproj"
    MAIN = "main"
    # the rest
    SLOTS = "slots"
    """A value of the slots, which are made last: the main model's."""
    SAVING = "saving"
    """A prompt's state is being saved: a death just after it is of that."""
    PROBING = "probing"
    """The fit says where its dry run begins."""
    PROBED = "probed"
    """What failed before this line did so in a dry run."""
    AT_ONCE = "at_once"
    """Who started the engine tries again, if it failed just before."""
    WENT_ON = "went_on"
    """Who started the engine tries again, if it had failed."""
    WORKER = "worker"
    """The process is a worker (``ggml-rpc-server``)."""
    PINNED = "pinned"
    """Pinned memory was refused; the next line may say why."""
    IN_ANY_CASE = "in_any_case"
    """Said whether or not what was asked for was granted."""
    RESTART = "restart"
    """Somebody starts the process again and again; the fact ``times`` says how often."""
    FEATURES = "features"
    """Features of the CPU for which the engine was compiled."""
    # lines of a backtrace
    FIT = "fit"
    REMOTE = "remote"
    """It waited for a worker, or was one."""
    SAVED = "saved"
    """It saved a prompt."""


class By(StrEnum):
    """Who says it, where that matters."""

    KERNEL = "kernel"
    """The kernel, or who tells what it did: never with the prefix of a router's child."""
    ENGINE = "engine"
    """The engine, which ends itself: a later class of this death is none of its cause."""
    BACKTRACE = "backtrace"
    """A backtrace shows that the engine ended itself, not why."""
    NETWORK = "network"
    """Somebody whom a file was asked of: a kept copy makes up for it."""


class Of(StrEnum):
    """What a detail belongs to, and the failures that have such details."""

    CALL = "call"
    """A call of a card's API: reason, place and call stand in lines of their own, in any order."""
    COMMANDS = "commands"
    """Metal's command buffer: its status first, the reason in the lines after it."""
    REQUEST = "request"
    """The size of the request just refused."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One kind of message. Named groups of ``pattern`` are the facts it holds.

    All that a line of it means is here: nobody asks for its ``id``.
    """

    id: str
    key: str
    pattern: re.Pattern[str]
    act: Act
    kind: Kind | None = None
    component: Component | None = None
    phase: Phase | None = None
    family: str | None = None
    """Backend whose device numbers the message uses."""
    fatal: bool | None = None
    """Known from the source whatever follows; None: what follows decides."""
    presumed: bool | None = None
    """Whether it ends the process unless the log shows that it went on; None: its kind decides."""
    inferred: bool = False
    """Names an effect: the cause is another line, which may be missing."""
    probed: bool = False
    """Usual in a dry run: of the start itself only if the start ends right after it."""
    loading: Kind | None = None
    """What kind it is instead while a model is loaded."""
    workers: Kind | None = None
    """What kind it is instead where workers take part."""
    leads: Kind | None = None
    """Kind of the failure that it leads to: one that follows says no more."""
    unready: bool = False
    """Means this only until the server is ready: later its words are those of a request."""
    of_pinned: bool = False
    """May say why pinned memory was refused, which costs nothing."""
    of_tensors: bool = False
    """Of a buffer of tensors that are kept: weights or a cache, nothing computed."""
    of_cpu: bool = False
    """The CPU does not have an instruction that the engine was compiled for."""
    often: bool = False
    """A server that serves says it again and again: one line says as much as a thousand."""
    of: Of | None = None
    by: By | None = None
    notice: str | None = None
    """Id of the notice (a key of ``notices.NOTICES``) that is shown of it."""
    to: To | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Rule:
        return self  # there is one of each row

    @property
    def of_kernel(self) -> bool:
        """Whether the kernel says it, which never carries the prefix of a router's child."""
        return self.by is By.KERNEL

    @property
    def aborts(self) -> bool:
        """Whether the engine ended itself."""
        return self.by in (By.ENGINE, By.BACKTRACE)

    @property
    def open(self) -> bool:
        """Whether it fits whatever a message of its kind goes on to say."""
        return self.pattern.pattern.endswith(r"\S")


@dataclass(frozen=True, slots=True)
class Event:
    """A rule that fits one line, the facts it names, and where in the line it fits."""

    rule: Rule
    facts: dict[str, str]
    span: tuple[int, int]


_STANDS_FOR: Final = {
    "mib": r"(?P<mib>\d{1,3}(?: \d{3}){1,4}|\d[\d.,]{0,18})",
    "bytes": r"(?P<bytes>\d{1,3}(?: \d{3}){1,5}(?! ?\d)|\d{1,18})",
    "buf": r"(?P<buf>\S.{0,80}?)",
    "name": r"(?P<buf>\S{1,80})",
    "device": r"(?P<buf>[^:\s](?:[^:]|:(?!\s)){0,80}?)",
    "gpu": r"(?P<api>CUDA|ROCm|MUSA|HIP|CANN)",
    "hash": r"(?P<commit>[0-9a-f]{6,40})",
}
_PLACEHOLDER = re.compile(r"(?<!\?P)<(\w+)>")
# How far an open end of a row goes: a search that may begin anywhere must not go on for ever.
_BOUNDS: Final = {"\\w": 48, "\\S": 255, "\\d": 20, "\\s": 40, ".": 240, "]": 160}
_OPEN_END: Final = re.compile(r"(?<!\\)(\\[wSds]|\.|\])([*+])")
_YES_NO: Final = {"yes": True, "no": False}
_COLUMNS: Final[dict[str, Callable[[str], Any]]] = {
    "kind": Kind,
    "component": Component,
    "phase": Phase,
    "family": str,
    "loading": Kind,
    "workers": Kind,
    "leads": Kind,
    "of": Of,
    "by": By,
    "notice": str,
    "to": To,
}
"""What the words of a head are; those of all others are ``yes`` or ``no``."""


HEAD, TAIL = 1536, 512
"""Characters of a long line in which messages are looked for: of its begin and of its end."""


def _bounded(pattern: str) -> str:
    """The pattern of a row with its placeholders filled in and its open ends bounded."""
    filled = _PLACEHOLDER.sub(lambda m: _STANDS_FOR[m[1]], pattern)
    return _OPEN_END.sub(lambda m: f"{m[1]}{{{int(m[2] == '+')},{_BOUNDS[m[1]]}}}", filled)


def parse_table(text: str) -> tuple[Rule, ...]:
    """The rules of a table in the format of ``messages.txt``."""
    rules: list[Rule] = []
    means: dict[str, Any] = {}
    act = Act.FAILURE
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            name, *pairs = line.strip("[]").split()
            act, means = Act(name), dict(map(_meaning, pairs))
            continue
        row, key, *rest = line.split(" :: ", 2)
        pattern = re.compile(_bounded(rest[0] if rest else re.escape(key)))
        rules.append(Rule(row, key, pattern, act, **means))
    return tuple(rules)


def _meaning(pair: str) -> tuple[str, Any]:
    """One ``column=word`` of a head."""
    column, _, word = pair.partition("=")
    return column, _COLUMNS.get(column, _YES_NO.__getitem__)(word)


RULES: Final = parse_table(
    resources.files(__package__).joinpath("messages.txt").read_text(encoding="utf-8")
)

ERAS: tuple[tuple[str, int, int], ...] = (
    ("llm_load_", 1500, 4519),
    ("llama_new_context_with_model", 1500, 4519),
    ("llama_kv_cache_init", 1500, 5199),
    ("unable to allocate backend buffer", 1500, 4150),
    ("llama_kv_cache_unified", 5200, 6899),
    ("n_ctx_per_seq", 4150, 6899),
    ("n_ctx_seq", 6800, 11739),
    ("llama_params_fit", 7400, 9089),
    ("llama_memory_breakdown_print", 6700, 9089),
    ("common_memory_breakdown_print", 9040, 11739),
    ("common_fit_params", 9040, 11739),
    ("common_params_fit_impl", 9040, 11739),
    ("ggml_gallocr_reserve_n:", 1500, 7399),
    ("ggml_gallocr_reserve_n_impl", 7200, 11739),
    ("sched_reserve:", 8000, 11739),
    ("llama_server:", 9600, 11739),
    ("resolve_fused_ops", 10200, 11739),
    ("cmn ", 10200, 11739),
    (" rs_seq", 9130, 11739),
    ("ggml_backend_buft_alloc_buffer_n_default", 10435, 11739),
    ("alloc_tensor_range", 1500, 11433),
)
"""(words, first build, last build): the builds known to print these words (1500 and 11739 are the
first and the last build that was looked at)."""

MEMORY_WORDS: Final = re.compile(
    r"(?i)out of memory|(?<!timed )\bout(?: of)?$|memory allocation|allocate memory|insufficient"
    r"|resource allocation failed|alloc_failed"
)
"""How drivers say in a reason that it was memory."""

STAMP_ERA: Final = (9150, 11739)
"""Builds that put their own clock in front of each line unless told not to."""

SIGNS: Final[dict[str, str]] = {
    "prompt_saved": "saving prompt with length",
    "prompt_cache_state": "cache state:",
    "prompt_restored": "found better prompt",
    "checkpoint_created": "created context checkpoint",
    "checkpoint_restored": "restored context checkpoint",
    "checkpoint_erased": "erasing old context checkpoint",
    "reprocessed": "forcing full prompt re-processing",
    "task_started": "processing task",
    "slot_released": "stop processing: n_tokens",
    "idle": "all slots are idle",
    "image": "processing image",
    "sleeping": "entering sleeping state",
    "woken": "exiting sleeping state",
}
"""What ``LogReader.signs`` counts: id → words of the line that shows it."""


def _span(text: str, key: str, match: re.Match[str]) -> tuple[int, int]:
    """From where to where ``text`` holds the message: key and pattern, but not an open end."""
    end = match.end()
    if "why" in match.re.groupindex and match["why"] is not None:
        words = MEMORY_WORDS.search(match["why"])
        end = match.start("why") + (words.end() if words else 1)
    if key in match[0]:
        return match.start(), end
    at = text.find(key)
    return min(at, match.start()), max(at + len(key), end)


def events(text: str, rules: tuple[Rule, ...] = RULES) -> list[Event]:
    """The rules that fit ``text``: the first one, and what a failure's line says to have ended.

    ``rules`` are those that can fit, if that is known. What a server repeats of others is no
    message: one begins in its own words.
    """
    found: list[Event] = []
    text, begin, end = own_words(text)
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]}\n{text[-TAIL:]}"
    for rule in rules:
        if rule.key not in text or (found and rule.act not in (Act.OF_DRAFT, Act.END)):
            continue
        match = rule.pattern.search(text)
        if match and match.start() < begin < match.end():
            match = rule.pattern.search(text, begin)
        if match is None or match.start() >= max(end, begin + 1):
            continue
        facts = {name: value for name, value in match.groupdict().items() if value is not None}
        found.append(Event(rule, facts, _span(text, rule.key, match)))
        if rule.act not in (Act.OWNER, Act.FAILURE):
            break
    return found
