"""The commands of a models preset (``--models-preset``): one for each section.

The grammar is the engine's own, as builds 10068, 10092 and 10434 show it: ``#`` and ``;`` begin a
comment anywhere, even in words and quotes; quotes are part of a value; only comments may be
indented; a later section replaces an earlier one of the same name. Keys are flags without their
dashes, letter by letter, or variables. ``[*]`` applies to every model. Address, port, names and
keys belong to the router and are not passed to models.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from arriero.command.flags import BUILTIN, Flag, builtin_flags, normalise
from arriero.command.inputs.model import Written
from arriero.command.place import Around, Mark, Place

_NEWLINE: Final = re.compile(r"\r\n|\n|\r")
_SECTION: Final = re.compile(r"\[[ \t]*+([^\]]++)\][ \t]*+(?:[;#][^\r\n]*+)?(?=\r|\n|\Z)")
_SETTING: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*([^\r\n]*)")
_NOTHING: Final = re.compile(r"[ \t]*(?:[;#][^\r\n]*)?(?=\r|\n|\Z)")
_COMMENT: Final = re.compile(r"[ \t]*[;#]")
_MARK: Final = "\ufeff"
_EVERY: Final = "*"
_UNNAMED: Final = "default"
"""The section that keys before any section belong to."""
_ROUTER: Final = frozenset(["version", "load-on-startup", "stop-timeout"])
"""Keys for the router itself."""
_KEPT: Final = frozenset(
    (
        *("--host", "--port", "--alias", "--api-key"),
        *(f"--models-{what}" for what in ("dir", "preset", "max", "autoload")),
    )
)
"""Flags that the router removes from every section."""
_OFF: Final = frozenset(["off", "disabled", "false", "0"])
_ON: Final = frozenset(["on", "enabled", "true", "1"])
_NAYS: Final = frozenset(["no", "none", "never", "n", "disable"])
_SOURCES: Final = ("-m", "-hf", "-mu", "-dr")
_STAND_IN: Final = re.compile(r"(?:embd|fim|gpt-oss|vision)-.*-(?:default|spec)\Z")


@dataclass(frozen=True)
class _Setting:
    key: str
    value: str
    """As the engine reads it."""
    written: str
    """With the comment after it."""
    line: int


@dataclass
class _Preset:
    sections: dict[str, tuple[int, list[_Setting]]] = field(default_factory=dict)
    marks: list[tuple[str, Mark]] = field(default_factory=list)
    """By section."""


def read(text: str, path: str) -> tuple[Written, ...]:
    """One command for each model; only the router's own if the engine refuses the file."""
    preset = _Preset()
    refused = _parse(text, preset)
    if refused is not None:
        return (_router(refused, path),)
    everywhere = preset.sections.pop(_EVERY, (1, []))[1]
    conflict = _conflict(preset)
    if conflict is not None:
        return (_router(conflict, path),)
    found = tuple(
        _written(name, line, everywhere, own, preset, path)
        for name, (line, own) in preset.sections.items()
    )
    if found:
        return found
    bad = [mark for one in everywhere for mark in _refused_key(one, _EVERY)]
    strange = [one for one in everywhere if one.key not in _keys() and one.key not in _ROUTER]
    bad += [Mark("preset", one.line, f"section * has no option {one.key}") for one in strange]
    return (_router(bad[0], path),) if bad else ()


def refusals(text: str) -> tuple[Mark, ...]:
    """Why the engine would refuse the file; empty if it accepts it."""
    found = [mark for one in read(text, "") for mark in one.around.marks if mark.about == "preset"]
    return tuple(dict.fromkeys(found))


def _router(mark: Mark, path: str) -> Written:
    words = ("llama-server", "--models-preset", path)
    return Written(
        words=words, path=path, line=mark.line, lines=(mark.line,) * 3,
        around=Around(place=_PLACE, marks=(mark,)),
        notes=("the models of this file cannot be checked until the engine can read it",),
    )  # fmt: skip


_PLACE: Final = Place("a models preset does not say on which machine it is used", devices=True)


