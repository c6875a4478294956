"""--chat-template with a name: that word replaces every chat, and the model never sees a message

Symptom
-------
Answers have nothing to do with the question. `/apply-template` returns the prompt `llama3`, only
that word, for any messages. With `-lv 4` the start says `chat template, example_format: 'llama3'`.

Root cause
----------
Templates are Jinja unless `--no-jinja` is given. Then the value of `--chat-template` is the text of
the template, not the name of a built-in one; only `chatml` is known by name. A word without braces
is a template that prints this word.

Workaround
----------
Leave the flag out: the model's file brings its own template. Use `--no-jinja` to choose a built-in
template by name (tools do not work then), or `--chat-template-file` for a file.

Better fix
----------
Refuse a template that has no place for a message, or look up a bare word among the built-in ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("chat template", "Jinja"),
    affects=Affects(flags=("--chat-template", "--jinja")),
    log=("chat template, example_format:",),
    reporters=1,
    provenance=Provenance(
        issues=("containers/ramalama#1106",),
        builds="2025-04 with --jinja; on by default in 10068 and later",
        command="--chat-template llama2 --jinja",
    ),
)
_NAMED = frozenset({"", "chatml"})


def detect(facts: Facts) -> Iterator[Found]:
    command = facts.command
    template = command.value("--chat-template")
    if template is None or template.strip() in _NAMED or "{" in template:
        return
    if not _is_jinja(facts):
        return
    yield Found(
        because=f"Jinja is on, and --chat-template {template[:40]} has no place for a message",
        edit=(Edit(flag="--chat-template"),),
        flag="--chat-template",
    )


def _is_jinja(facts: Facts) -> bool:
    said = facts.command.switch("--jinja")
    flag = facts.command.flags.get("--jinja")
    return said if said is not None else flag is not None and flag.default == "enabled"


_RUN = EngineRun(flags="-c 512 -np 1 --no-warmup -lv 4 --chat-template llama3")
_SHOWS = Signature(log=r"chat template, example_format: 'llama3'")

REPRODUCTIONS = (
    Reproduction(
        name="own-template",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 512 -np 1 --no-warmup -lv 4"),
        shows=_SHOWS,
    ),
    Reproduction(
        name="without-jinja",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_RUN.flags} --no-jinja"),
        shows=_SHOWS,
    ),
)
