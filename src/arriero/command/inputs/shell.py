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

from arriero.command.inputs.lexer import Lexer, Part, Variable, Word
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

_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_KEYWORD: Final = re.compile(r"if|then|else|elif|do|while|until|!|\{")
_DECLARING: Final = re.compile(r"export|declare|local|readonly|typeset")
INSIDE: Final = "paths are those inside the container: they are looked for here as written"
_TRAILING: Final = re.compile(r"\\[ \t\r]*")
_ENDS_IN_BLANK: Final = re.compile(r"\\[ \t]+\r?\Z")
_ONE_QUOTED: Final = re.compile(r"""'[^']*'|"[^"\\`]*\"""")


_Assigned = dict[str, list[list[Word]]]


@dataclass
class _Script:
    commands: list[list[Word]] = field(default_factory=list)
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
    lexer = Lexer(text, path, first_line, plain)
    before: list[Word] = []
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
    before: list[Word], words: list[Word], script: _Script, lines: list[str], first: int
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
    made = [Word(1, [word], text=shlex.quote(word)) for word in words]
    return tuple(_written(made, _Script(), path))


def split(text: str, path: str, first_line: int, notes: list[str]) -> list[tuple[Filled, Spelling]]:
    """All words that a shell would make of a text.

    Variables stay as written, except those with a default, which ``notes`` mentions.
    """
    filling = _Filling(_Script(), path)
    found: list[tuple[Filled, Spelling]] = []
    for words in Lexer(text, path, first_line, plain=True).commands():
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


def _sort(words: list[Word], script: _Script) -> None:
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
        plain = Word(word.line, _after(word.parts, len(match[0])), text=word.text[len(match[0]) :])
        value = word.array or [plain]
        known = script.assigned.setdefault(match[1], [])
        if match[2] and word.array and known:
            known[-1] = [*known[-1], *value]
        else:  # appending (+=) is not followed: the variable counts as assigned twice
            known.append(value)


def _after(parts: list[Part], count: int) -> list[Part]:
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

    def words(self, word: Word) -> tuple[list[tuple[str, int]], Spelling]:
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

    def _values(self, variable: Variable) -> tuple[list[tuple[str, int]], list[Spelling]]:
        name = variable.name
        once = self.script.assigned.get(name, [])
        if len(once) == 1 and name not in self.open and len(self.open) < DEEPEST:
            return self._opened(name, once[0])
        if variable.default is not None and len(self.open) < DEEPEST:
            self.notes.append(f"{name} is assumed to have its default: {variable.default}")
            quoted = next(Lexer(f'"{variable.default}"', self.path, variable.line).commands())
            return self._opened(name, quoted)
        return [(variable.raw, variable.line)], []

    def _opened(self, name: str, value: list[Word]) -> tuple[list[tuple[str, int]], list[Spelling]]:
        self.open.append(name)
        try:
            made = [self.words(word) for word in value]
            pairs = [pair for fields, _ in made for pair in fields] or [("", value[0].line)]
            return pairs, [spelling for _, spelling in made]
        finally:
            self.open.pop()


def _count(source: Sequence[Spelling]) -> int:
    return sum(spelling.count for spelling in source)


def _written(words: list[Word], script: _Script, path: str) -> Iterator[Written]:
    cut = script.cuts.get(id(words))
    while words and _KEYWORD.fullmatch(words[0].text):
        words = words[1:]
    if not any(_may_be_server(word, script) for word in words):
        return
    filling = _Filling(script, path)
    filled: list[Filled] = []
    source: list[Spelling] = []
    homes: list[Word] = []
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


def _left_out(words: Sequence[Word]) -> tuple[str, ...]:
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


def _in_quotes(word: Word, text: str, script: _Script, path: str, line: int) -> Iterator[Written]:
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


def _may_be_server(word: Word, script: _Script) -> bool:
    """Whether the word names a server, an image, or a variable that the script sets to one."""
    text = word.literal()
    if is_server(text) or is_image(text) or holds(text):
        return True
    names = [part.name for part in word.parts if isinstance(part, Variable)]
    values = (w for name in names for one in script.assigned.get(name, []) for w in one)
    return any(is_server(v.literal()) or is_image(v.literal()) for v in values)