def _parse(text: str, preset: _Preset) -> Mark | None:
    """Read the sections; return the first line that the engine cannot read, if there is one."""
    if text.startswith(_MARK):
        return Mark("preset", 1, "the file begins with a byte order mark: save it without one")
    name, at, line = _UNNAMED, 0, 1
    while at < len(text):
        if section := _SECTION.match(text, at):
            if not section[1].strip(" \t"):
                return _refused(text, at, line)
            name = section[1]
            if name in preset.sections:
                first = preset.sections[name][0]
                told = f"section {name} of line {first} is ignored: this one replaces it"
                preset.marks = [mark for mark in preset.marks if mark[0] != name]
                preset.marks.append((name, Mark("misread", line, told)))
            preset.sections[name] = (line, [])
            end = section.end()
        elif setting := _SETTING.match(text, at):
            value = re.split(r"[ \t]*[;#]", setting[2], maxsplit=1)[0].rstrip(" \t")
            one = _Setting(setting[1], value, setting[2], line)
            if name not in preset.sections and one.key not in _ROUTER:
                preset.sections[name] = (line, [])
            if name in preset.sections:
                preset.sections[name][1].append(one)
            end = setting.end()
        elif nothing := _NOTHING.match(text, at):
            end = nothing.end()
        else:
            return _refused(text, at, line)
        newline = _NEWLINE.match(text, end)
        line += len(_NEWLINE.findall(text, at, newline.end() if newline else end))
        at = newline.end() if newline else len(text)
    return None


def _refused(text: str, at: int, line: int) -> Mark:
    end = _NEWLINE.search(text, at)
    written = text[at : end.start() if end else len(text)]
    return Mark("preset", line, f"{_reason(written)}: {written.strip()[:60]}")


def _reason(line: str) -> str:
    bare = line.lstrip(" \t")
    if bare != line and (_SETTING.match(bare) or bare.startswith("[")):
        return "a key or section may not be indented"
    if bare.startswith("["):
        return "a section must be a name in brackets, with at most a comment after it"
    if bare.startswith("-"):
        return "a key must not begin with dashes"
    if re.match(r"[\w.-]+[ \t]*:", bare):
        return "write = between a key and its value, not a colon"
    if "=" not in bare:
        return "this line is not a key with = and a value, a section or a comment"
    return "a key must begin with a letter and contain only letters, digits, dashes and points"


@functools.cache
def _keys() -> Mapping[str, Flag]:
    """Every key that one of the known builds accepts."""
    known: dict[str, Flag] = {}
    for build in BUILTIN:
        for flag in builtin_flags(build).flags:
            for name in (*flag.names, *flag.negatives):
                known[name.lstrip("-")] = flag
            for variable in (flag.env, flag.env_off):
                if variable is not None:
                    known[variable] = flag
    return known


def _refused_key(setting: _Setting, section: str) -> Iterator[Mark]:
    """Why the engine refuses the file because of this key; rules check keys of other builds."""
    flag = _keys().get(setting.key)
    if flag is not None and flag.arity > 1:
        told = f"{setting.key} needs {flag.arity} values, which a preset cannot express"
        yield Mark("preset", setting.line, told)
    if flag is not None or setting.key in _ROUTER:
        return
    meant = normalise(f"--{setting.key.lower()}").lstrip("-")
    if meant != setting.key and meant in _keys():
        told = f"section {section} has no option {setting.key}: write {meant}, letter by letter"
        yield Mark("preset", setting.line, told)
    elif setting.key.isupper():
        yield Mark("preset", setting.line, f"section {section} has no option {setting.key}")


def _conflict(preset: _Preset) -> Mark | None:
    """The first name of one model that is also an alias of another."""
    taken: dict[str, str] = {}
    for name, (_, own) in preset.sections.items():
        for setting in own:
            if setting.key not in ("alias", "a", "LLAMA_ARG_ALIAS"):
                continue
            for alias in map(str.strip, setting.value.split(",")):
                if alias != name and alias in preset.sections:
                    told = f"{alias} is both an alias of section {name} and a section"
                    return Mark("preset", setting.line, told)
                if taken.setdefault(alias, name) != name:
                    told = f"{alias} is an alias of both section {taken[alias]} and section {name}"
                    return Mark("preset", setting.line, told)
    return None


