"""Commands in a shell script, read without a shell.

Understood are quotes, continued lines, comments, here-documents (skipped), redirections (skipped),
``VAR=value``, arrays, ``$VAR``, ``${VAR}``, ``${VAR:-default}`` and ``"${ARRAY[@]}"``. A variable
is filled in if the script assigns it exactly once, whatever branch that is in; a default stands for
a variable that the script leaves to the environment. ``$(...)``, positional parameters and
everything else stay as they are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from arriero.command.inputs.model import (
    DEEPEST,
    LONGEST_WORD,
    MOST_WORDS,
    Written,
    is_image,
    is_server,
    too_large,
)
from arriero.command.prefix import base_name

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_BRACED: Final = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=])(.*))?\Z", re.DOTALL)
_BEFORE: Final = re.compile(r"if|then|else|elif|do|while|until|!|\{|command|eval")
_STARTING: Final = re.compile(
    r"exec|nohup|sudo|doas|time|setsid|systemd-run|su|(ba|da|z)?sh|tmux|screen"
)
"""What starts the rest of its words, or one word with a command in it."""
_DECLARING: Final = re.compile(r"export|declare|local|readonly|typeset")
_CONTAINERS: Final = re.compile(r"docker|podman|nerdctl")
_NO_IMAGE: Final = frozenset(
    ["--name", "-v", "--volume", "--mount", "-w", "--workdir", "--network", "--hostname", "-h"]
)
"""Options of ``docker run`` whose values may look like an image's name."""
_VARIABLE_OPTION: Final = re.compile(r"--env=|-e(?=.)")
_INSIDE: Final = (
    "paths are those inside the container: they are looked for here as they are written"
)
_WRAPPERS: Final = re.compile(r"env|numactl|taskset|nice|ionice|chrt|stdbuf")


@dataclass(frozen=True)
class _Variable:
    """An expansion in a word; ``raw`` is how it is written."""

    name: str
    raw: str
    line: int
    quoted: bool
    default: str | None = None
    every: bool = False


_Part = str | _Variable


@dataclass
class _Word:
    line: int
    parts: list[_Part] = field(default_factory=list)
    array: list[_Word] | None = None
    """The words in the parentheses after ``NAME=``."""

    def literal(self) -> str:
        """The word as written, quotes taken off."""
        return "".join(part if isinstance(part, str) else part.raw for part in self.parts)


@dataclass
class _Script:
    commands: list[list[_Word]] = field(default_factory=list)
    assigned: dict[str, list[list[_Word]]] = field(default_factory=dict)
    """Name → the words of each assignment; an array has several."""


def read(text: str, path: str, first_line: int = 1) -> tuple[Written, ...]:
    """The llama-server commands of a script, also those behind ``docker run``."""
    script = _Script()
    lexer = _Lexer(text, path, first_line)
    for words in lexer.commands():
        _sort(words, script)
    found = tuple(w for words in script.commands for w in _written(words, script, path))
    if lexer.unclosed is None:
        return found
    note = f"line {lexer.unclosed}: a quote is not closed, and all that follows is within it"
    return tuple(replace(written, notes=(*written.notes, note)) for written in found)


def read_words(words: Sequence[str], path: str) -> tuple[Written, ...]:
    """The llama-server commands that one command starts, its words as a shell made them."""
    return tuple(_written([_Word(1, [word]) for word in words], _Script(), path))


