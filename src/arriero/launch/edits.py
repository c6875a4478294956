"""Changes to a command: the only place that applies one.

A change is a mapping of flags to their new values (None takes the flag away), or what a finding
proposes as an :class:`Edit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from arriero.command import Command
from arriero.launch.caches import CHECKPOINTS, PROMPT_CACHE, checkpoints, prompt_cache
from arriero.launch.loading import loading_of
from arriero.launch.slots import slots_of

Settings = Mapping[str, str | None]
"""Flag → its new value; None takes the flag away."""


class Edit(Protocol):
    """One change as a record holds it: see :class:`arriero.record.Edit`."""

    @property
    def flag(self) -> str: ...
    @property
    def value(self) -> str | None: ...
    @property
    def rename(self) -> str | None: ...
    @property
    def env(self) -> bool: ...
    @property
    def insert(self) -> bool: ...


def with_settings(command: Command, settings: Settings) -> Command:
    """The command with these settings and no other change.

    Raises:
        UsageError: This engine has no such flag.
    """
    for flag, value in settings.items():
        command = command.without(flag) if value is None else command.with_value(flag, value)
    return command


def edited(command: Command, edits: Iterable[Edit]) -> Command:
    """The command with these edits, one after the other.

    Raises:
        UsageError: This engine has no such flag.
    """
    for edit in edits:
        command = _edited(command, edit)
    return command


def _edited(command: Command, edit: Edit) -> Command:
    if edit.env:
        return command.with_environ(edit.flag, edit.value or "")
    if edit.rename is None and not edit.insert:
        return with_settings(command, {edit.flag: edit.value})
    item = next((item for item in reversed(command.items) if item.name == edit.flag), None)
    if item is None:
        return command
    inserted = [edit.value] if edit.insert and edit.value is not None else []
    words = [edit.rename, *inserted] if edit.rename else inserted
    return command.spliced(item.at if edit.rename else item.at + 1, item.at + 1, words)


def slots(command: Command, count: int, *, unified: bool | None = None) -> Settings:
    """What sets the number of slots and keeps the KV layout, or changes it to ``unified``.

    ``-np`` left to the server means one cache for all and ``-np N`` does not: the number alone
    would change both. With one slot the two layouts are the same.
    """
    settings: dict[str, str | None] = {"-np": str(count)}
    wanted = slots_of(command).unified if unified is None else unified
    if count > 1 and command.flags.knows("-kvu") and (command.switch("-kvu") is True) != wanted:
        settings["-kvu"] = "on" if wanted else "off"
    return settings


def with_slots(command: Command, count: int, *, unified: bool | None = None) -> Command:
    """The command with that many slots; see :func:`slots`."""
    return with_settings(command, slots(command, count, unified=unified))


def context(tokens: int) -> Settings:
    """What sets the context of all slots together, in tokens."""
    return {"-c": str(tokens)}


def with_context(command: Command, tokens: int) -> Command:
    """The command with a context of that many tokens in all slots together."""
    return with_settings(command, context(tokens))


def mapped(command: Command) -> Settings:
    """What has the weights mapped from the file; empty where they are, or are locked instead."""
    loading = loading_of(command)
    if loading.mapped or loading.locked:
        return {}
    settings: dict[str, str | None] = {"-dio": None} if command.has("-dio") else {}
    if command.has("-lm"):  # the last flag counts: the other one goes
        return {**settings, "--mmap": None, "-lm": "mmap"}
    return {**settings, "--mmap": "on"} if command.has("--mmap") else settings


def caches_off(command: Command) -> Settings:
    """What turns saved prompts and checkpoints off; empty where both are."""
    limits = {PROMPT_CACHE: prompt_cache(command), CHECKPOINTS: checkpoints(command)}
    return {flag: "0" for flag, limit in limits.items() if limit != 0}
