"""Commands in a shell script, read without a shell.

The reader understands quotes, continued lines, comments, here-documents (skipped), redirections
(skipped), ``VAR=value``, arrays, ``$VAR``, ``${VAR}``, ``${VAR:-default}`` and ``"${ARRAY[@]}"``.
It replaces a variable that the script assigns exactly once, in whatever branch, by its value, and
one that the script leaves to the environment by its default. ``$(...)``, positional parameters and
everything else stay as written.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from arriero.command.inputs.model import (
    DEEPEST,
    LONGEST_WORD,
    MOST_WORDS,
    Dialect,
    Spelling,
    Written,
    is_image,
    is_open,
    is_server,
    too_large,
)
from arriero.command.inputs.starting import Filled, behind, holds
from arriero.command.place import Around, Mark

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_BRACED: Final = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=])(.*))?\Z", re.DOTALL)
_NAMED: Final = re.compile(r"\$(?:\{[A-Za-z_]|[A-Za-z_])")
_KEYWORD: Final = re.compile(r"if|then|else|elif|do|while|until|!|\{")
_DECLARING: Final = re.compile(r"export|declare|local|readonly|typeset")
INSIDE: Final = "paths are those inside the container: they are looked for here as written"
_MORE: Final = re.compile(r"([;&|()]{1,2})[ \t]*+(?![\s#;&|()]|\Z|fi\b|done\b|esac\b)")
_TRAILING: Final = re.compile(r"\\[ \t\r]*")
_ENDS_IN_BLANK: Final = re.compile(r"\\[ \t]+\r?\Z")
_ONE_QUOTED: Final = re.compile(r"""'[^']*'|"[^"\\`]*\"""")


@dataclass(frozen=True)
class _Variable:
    """An expansion in a word; ``raw`` is its text in the script."""

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
    text: str = ""
    """The text in the script, at the position ``at``."""
    at: int = 0
    after: list[Spelling] = field(default_factory=list)
    """Redirections that follow it."""
    follows: str = ""
    """The operator after it, if another command follows on the line."""

    def literal(self) -> str:
        """The word as written, without its quotes."""
        return "".join(part if isinstance(part, str) else part.raw for part in self.parts)


_Assigned = dict[str, list[list[_Word]]]


@dataclass
class _Script:
    commands: list[list[_Word]] = field(default_factory=list)
    assigned: _Assigned = field(default_factory=dict)
    """Name → the words of each assignment; an array has several."""
    cuts: dict[int, Mark] = field(default_factory=dict)
    """Identity of a command's words → lines that should belong to it but do not."""


def read(
    text: str,
    path: str,
    first_line: int = 1,
    assigned: _Assigned | None = None,
    *,
    plain: bool = False,
) -> tuple[Written, ...]:
    """The llama-server commands of a script, also those after ``docker run``.

    Args:
        assigned: The assignments of a script around this one.
        plain: Whether to split the text like a shell but treat operators, redirections and commands
            in ``$(…)`` or backticks as ordinary words.
    """
    script = _Script(assigned=dict(assigned or {}))
    lexer = _Lexer(text, path, first_line, plain)
    before: list[_Word] = []
    for words in lexer.commands():
        trailing = words[-1] if words and _TRAILING.fullmatch(words[-1].text) else None
        if trailing is not None:
            words.pop()
        if words and words[0].text.startswith("-") and before and before[-1].line < words[0].line:
            _mend(before, words, script, text.split("\n"), first_line)
        elif words:
            _sort(words, script)
            before = words
    found = tuple(w for words in script.commands for w in _written(words, script, path))
    if lexer.unclosed is None:
        return found
    note = f"line {lexer.unclosed}: a quote is not closed, so everything after it is quoted"
    return tuple(replace(written, notes=(*written.notes, note)) for written in found)


def _mend(
    before: list[_Word], words: list[_Word], script: _Script, lines: list[str], first: int
) -> None:
    """Add lines that begin with a flag to the command above them, where they should be."""
    at, start, end = before[-1].line, words[0].line, words[-1].line
    known = script.cuts.get(id(before))
    above = lines[at - first : start - first]
    blank = next((i for i, line in enumerate(above) if _ENDS_IN_BLANK.search(line)), None)
    note = next((i for i, line in enumerate(above) if line.lstrip().startswith("#")), None)
    if known is not None:
        text = re.sub(r"\Alines? \d+(?: to \d+)?", f"lines {known.line} to {end}", known.text)
        text = text.replace("begins", "begin").replace("belongs", "belong")
        script.cuts[id(before)] = Mark("cut", known.line, text)
    else:
        which = f"line {start}" if start == end else f"lines {start} to {end}"
        one = "s" if start == end else ""
        why = f"a backslash is missing at the end of line {at}"
        if blank is not None:
            why = f"a space follows the backslash at the end of line {at + blank}"
        elif note is not None:
            why = f"the comment in line {at + note} ends it"
        text = f"{which} begin{one} with a flag but belong{one} to no command: {why}"
        script.cuts[id(before)] = Mark("cut", start, text)
    before += words


