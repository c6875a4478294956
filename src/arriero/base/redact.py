"""Remove secrets from every text, and everything personal from texts that are written for sharing.

There are two levels. *Secrets* (keys, tokens, passwords) are removed from every text that Arriero
prints, records or keeps. A *shared* text also loses paths, user and host names, addresses, serial
numbers and prompts. It keeps what a reader of an upstream issue needs: base names of files, source
lines, sizes, devices, flags, builds.
"""

from __future__ import annotations

import getpass
import platform
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from arriero.base.aliases import address_alias, login_alias, without_places
from arriero.base.names import Names
from arriero.base.parts import DEPTH_CEILING, argvs, blank, is_argv, members, texts
from arriero.base.places import (
    ANSI,
    DOMAIN,
    EMAIL,
    HEADER_TEXT,
    HOME_USER,
    HOSTNAME,
    JOURNAL,
    LOGIN,
    MAC,
    MACHINE,
    OWNER,
    PEER,
    POD,
    SERIAL,
    SLOT_FILE,
    UUID,
    V4,
    V6,
    WORKER,
    WORKERS,
    reduced,
)
from arriero.base.prompts import PROMPT, PROMPT_FLAGS, PROMPT_NAMES, without_prompts
from arriero.base.secret import (
    NOT_SECRET,
    SECRET,
    SECRET_FLAG,
    SECRET_NAME,
    is_reference,
    keyed_spans,
    pattern_of,
    secrets_of,
    value_span,
    without_secrets,
)

_T = TypeVar("_T")


@cache
def free_fields(struct: type[msgspec.Struct]) -> frozenset[str]:
    """Fields of a document that may contain any text, unlike those with fixed words as values."""
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)  # noqa: S101  for the type checker
    fixed = (msgspec.inspect.LiteralType, msgspec.inspect.EnumType)
    return frozenset(field.name for field in info.fields if not isinstance(field.type, fixed))