def _written(
    name: str,
    line: int,
    everywhere: list[_Setting],
    own: list[_Setting],
    preset: _Preset,
    path: str,
) -> Written:
    words, lines = ["llama-server"], [line]
    settings = [*_in_force(everywhere), *_in_force(own)]
    marks = [mark for section, mark in preset.marks if section == name]
    last: dict[object, tuple[_Setting, Flag | None]] = {}
    for setting in settings:
        refused = tuple(_refused_key(setting, name))
        marks += refused
        flag = _keys().get(setting.key)
        if refused or setting.key in _ROUTER or (flag and flag.canonical in _KEPT):
            continue
        last[id(flag) if flag else setting.key] = (setting, flag)
    for setting in own:
        marks += _misread(setting, _keys().get(setting.key))
    for setting, flag in sorted(last.values(), key=lambda one: one[0].line):
        new = _words(setting, flag)
        words += new
        lines += [setting.line] * len(new)
    given = {flag for _, flag in last.values() if flag}
    sources = {builtin_flags().get(name) for name in _SOURCES}
    if not given & sources and not any(_STAND_IN.match(s.key) for s, _ in last.values()):
        marks.append(_no_model(name, line))
    return Written(
        words=tuple(words), path=path, line=line, lines=tuple(lines), name=name,
        around=Around(place=_PLACE, marks=tuple(marks)),
    )  # fmt: skip


def _no_model(name: str, line: int) -> Mark:
    told = f"section {name} names no model"
    if name == _UNNAMED:
        told = f"section {name}, formed by the keys before any section, names no model"
    return Mark("model", line, told, mild="/" in name)


def _in_force(settings: list[_Setting]) -> list[_Setting]:
    """The last setting of each key, in the order in which the engine reads them."""
    last = {setting.key: setting for setting in settings}
    return [last[key] for key in sorted(last)]


def _words(setting: _Setting, flag: Flag | None) -> list[str]:
    key, value = setting.key, setting.value
    if flag is None:
        return [f"--{key}", value] if value not in _ON else [f"--{key}"]
    if flag.arity:
        spelled = next((name for name in flag.names if name.lstrip("-") == key), flag.canonical)
        return [spelled, value]
    if key in (name.lstrip("-") for name in flag.negatives):
        value = "off" if value in _ON else "on"
    if value in _OFF:
        return [flag.negatives[-1]] if flag.negatives else []
    return [flag.canonical]


def _is_cut(value: str, rest: str) -> bool:
    """Whether a comment begins where none was intended: in a word, a quote or a brace."""
    if value.count('"') % 2 or value.count("{") > value.count("}"):
        return True
    glued = rest[0] in ";#" and rest[1:2].strip() != ""
    return glued and re.search(r"[/\\:@=]|\.gguf\Z", value) is not None


def _misread(setting: _Setting, flag: Flag | None) -> Iterator[Mark]:
    """Values that the engine reads differently from what they look like."""
    key, value, line = setting.key, setting.value, setting.line
    rest = setting.written[len(value) :]
    if _COMMENT.match(rest) and _is_cut(value, rest):
        told = f"{key} is cut to {value or 'nothing'}: {rest.lstrip()[0]} begins a comment anywhere"
        yield Mark("misread", line, told)
    elif len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        yield Mark("misread", line, f"{key} is {value}: the quotes are part of the value")
    if flag is not None and not flag.arity and value.lower() in _OFF | _NAYS and value not in _OFF:
        turned = "off" if key in (name.lstrip("-") for name in flag.negatives) else "on"
        told = f"{key} = {value} does not turn it off: write off, false, disabled or 0"
        if turned == "on":
            yield Mark("misread", line, told)