def read_words(words: Sequence[str], path: str) -> tuple[Written, ...]:
    """The llama-server commands that one command starts; the words are as a shell makes them."""
    made = [_Word(1, [word], text=shlex.quote(word)) for word in words]
    return tuple(_written(made, _Script(), path))


def split(text: str, path: str, first_line: int, notes: list[str]) -> list[tuple[Filled, Spelling]]:
    """All words that a shell would make of a text.

    Variables stay as written, except those with a default, which ``notes`` mentions.
    """
    filling = _Filling(_Script(), path)
    found: list[tuple[Filled, Spelling]] = []
    for words in _Lexer(text, path, first_line, plain=True).commands():
        for word in words:
            pairs, spelling = filling.words(word)
            whole = spelling.count == 1
            found += [
                (Filled(*pair, len(found) + i), spelling if whole else Spelling(spelled(pair[0])))
                for i, pair in enumerate(pairs)
            ]
    if len(found) > MOST_WORDS:
        raise too_large(path, f"a command of more than {MOST_WORDS} words")
    notes += filling.notes
    return found


def spelled(word: str) -> str:
    """A word in quotes in which a shell still replaces the variables."""
    return f'"{word}"' if is_open(word) and not re.search(r'["\\]', word) else shlex.quote(word)


class _Lexer:
    def __init__(self, text: str, path: str, line: int, plain: bool = False) -> None:
        self.text, self.path, self.line, self.plain = text, path, line, plain
        self.at = 0
        self.heredocs: list[str] = []
        self.count = 0
        self.unclosed: int | None = None
        """Line of a quote that is not closed."""

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
            elif self.plain and char not in "\n":
                words.append(self._word())
            elif char in "<>" or self.text.startswith("&>", self.at):
                self._redirection(words)
            elif char in ";&|()":
                if char == "(" and words and words[-1].literal().endswith("="):
                    words[-1].array = self._array()
                    continue
                if words:
                    more = _MORE.match(self.text, self.at)
                    words[-1].follows = more[1] if more else ""
                self._skip(1)
                yield words
                words = []
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
        start = self.at
        if words and words[-1].literal().isdigit() and self.text[self.at - 1].isdigit():
            start = words.pop().at
        while self.at < len(self.text) and self.text[self.at] in "<>&|-":
            self._skip(1)
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self._skip(1)
        if self.at < len(self.text) and self.text[self.at] not in "\n;|&()<>":
            target = self._word()
            if here:
                self.heredocs.append(target.literal())
            elif words:
                words[-1].after.append(Spelling(self.text[start : self.at], 0, start))

    def _word(self) -> _Word:
        self.count += 1
        if self.count > 16 * MOST_WORDS:
            raise too_large(self.path, f"more than {16 * MOST_WORDS} words")
        word = _Word(self.line, at=self.at)
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in (" \t\n" if self.plain else " \t\n;&|()<>"):
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
        word.text = self.text[word.at : self.at]
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
            escaped = self.text[self.at + 1 : self.at + 2]
            if char == "\\" and escaped and escaped in '$`"\\\n':
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
        if self.plain and not _NAMED.match(self.text, start):
            self._skip(1)
            return self.text[start]
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
    """Keep assignments by name, and every other command as it is."""
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
        plain = _Word(word.line, _after(word.parts, len(match[0])), text=word.text[len(match[0]) :])
        value = word.array or [plain]
        known = script.assigned.setdefault(match[1], [])
        if match[2] and word.array and known:
            known[-1] = [*known[-1], *value]
        else:  # appending (+=) is not followed: the variable counts as assigned twice
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

    def words(self, word: _Word) -> tuple[list[tuple[str, int]], Spelling]:
        """The words that a word becomes: several if an expansion without quotes is split.

        A word that consists of one expansion has the line where its text was assigned.
        """
        fields: list[tuple[str, int]] = []
        inner: list[Spelling] = []
        glued = False
        for part in word.parts:
            if isinstance(part, str):
                pieces = [(part, word.line)]
            else:
                pieces, inner = self._values(part)
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
            raise too_large(self.path, "its variables expand to more text than any command has")
        if len([part for part in word.parts if part]) > 1 or _count(inner) != len(fields):
            inner = [Spelling(spelled(text)) for text, _ in fields]
        parts = tuple(inner) if len(fields) > 1 else ()
        return fields, Spelling(word.text, len(fields), word.at, parts)

    def _values(self, variable: _Variable) -> tuple[list[tuple[str, int]], list[Spelling]]:
        name = variable.name
        once = self.script.assigned.get(name, [])
        if len(once) == 1 and name not in self.open and len(self.open) < DEEPEST:
            return self._opened(name, once[0])
        if variable.default is not None and len(self.open) < DEEPEST:
            self.notes.append(f"{name} is assumed to have its default: {variable.default}")
            quoted = next(_Lexer(f'"{variable.default}"', self.path, variable.line).commands())
            return self._opened(name, quoted)
        return [(variable.raw, variable.line)], []

    def _opened(
        self, name: str, value: list[_Word]
    ) -> tuple[list[tuple[str, int]], list[Spelling]]:
        self.open.append(name)
        try:
            made = [self.words(word) for word in value]
            pairs = [pair for fields, _ in made for pair in fields] or [("", value[0].line)]
            return pairs, [spelling for _, spelling in made]
        finally:
            self.open.pop()


