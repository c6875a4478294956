"""Names of users and machines in one document, and what replaces them in a shared text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from arriero.base.places import (
    ALIAS,
    ENDPOINT,
    FIELD_WORDS,
    PRIVATE,
    PUBLIC,
    is_address,
    is_loopback,
)
from arriero.base.vocabulary import message_words

USER: Final = "<user>"
_CEILING: Final = 512
"""Names of each kind that are remembered."""


class Names:
    """The names found so far. The same machine always gets the same alias."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._hosts: set[str] = set()
        self._workers: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._compiled: dict[str, re.Pattern[str]] = {}

    def learn_user(self, name: str) -> None:
        """Remember a user, unless the name is also a word of messages or fields."""
        name = name.strip(" .")
        if (
            len(name) > 1
            and name not in self._users
            and name.lower() not in FIELD_WORDS | message_words()
            and not name.isdigit()
            and len(self._users) < _CEILING
        ):
            self._users.add(name)
            self._compiled.pop("users", None)

    def learn_host(self, name: str, *, worker: bool = False) -> None:
        """Remember a machine by name or address; loopback and public names are not private."""
        name = name.strip(".[]").lower()
        if len(name) < 2 or ALIAS.match(name) or is_loopback(name) or PUBLIC.match(name):
            return
        if worker:
            self._workers |= {name, name if is_address(name) else name.partition(".")[0]}
        if not is_address(name) and len(self._hosts) < _CEILING:
            label = name.partition(".")[0]
            # The first label alone names a machine, but not in docs.project.org.
            alone = len(label) > 3 and bool(PRIVATE.search(name) or re.search(r"\d", label))
            for word in {name, label} if alone else {name}:
                public = FIELD_WORDS | message_words()
                if word not in public | self._hosts and not word.isdigit():
                    self._hosts.add(word)
                    self._compiled.pop("hosts", None)
        if worker:
            self.alias(name)  # numbered in the order in which they are named

    def learn_address(self, flag: str, value: str) -> None:
        """Remember the machines that the value of a flag or variable names."""
        if flag in {"--rpc", "LLAMA_ARG_RPC"}:
            self.learn_workers(value)
        elif flag in {"--host", "LLAMA_ARG_HOST"}:
            self.learn_host(value)

    def learn_workers(self, value: str) -> None:
        """Remember the machines in a list of RPC endpoints."""
        for found in ENDPOINT.finditer(value):
            self.learn_host(found[1] or found[2], worker=True)

    def alias(self, name: str) -> str:
        """A stable name for a host: ``worker-1`` for an RPC worker, else ``host-1``."""
        key = name.strip(".[]").lower()
        if ALIAS.match(key) or is_loopback(key) or PUBLIC.match(key):
            return name
        label = key.partition(".")[0]
        key = label if label in self._hosts and not is_address(key) else key
        if key not in self._aliases:
            kind = "worker" if key in self._workers else "host"
            taken = len({a for a in self._aliases.values() if a.startswith(kind)})
            self._aliases[key] = f"{kind}-{taken + 1}"
        return self._aliases[key]

    def without(self, text: str) -> str:
        """The text with aliases of machines and ``<user>`` in place of the names."""
        if self._hosts:
            text = self._pattern("hosts", self._host_pattern, re.IGNORECASE).sub(
                lambda m: self.alias(m[0]), text
            )
        if self._users:
            text = self._pattern("users", self._user_pattern, re.IGNORECASE).sub(USER, text)
        return text

    def _pattern(self, name: str, build: Callable[[], str], flags: int = 0) -> re.Pattern[str]:
        if name not in self._compiled:
            self._compiled[name] = re.compile(build(), flags)
        return self._compiled[name]

    def _host_pattern(self) -> str:
        words = sorted(self._hosts, key=lambda w: (-len(w), w))
        return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9])"

    def _user_pattern(self) -> str:
        def one(name: str) -> str:
            # Hexadecimal letters must not be found in a commit, nor a short name in a word.
            follow = (
                r"(?![A-Za-z0-9])" if re.fullmatch(r"[A-Fa-f0-9]+|..", name) else r"s?(?![A-Za-z])"
            )
            return re.escape(name) + follow

        words = sorted(self._users, key=lambda w: (-len(w), w))
        return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(one, words))})"