class _Lexer:
    def __init__(self, text: str, path: str, line: int) -> None:
        self.text, self.path, self.line = text, path, line
        self.at = 0
        self.heredocs: list[str] = []
        self.count = 0
        self.unclosed: int | None = None
        """Line of a quote that nothing closes."""

    def commands(self) -> Iterator[list[_Word]]:
        """Simple commands in order."""
        words: list[_Word] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t" or self.text.startswith("\\\n", self.at):
                self._skip(2 if char == "\\" else 1)
            elif char == "#":
                self._skip_line()
            elif char == "\n":
                self._skip(1)
                self._skip_heredocs()
                yield words
                words = []
            elif char in ";&|()":
                if char == "(" and words and words[-1].literal().endswith("="):
                    words[-1].array = self._array()
                    continue
                self._skip(1)
                yield words
                words = []
            elif char in "<>":
                self._redirection(words)
            else:
                words.append(self._word())
        yield words

    def _skip(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _skip_heredocs(self) -> None:
        for mark in self.heredocs:
            while self.at < len(self.text):
                start = self.at
                self._skip_line()
                ended = self.text[start : self.at].strip("\t\r ") == mark
                self._skip(1)
                if ended:
                    break
        self.heredocs.clear()

    def _array(self) -> list[_Word]:
        self._skip(1)
        words = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] in " \t\n" or self.text.startswith("\\\n", self.at):
                self._skip(2 if self.text[self.at] == "\\" else 1)
            elif self.text[self.at] == "#":
                self._skip_line()
            elif self.text[self.at] in ";&|(<>":
                self._skip(1)
            else:
                words.append(self._word())
        self._skip(1)
        return words

    def _redirection(self, words: list[_Word]) -> None:
        here = self.text.startswith("<<", self.at) and not self.text.startswith("<<<", self.at)
        if words and words[-1].literal().isdigit() and self.text[self.at - 1].isdigit():
            words.pop()
        while self.at < len(self.text) and self.text[self.at] in "<>&|-":
            self._skip(1)
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self._skip(1)
        if self.at < len(self.text) and self.text[self.at] not in "\n;|&()<>":
            target = self._word()
            if here:
                self.heredocs.append(target.literal())

    def _word(self) -> _Word:
        self.count += 1
        if self.count > 16 * MOST_WORDS:
            raise too_large(self.path, f"more than {16 * MOST_WORDS} words")
        word = _Word(self.line)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\n;&|()<>":
                break
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                if escaped != "\n":
                    word.parts.append(escaped)
                self._skip(2)
            elif char == "'":
                word.parts.append(self._until("'"))
            elif char == '"':
                self._double_quoted(word)
            elif char in "$`":
                word.parts.append(self._expansion(quoted=False))
            else:
                word.parts.append(char)
                self._skip(1)
        return word

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            self.unclosed, end = self.line, len(self.text)
        inside = self.text[self.at + 1 : end]
        self._skip(end + 1 - self.at)
        return inside

    def _double_quoted(self, word: _Word) -> None:
        opened = self.line
        self._skip(1)
        word.parts.append("")
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in '$`"\\\n':
                escaped = self.text[self.at + 1]
                word.parts.append("" if escaped == "\n" else escaped)
                self._skip(2)
            elif char in "$`":
                word.parts.append(self._expansion(quoted=True))
            else:
                word.parts.append(char)
                self._skip(1)
        if self.at >= len(self.text):
            self.unclosed = opened
        self._skip(1)

    def _expansion(self, quoted: bool) -> _Part:
        start = self.at
        opening = self.text[start : start + 2]
        if opening == "${":
            self._skip(self._closing("{", "}") + 1 - start)
            return _braced(self.text[start : self.at], self.line, quoted)
        if opening == "$(":
            self._skip(self._closing("(", ")") + 1 - start)
        elif opening[0] == "`":
            self._until("`")
        elif match := _NAME.match(self.text, start + 1):
            self._skip(match.end() - start)
            return _Variable(match[0], self.text[start : self.at], self.line, quoted)
        else:
            self._skip(2 if opening[1:] and not opening[1].isspace() else 1)
        raw = self.text[start : self.at]
        return raw if raw == "$" else _Variable("", raw, self.line, quoted)

    def _closing(self, opening: str, closing: str) -> int:
        depth = 0
        for at in range(self.at + 1, min(len(self.text), self.at + LONGEST_WORD)):
            depth += (self.text[at] == opening) - (self.text[at] == closing)
            if depth == 0:
                return at
        return len(self.text) - 1


def _braced(raw: str, line: int, quoted: bool) -> _Variable:
    match = _BRACED.match(raw[2:-1])
    if match is None:
        return _Variable("", raw, line, quoted)
    name, every, operator, default = match.groups()
    return _Variable(name, raw, line, quoted, default if operator else None, bool(every))


def _sort(words: list[_Word], script: _Script) -> None:
    """A command that only assigns is kept by name; any other by itself."""
    if words and _DECLARING.fullmatch(words[0].literal()):
        words = [word for word in words[1:] if not word.literal().startswith("-")]
        if not all(_ASSIGNED.match(word.literal()) for word in words):
            return
    if not words:
        return
    names = [match for word in words if (match := _ASSIGNED.match(word.literal()))]
    if len(names) < len(words):
        script.commands.append(words)
        return
    for word, match in zip(words, names, strict=True):
        value = word.array or [_Word(word.line, _after(word.parts, len(match[0])))]
        known = script.assigned.setdefault(match[1], [])
        if match[2] and word.array and known:
            known[-1] = [*known[-1], *value]
        else:  # text added to text is not followed: the variable counts as assigned twice
            known.append(value)


def _after(parts: list[_Part], count: int) -> list[_Part]:
    """The parts without the first ``count`` characters, which are plain text."""
    for at, part in enumerate(parts):
        if count == 0 or not isinstance(part, str):
            return parts[at:]
        if len(part) > count:
            return [part[count:], *parts[at + 1 :]]
        count -= len(part)
    return []