def _count(source: Sequence[Spelling]) -> int:
    return sum(spelling.count for spelling in source)


def _written(words: list[_Word], script: _Script, path: str) -> Iterator[Written]:
    cut = script.cuts.get(id(words))
    while words and _KEYWORD.fullmatch(words[0].text):
        words = words[1:]
    if not any(_may_be_server(word, script) for word in words):
        return
    filling = _Filling(script, path)
    filled: list[Filled] = []
    source: list[Spelling] = []
    homes: list[_Word] = []
    for word in words:
        pairs, spelling = filling.words(word)
        filled += [Filled(*pair, len(filled) + i) for i, pair in enumerate(pairs)]
        homes += [word] * len(pairs)
        source += [spelling, *word.after]
    found = behind(filled)
    if found is None:
        return
    if found.around.published is not None:
        filling.notes.append(INSIDE)
    around = replace(found.around, marks=(cut,) if cut else ())
    if found.quoted is not None:  # bash -c "llama-server …"
        text, line, place = found.quoted
        for written in _in_quotes(homes[place], text, script, path, line):
            yield replace(written, around=both(around, written.around))
        return
    filled = [*found.before, *found.words]
    if len(filled) > MOST_WORDS:
        raise too_large(path, f"a command of more than {MOST_WORDS} words")
    texts, lines, places = zip(*filled, strict=True)
    at = len(found.before)
    yield Written(
        words=texts,
        path=path,
        line=lines[at],
        lines=lines,
        env=found.env,
        notes=tuple(dict.fromkeys(filling.notes)),
        program=at,
        source=tuple(source),
        places=places,
        contained=found.contained,
        dialect=Dialect.SHELL,
        unkept=_left_out(words),
        around=around,
    )


def _left_out(words: Sequence[_Word]) -> tuple[str, ...]:
    follows = words[-1].follows
    return (f"the command after {follows} is not printed",) if follows else ()


def both(outer: Around, inner: Around) -> Around:
    """Join what is known about the command in quotes and about what starts it."""
    return Around(
        place=inner.place or outer.place,
        doubt=inner.doubt or outer.doubt,
        marks=(*outer.marks, *inner.marks),
        published=inner.published if inner.published is not None else outer.published,
    )


def _in_quotes(word: _Word, text: str, script: _Script, path: str, line: int) -> Iterator[Written]:
    """The commands in the one word that a shell gets, as written if possible."""
    plain = _ONE_QUOTED.fullmatch(word.text)
    found = (
        read(word.text[1:-1], path, line, script.assigned if plain[0][0] == '"' else None)
        if plain
        else read(text, path, line)
    )
    note = "the command in quotes is printed alone, without what starts it"
    for inner in found:
        yield replace(
            inner,
            unkept=(*inner.unkept, note if plain else f"{note}, with its variables replaced"),
            source=tuple(replace(one, at=one.at + word.at + 1) for one in inner.source),
        )


def _may_be_server(word: _Word, script: _Script) -> bool:
    """Whether the word names a server, an image, or a variable that the script sets to one."""
    text = word.literal()
    if is_server(text) or is_image(text) or holds(text):
        return True
    names = [part.name for part in word.parts if isinstance(part, _Variable)]
    values = (w for name in names for one in script.assigned.get(name, []) for w in one)
    return any(is_server(v.literal()) or is_image(v.literal()) for v in values)
