"""Split a shell script into simple commands and words, each with its place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from arriero.command.inputs.model import LONGEST_WORD, MOST_WORDS, Spelling, too_large

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_BRACED: Final = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=])(.*))?\Z", re.DOTALL)
_NAMED: Final = re.compile(r"\$(?:\{[A-Za-z_]|[A-Za-z_])")
_MORE: Final = re.compile(r"([;&|()]{1,2})[ \t]*+(?![\s#;&|()]|\Z|fi\b|done\b|esac\b)")


@dataclass(frozen=True)
class Variable:
    """An expansion in a word; ``raw`` is its text in the script."""

    name: str
    raw: str
    line: int
    quoted: bool
    default: str | None = None
    every: bool = False


Part = str | Variable


@dataclass
class Word:
    line: int
    parts: list[Part] = field(default_factory=list)
    array: list[Word] | None = None
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


class Lexer:
    def __init__(self, text: str, path: str, line: int, plain: bool = False) -> None:
        self.text, self.path, self.line, self.plain = text, path, line, plain
        self.at = 0
        self.heredocs: list[str] = []
        self.count = 0
        self.unclosed: int | None = None
        """Line of a quote that is not closed."""

    def commands(self) -> Iterator[list[Word]]:
        """Simple commands in order."""
        words: list[Word] = []
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

    def _array(self) -> list[Word]:
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

    def _redirection(self, words: list[Word]) -> None:
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

    def _word(self) -> Word:
        self.count += 1
        if self.count > 16 * MOST_WORDS:
            raise too_large(self.path, f"more than {16 * MOST_WORDS} words")
        word = Word(self.line, at=self.at)
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

    def _double_quoted(self, word: Word) -> None:
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

    def _expansion(self, quoted: bool) -> Part:
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
            return Variable(match[0], self.text[start : self.at], self.line, quoted)
        else:
            self._skip(2 if opening[1:] and not opening[1].isspace() else 1)
        raw = self.text[start : self.at]
        return raw if raw == "$" else Variable("", raw, self.line, quoted)

    def _closing(self, opening: str, closing: str) -> int:
        depth = 0
        for at in range(self.at + 1, min(len(self.text), self.at + LONGEST_WORD)):
            depth += (self.text[at] == opening) - (self.text[at] == closing)
            if depth == 0:
                return at
        return len(self.text) - 1


def _braced(raw: str, line: int, quoted: bool) -> Variable:
    match = _BRACED.match(raw[2:-1])
    if match is None:
        return Variable("", raw, line, quoted)
    name, every, operator, default = match.groups()
    return Variable(name, raw, line, quoted, default if operator else None, bool(every))
