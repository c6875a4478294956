"""All gotchas, read from one Python file each, and the form of such a file.

A file ``gotchas/<bundle>/<id with underscores>.py`` has:

- a docstring: the title in one line, then the sections of :data:`SECTIONS` in their order,
- ``GOTCHA``: the head,
- ``detect(facts)``: a generator of :class:`Found`,
- ``REPRODUCTIONS``: what ``verify`` runs; left out if the available parts cannot show it.

:func:`collect` refuses a file that is wrong in any way. A test calls it for all files that come
with Arriero; a check of a command uses them without this check.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Final

from arriero.base.errors import ArrieroError, NotFoundError
from arriero.base.late import pattern
from arriero.gotchas.model import Detect, Gotcha, Reproduction

SECTIONS: Final = ("Symptom", "Root cause", "Workaround", "Better fix")
_ID: Final = pattern(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_ISSUE: Final = pattern(r"[\w.-]+/[\w.-]+#\d+\Z")
_DAY: Final = pattern(r"\d{4}-\d\d-\d\d\Z")
_HEADING: Final = re.compile(r"^([A-Z][\w -]*)\n-{3,}\n", re.MULTILINE)


class GotchaError(ArrieroError):
    """A gotcha's file does not have the required form."""

    default_id = "gotcha"


@dataclass(frozen=True)
class Entry:
    """One gotcha as loaded: its head, text, rule and reproductions."""

    id: str
    bundle: str
    title: str
    sections: dict[str, str]
    head: Gotcha
    detect: Detect
    reproductions: tuple[Reproduction, ...]


@dataclass(frozen=True)
class Registry:
    """Gotchas by id, in the order of their ids."""

    entries: tuple[Entry, ...]

    def get(self, id: str) -> Entry:
        """One gotcha by its id.

        Raises:
            NotFoundError: There is no gotcha of that id.
        """
        found = next((entry for entry in self.entries if entry.id == id), None)
        if found is None:
            raise NotFoundError(
                f"there is no gotcha {id!r}",
                hint="run arriero gotchas list to see all",
                id="no-gotcha",
            )
        return found


@functools.cache
def registry() -> Registry:
    """Every gotcha that comes with Arriero.

    Raises:
        GotchaError: The head of one file lacks a field or has an unknown one.
    """
    entries = map(_entry, modules())
    return Registry(tuple(sorted(entries, key=lambda entry: entry.id)))


def modules() -> Iterator[ModuleType]:
    """The file of each gotcha that comes with Arriero."""
    import arriero.gotchas as room

    for bundle in pkgutil.iter_modules(room.__path__):
        if not bundle.ispkg:
            continue
        package = importlib.import_module(f"{room.__name__}.{bundle.name}")
        for file in pkgutil.iter_modules(package.__path__):
            if file.name.startswith("_"):  # code that several gotchas of a bundle share
                continue
            name = f"{package.__name__}.{file.name}"
            try:
                yield importlib.import_module(name)
            except TypeError as error:  # the head lacks a field or has an unknown one
                raise GotchaError(f"{name}: {error}") from None


def collect(modules: Iterable[ModuleType]) -> Registry:
    """The registry of these files.

    Raises:
        GotchaError: A file has a wrong form, or two have the same id.
    """
    entries: dict[str, Entry] = {}
    for module in modules:
        entry = read(module)
        if entry.id in entries:
            other = entries[entry.id].bundle
            raise GotchaError(f"gotcha {entry.id} is in two bundles: {other}, {entry.bundle}")
        entries[entry.id] = entry
    for entry in entries.values():
        if unknown := [other for other in entry.head.related if other not in entries]:
            raise GotchaError(f"gotcha {entry.id} is related to {unknown[0]}, which does not exist")
    return Registry(tuple(entries[name] for name in sorted(entries)))


def read(module: ModuleType) -> Entry:
    """One gotcha from its file.

    Raises:
        GotchaError: Its form is wrong; the message names the file and the problem.
    """
    entry = _entry(module)
    problems = (
        *_text_problems(*_text(module.__doc__ or "")),
        *_head_problems(entry.head, entry.id),
        *_reproduction_problems(entry.reproductions),
    )
    if problems:
        raise GotchaError(f"gotcha {entry.id}: {problems[0]}")
    return entry


def _entry(module: ModuleType) -> Entry:
    _, _, tail = module.__name__.rpartition("arriero.gotchas.")
    bundle, _, name = tail.rpartition(".")
    own = name.replace("_", "-")
    head, detect = getattr(module, "GOTCHA", None), getattr(module, "detect", None)
    if not isinstance(head, Gotcha) or not callable(detect):
        raise GotchaError(f"gotcha {own}: it needs GOTCHA and detect")
    title, names, texts = _text(module.__doc__ or "")
    sections = dict(zip(names, texts, strict=True))
    reproductions = getattr(module, "REPRODUCTIONS", ())
    return Entry(own, bundle, title, sections, head, detect, tuple(reproductions))


def _text(doc: str) -> tuple[str, list[str], list[str]]:
    """Title, headings, and the text under each."""
    title, *rest = _HEADING.split(doc)
    return title.strip(), rest[::2], [text.strip() for text in rest[1::2]]


def _text_problems(title: str, names: list[str], texts: list[str]) -> Iterator[str]:
    if "\n" in title or not title:
        yield "the docstring must begin with a title of one line and an empty line"
    if tuple(names) != SECTIONS:
        yield f"its sections are {', '.join(names)}; they must be {', '.join(SECTIONS)}"
    if empty := [name for name, text in zip(names, texts, strict=True) if not text]:
        yield f"the section {empty[0]} is empty"


def _head_problems(head: Gotcha, own: str) -> Iterator[str]:
    if not _ID.match(own):
        yield "an id must be lower-case words separated by dashes"
    provenance = head.provenance
    if not (provenance.issues or provenance.builds):
        yield "it has no provenance: name the upstream issues or the build it was seen on"
    if bad := [issue for issue in provenance.issues if not _ISSUE.match(issue)]:
        yield f"the issue {bad[0]} is not written as owner/name#number"
    if not _DAY.match(head.updated):
        yield "updated is not a day such as 2026-11-30"
    if not head.concepts:
        yield "it has no concepts"
    if own in head.related:
        yield "it is related to itself"
    if head.reporters < 0:
        yield "reporters is negative"


def _reproduction_problems(reproductions: Iterable[Reproduction]) -> Iterator[str]:
    names = [r.name for r in reproductions]
    if len(set(names)) < len(names):
        yield "two of its reproductions have the same name"
    for reproduction in reproductions:
        if reproduction.run == reproduction.control:
            yield f"{reproduction.name}: its control is the run itself"
        bounded = any(worker.room is not None for worker in reproduction.run.workers)
        if bounded and len(reproduction.control.workers) != len(reproduction.run.workers):
            yield f"{reproduction.name}: its control lacks the workers, which it must measure"
        shows = reproduction.shows
        if not any((shows.kind, shows.log, shows.effective, shows.exit_status, shows.component)):
            yield f"{reproduction.name}: its signature would match any run"
        if shows.log is not None:
            try:
                re.compile(shows.log)
            except re.error as error:
                yield f"{reproduction.name}: {shows.log!r} is not a regular expression: {error}"