class _Filling:
    def __init__(self, script: _Script, path: str) -> None:
        self.script, self.path = script, path
        self.notes: list[str] = []
        self.open: list[str] = []
        self.made = 0

    def words(self, word: _Word) -> list[tuple[str, int]]:
        """What a word becomes: one word, or several where an expansion without quotes is split.

        A word that is nothing but an expansion stands where its text was assigned.
        """
        fields: list[tuple[str, int]] = []
        glued = False
        for part in word.parts:
            if isinstance(part, str):
                pieces = [(part, word.line)]
            else:
                pieces = self._values(part)
                if part.quoted and not part.every:
                    pieces = [(" ".join(text for text, _ in pieces), pieces[0][1])]
                elif not part.quoted and pieces != [(part.raw, part.line)]:
                    pieces = [(cut, line) for text, line in pieces for cut in text.split()]
            for i, (text, line) in enumerate(pieces):
                if glued and i == 0:
                    fields[-1] = (fields[-1][0] + text, word.line)
                else:
                    fields.append((text, line))
                glued = True
        self.made += sum(len(text) + 1 for text, _ in fields)
        if self.made > LONGEST_WORD:
            raise too_large(self.path, "its variables fill in to more than any command holds")
        return fields

    def _values(self, variable: _Variable) -> list[tuple[str, int]]:
        name = variable.name
        once = self.script.assigned.get(name, [])
        if len(once) == 1 and name not in self.open and len(self.open) < DEEPEST:
            return self._opened(name, once[0])
        if variable.default is not None and len(self.open) < DEEPEST:
            self.notes.append(f"{name} is taken to be its default: {variable.default}")
            quoted = next(_Lexer(f'"{variable.default}"', self.path, variable.line).commands())
            return self._opened(name, quoted)
        return [(variable.raw, variable.line)]

    def _opened(self, name: str, value: list[_Word]) -> list[tuple[str, int]]:
        self.open.append(name)
        try:
            return [pair for word in value for pair in self.words(word)] or [("", value[0].line)]
        finally:
            self.open.pop()


def _written(words: list[_Word], script: _Script, path: str) -> Iterator[Written]:
    if not any(_may_be_server(word, script) for word in words):
        return
    filling = _Filling(script, path)
    filled = [pair for word in words for pair in filling.words(word)]
    env: dict[str, str] = {}
    container = next((i for i, (text, _) in enumerate(filled[:3]) if _is(_CONTAINERS, text)), None)
    if container is not None:
        filled, env = _in_container(filled[container:])
        filling.notes.append(_INSIDE)
    at = next((i for i, (text, _) in enumerate(filled) if is_server(text)), None)
    if at is None:
        return
    text, line = filled[at]
    starts = next((i for i, (word, _) in enumerate(filled[:at]) if _is(_STARTING, word)), None)
    if starts is not None and " " in text:  # bash -c "llama-server …"
        yield from read(text, path, line)
        return
    before = filled[:at]
    if starts is not None:  # its own options go
        rest = filled[starts + 1 : at]
        own = next((i for i, (word, _) in enumerate(rest) if _is_kept(word)), len(rest))
        before = [*filled[:starts], *rest[own:]]
    before = [pair for pair in before if not _is(_BEFORE, pair[0])]
    if not _leads(before):
        return
    filled, at = [*before, *filled[at:]], len(before)
    if len(filled) > MOST_WORDS:
        raise too_large(path, f"a command of more than {MOST_WORDS} words")
    texts, lines = zip(*filled, strict=True)
    yield Written(
        words=texts,
        path=path,
        line=lines[at],
        lines=lines,
        env=env,
        notes=tuple(dict.fromkeys(filling.notes)),
        program=at,
    )


def _is_kept(word: str) -> bool:
    return _is(_WRAPPERS, word) or _ASSIGNED.match(word) is not None


def _is(names: re.Pattern[str], word: str) -> bool:
    return names.fullmatch(base_name(word)) is not None


def _may_be_server(word: _Word, script: _Script) -> bool:
    """Whether it names a server or an image, or a variable that the script sets to one."""
    if is_server(word.literal()) or is_image(word.literal()):
        return True
    names = [part.name for part in word.parts if isinstance(part, _Variable)]
    values = (w for name in names for one in script.assigned.get(name, []) for w in one)
    return any(is_server(v.literal()) or is_image(v.literal()) for v in values)


def _leads(before: list[tuple[str, int]]) -> bool:
    """Whether these words can stand before the program: not ``echo``, not ``pkill``."""
    rest = [text for text, _ in before if not _ASSIGNED.match(text)]
    return not rest or _is(_WRAPPERS, rest[0])


def _in_container(
    words: list[tuple[str, int]],
) -> tuple[list[tuple[str, int]], dict[str, str]]:
    """``docker run … IMAGE args`` → the image's server with its arguments, and ``-e`` variables."""
    env: dict[str, str] = {}
    at = next((i for i, (text, _) in enumerate(words) if text == "run"), None)
    if at is None:
        return [], env
    for i in range(at + 1, len(words)):
        text, line = words[i]
        previous = words[i - 1][0]
        glued = _VARIABLE_OPTION.match(text)
        if previous in ("-e", "--env") or glued:
            name, equals, value = text[glued.end() if glued else 0 :].partition("=")
            if equals:
                env[name] = value
        elif is_image(text) and previous not in _NO_IMAGE:
            rest = words[i + 1 :]
            inside = rest and (is_server(rest[0][0]) or rest[0][0] in ("--server", "-s"))
            return [("llama-server", line), *(rest[1:] if inside else rest)], env
    return [], env
