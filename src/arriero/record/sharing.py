"""Documents as they may be shown to anybody.

First the redactor takes out what looks private, then only what is known to be needed stays: lines
of a log that the grammar has a row for, flags and values by what they are, and of every other text
the words that Arriero itself is written with. What nobody thought of is left out, not told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from arriero.base.late import pattern
from arriero.base.redact import Redactor, free_fields
from arriero.base.vocabulary import Vocabulary
from arriero.command.telling import told_command, told_flag, told_value, told_variable
from arriero.logs.telling import told, told_lines
from arriero.record import (
    DeviceRecord,
    EngineRecord,
    Explanation,
    ModelRecord,
    Trial,
    Verification,
)

_T = TypeVar("_T")
_How = Callable[[Any, Vocabulary], Any]

_ID: Final = pattern(r"[a-z]{2,8}-[0-9a-f]{4,16}\Z")
_TIME: Final = pattern(r"[\dTZ:.+-]{1,32}\Z")
_HASH: Final = pattern(r"[0-9a-f]{6,40}\Z")
_ADDRESS: Final = pattern(
    r"https?://(?:(?:host|worker)-\d+|127\.0\.0\.1|localhost|\[::1\])(?::\d+)?"
)
_VERSION: Final = pattern(r"(?<![0-9A-Za-z])[0-9a-f]{7,40}(?![0-9A-Za-z])")


def shared(document: _T, redactor: Redactor) -> _T:
    """The same document without anything that is not known to be needed by its readers.

    Figures, outcomes and the contract's own words stay. Shared again it stays as it is.
    """
    clean = redactor.scrub(document, share=True)
    told_all = _value(clean, Vocabulary(tuple(_public(clean))))
    result: _T = _with_logs(told_all, document, redactor)
    return result


def _with_logs(told: Any, given: Any, redactor: Redactor) -> Any:
    """With the logs told line by line.

    The redactor takes what follows a prompt for more of it, so that an error without a prefix goes
    with it. Here that is not needed: a line stays only if the grammar has a row for it.
    """
    if not hasattr(given, "trials") and not isinstance(getattr(given, "trial", None), Trial):
        return told
    known = Vocabulary(tuple(_public(told)))

    def one(trial: Trial, before: Trial) -> Trial:
        return msgspec.structs.replace(
            trial, log_tail=told_lines(map(redactor.share, before.log_tail), known)
        )

    if isinstance(getattr(given, "trial", None), Trial):
        return msgspec.structs.replace(told, trial=one(told.trial, given.trial))
    trials = tuple(map(one, told.trials, given.trials))
    return msgspec.structs.replace(told, trials=trials)


def _public(document: object) -> set[str]:
    """Names and words of devices, as their drivers tell them, and the model's architecture."""
    found: set[str] = set()
    baseline = getattr(document, "baseline", None)
    model = getattr(baseline, "model", None) or getattr(document, "model", None)
    arch = model.arch if isinstance(model, ModelRecord) else None
    if arch and re.fullmatch(r"[a-z0-9_-]{1,32}", arch):
        found.add(arch)
    for device in getattr(baseline, "devices", ()):
        if isinstance(device, DeviceRecord) and not device.name.startswith("RPC"):
            found |= {device.name, *re.findall(r"[\w.+-]+", device.description)}
    return found


def _value(value: Any, known: Vocabulary) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return known.plain(value)
    if isinstance(value, msgspec.Struct):
        return _struct(value, known)
    if isinstance(value, Mapping):
        return {_value(key, known): _value(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_value(item, known) for item in value)
    return value


def _struct(value: msgspec.Struct, known: Vocabulary) -> msgspec.Struct:
    free = free_fields(type(value))
    fields = {}
    for name in value.__struct_fields__:
        item = getattr(value, name)
        how = _OF_TYPE.get((type(value), name)) or _OF_NAME.get(name, _value)
        fields[name] = how(item, known) if name in free and item is not None else item
    if isinstance(value, Verification) and value.baseline and not _ADDRESS.match(value.target):
        fields["target"] = " ".join(told_command(value.baseline.argv, known))
    return type(value)(**fields)


# --- fields that are more than words -----------------------------------------------------------


def _line(text: Any, known: Vocabulary) -> Any:
    """A line of a log; of what is none, the words that are known."""
    if not isinstance(text, str):
        return _value(text, known)
    shown = told(text, known)
    return known.plain(text) if shown is None else shown


def _command(words: Any, known: Vocabulary) -> Any:
    return told_command(words, known)


def _by_flag(values: Any, known: Vocabulary) -> Any:
    """A mapping of flags (or variables) to values or pairs of them."""
    return {
        _name(name, known): tuple(told_value(name, one, known) for one in value)
        if isinstance(value, list | tuple)
        else told_value(name, value, known)
        if name.startswith("-")
        else _variable(name, value, known)
        for name, value in values.items()
    }


def _variable(name: str, value: Any, known: Vocabulary) -> Any:
    return told_variable(name, value, known)[1] if isinstance(value, str) else _value(value, known)


def _name(name: str, known: Vocabulary) -> str:
    return told_flag(name, known) if name.startswith("-") else told_variable(name, "", known)[0]


def _environment(values: Any, known: Vocabulary) -> Any:
    return dict(told_variable(name, value, known) for name, value in values.items())


def _boundaries(values: Any, known: Vocabulary) -> Any:
    return {_name(name, known): _value(edge, known) for name, edge in values.items()}


def _matching(shape: re.Pattern[str]) -> _How:
    """As it is where it has that shape; another field of that name can hold no text at all."""

    def how(value: Any, known: Vocabulary) -> Any:
        return value if isinstance(value, str) and shape.match(value) else _value(value, known)

    return how


def _version(text: Any, known: Vocabulary) -> Any:
    hashes = set(_VERSION.findall(text))
    return known.plain(text, kept=lambda word: word in hashes)


def _program(path: Any, _: Vocabulary) -> Any:
    return told_command((path,), Vocabulary())[0]


def _model(path: Any, _: Vocabulary) -> Any:
    return "MODEL.gguf" if path else path


def _source(text: Any, _: Vocabulary) -> Any:
    return text if text in {"", "-"} else "LOG"


def _target(text: Any, known: Vocabulary) -> Any:
    found = _ADDRESS.match(text)
    return found[0] if found else known.plain(text)


_OF_NAME: Final[Mapping[str, _How]] = {
    "argv": _command,
    "fixed_argv": _command,
    "env": _environment,
    "visibility": _environment,
    "change": lambda value, known: (_by_flag if isinstance(value, Mapping) else _value)(
        value, known
    ),
    "held": _by_flag,
    "given": _by_flag,
    "boundary": lambda value, known: (_boundaries if isinstance(value, Mapping) else _value)(
        value, known
    ),
    "effective": lambda value, known: (_by_flag if isinstance(value, Mapping) else _value)(
        value, known
    ),
    "text": _line,
    "shown_by": _line,
    "log_tail": lambda lines, known: told_lines(lines, known),
    "log": lambda lines, known: told_lines(lines, known),
    "id": _matching(_ID),
    "taken_at": _matching(_TIME),
    "at": _matching(_TIME),
    "commit": _matching(_HASH),
    "version": _version,
}
"""How a field of this name is told, whatever document it is in; every other text by its words."""
_OF_TYPE: Final[Mapping[tuple[type, str], _How]] = {
    (EngineRecord, "path"): _program,
    (ModelRecord, "path"): _model,
    (ModelRecord, "name"): lambda _, __: None,
    (Explanation, "source"): _source,
    (Verification, "target"): _target,
}