class Redactor:
    """Removes what others must not read, and remembers what it found.

    One redactor serves one document or one bundle. A name that it finds once (a user in a path, a
    host in a log prefix, a key in a flag) is removed everywhere afterwards, and the same host keeps
    the same alias (``host-1``, ``worker-1``).

    Args:
        secrets: Known secrets of any length. One shorter than four characters is removed only
            after its flag or name.
        users: Known user names.
        hosts: Known host names.
        workers: Names or addresses of RPC workers, without port.
        paths: Known paths; needed for paths with spaces.
    """

    def __init__(
        self,
        *,
        secrets: Collection[str] = (),
        users: Collection[str] = (),
        hosts: Collection[str] = (),
        workers: Collection[str] = (),
        paths: Collection[str] = (),
    ) -> None:
        self._secrets: set[str] = set()
        self._names = Names()
        self._paths: set[str] = set()
        self._known: re.Pattern[str] | None = None
        for value in secrets:
            self._learn_secret(value)
        for name in users:
            self._names.learn_user(name)
        for name in hosts:
            self._names.learn_host(name)
        for name in workers:
            self._names.learn_host(name, worker=True)
        self._paths.update(path for path in paths if len(path) > 1)

    @classmethod
    def for_this_machine(cls, *, secrets: Collection[str] = ()) -> Redactor:
        """A redactor that knows this machine's user, home and host name."""
        users = {Path("~").expanduser().name}
        with suppress(KeyError, ImportError, OSError):  # a container's user may have no name
            users.add(getpass.getuser())
        return cls(secrets=secrets, users=users, hosts={platform.node()} - {""})

    def secrets(self, text: str) -> str:
        """The text without secrets."""
        self._learn_text(text, share=False)
        return self._without_secrets(text)

    def share(self, text: str) -> str:
        """The text in a form that anybody may see."""
        self._learn_text(text, share=True)
        return self._shared(text)

    def learn(self, document: object, *, share: bool = True) -> None:
        """Remember the secrets and names in a document, to remove them from other texts too."""
        for argv in argvs(document):
            for value in secrets_of(argv, {}):
                self._learn_secret(value)
            for flag, value in pairwise(argv):
                self._names.learn_address(flag, value)
            self._paths.update(
                word for word in argv if " " in word and re.match(r"[/~]|[A-Za-z]:[\\/]|\\\\", word)
            )
        for name, value in members(document):
            if SECRET_NAME.search(name) or SECRET_FLAG.match(name):
                for word in (value, *value.split(",")):
                    self._learn_secret(word)
            else:
                self._names.learn_address(name, value)
        for text in texts(document):
            self._learn_text(text, share=share)

    def scrub(self, document: _T, *, share: bool = False) -> _T:
        """The same document without secrets, or fit for sharing.

        Numbers, names of members and the contract's own words are kept.
        """
        self.learn(document, share=share)
        result: _T = self._scrub(document, share, 0)
        return result

    # -- learning

    def _learn_secret(self, value: str) -> None:
        known = value in self._secrets or value.lower() in NOT_SECRET or is_reference(value)
        if value.strip() and not known:
            self._secrets.add(value)
            self._known = None

    def _learn_text(self, text: str, *, share: bool) -> None:
        for start, end, _ in keyed_spans(text):
            value = text[start:end]
            # A word of prose after a flag's name is not a secret to look for elsewhere.
            if len(value) > 7 and re.search(r"\d|[^\w\s]", value):
                self._learn_secret(value)
        if not share:
            return
        text = ANSI.sub("", text)
        for found in HOME_USER.finditer(text):
            self._names.learn_user(found[1] or found[2] or found[3])
        for found in LOGIN.finditer(text):
            self._names.learn_user(found[1])
            self._names.learn_host(found[2])
        for found in WORKER.finditer(text):
            self._names.learn_host(found[1] or found[2], worker=True)
        at = 0
        while named := WORKERS.search(text, at):
            start, end = value_span(text, named.end())
            self._names.learn_workers(text[start:end])
            at = max(end, named.end())
        for pattern in (JOURNAL, PEER):
            for found in pattern.finditer(text):
                self._names.learn_host(found[1])
        for found in HOSTNAME.finditer(text):
            self._names.learn_host(next(filter(None, found.groups())))
        for found in OWNER.finditer(text):
            self._names.learn_user(next(filter(None, found.groups())))
        for found in POD.finditer(text):
            for name in filter(None, found.groups()):
                self._names.learn_host(name)
        without_places(self._names, text)  # the hosts in addresses and shares

    # -- one text

    def _without_secrets(self, text: str) -> str:
        if self._known is None and self._secrets:
            self._known = pattern_of(self._secrets)
        return without_secrets(text, self._known)

    def _shared(self, text: str) -> str:
        text = self._without_secrets(ANSI.sub("", text))
        text = HEADER_TEXT.sub(r"\1<text>", without_prompts(text))
        text = SLOT_FILE.sub(lambda m: f"{m[0][0]}<file>{m[0][0]}", text)
        for path in sorted(self._paths, key=len, reverse=True):
            import json  # late, as few paths have spaces in them

            for word in {path, json.dumps(path)[1:-1]}:
                text = text.replace(word, reduced(path))
        text = without_places(self._names, text)
        text = EMAIL.sub(partial(login_alias, self._names), text)
        text = UUID.sub("<uuid>", MAC.sub("<mac>", text))
        text = SERIAL.sub(r"\1<serial>", text)
        text = V6.sub(partial(address_alias, self._names), text)
        text = V4.sub(partial(address_alias, self._names), text)
        text = DOMAIN.sub(lambda m: self._names.alias(m[0]), text)
        text = MACHINE.sub(lambda m: self._names.alias(m[0]), text)
        return self._names.without(text)

    # -- documents

    def _text(self, text: str, share: bool) -> str:
        return self._shared(text) if share else self._without_secrets(text)

    def _scrub(self, value: Any, share: bool, depth: int) -> Any:
        if depth > DEPTH_CEILING:
            return None  # better lost than revealed
        if isinstance(value, Enum):
            return value
        if isinstance(value, str):
            return self._text(value, share)
        if isinstance(value, msgspec.Struct):
            free = free_fields(type(value))
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            return type(value)(
                **{
                    name: self._scrub(item, share, depth + 1) if name in free else item
                    for name, item in fields.items()
                }
            )
        if isinstance(value, Mapping):
            return {
                self._scrub(key, share, depth + 1): self._member(key, item, share, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)(self._sequence(value, share, depth + 1))
        return value

    def _member(self, key: object, item: Any, share: bool, depth: int) -> Any:
        name = key if isinstance(key, str) else ""
        if SECRET_NAME.search(name) or SECRET_FLAG.match(name):
            return blank(item, SECRET)
        if share and (name in PROMPT_NAMES or name in PROMPT_FLAGS):
            return blank(item, PROMPT)
        return self._scrub(item, share, depth)

    def _sequence(self, items: Sequence[Any], share: bool, depth: int) -> Iterable[Any]:
        if not items or not all(isinstance(item, str) and type(item) is str for item in items):
            return [self._scrub(item, share, depth) for item in items]
        if is_argv(items):
            return self._argv(items, share)
        # Lines of one log: a key or a prompt may span several.
        whole = "\n".join(items)
        lines = self._text(whole, share).split("\n")
        if len(lines) == len(items):
            return lines
        return [self._text(item, share) for item in items]

    def _argv(self, words: Sequence[str], share: bool) -> Iterator[str]:
        before = ""
        for word in words:
            if is_reference(word.partition("=")[2] or word):
                yield word
            elif SECRET_FLAG.match(before) and word.lower() not in NOT_SECRET:
                yield SECRET
            elif share and before in PROMPT_FLAGS:
                yield PROMPT
            else:
                name, equals, value = word.partition("=")
                if equals and value and SECRET_NAME.search(name):
                    yield f"{name}={SECRET}"
                else:
                    yield self._text(word, share)
            before = word
