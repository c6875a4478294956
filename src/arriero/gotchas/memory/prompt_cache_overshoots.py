"""Before June 2026 the prompt cache exceeds its limit and keeps one prompt of any size

Symptom
-------
`cache state: 1 prompts, 2460.007 MiB (limits: 1200.000 MiB)`, and the kernel kills the server on a
host that has only as much memory as `--cache-ram` allows.

Root cause
----------
The server saved a prompt first and dropped older ones afterwards; the last prompt stayed however
large it was. Since ggml-org/llama.cpp#25070 the limit holds.

Workaround
----------
Set `-cram 0` on a host with little memory, or leave room for two whole prompts above the limit. Or
use a newer build.

Better fix
----------
Newer builds have the fix.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
from arriero.base.words import Component, Kind
from arriero.gotchas.builds._range import told, within
from arriero.gotchas.facts import Facts, bytes_of
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
    Sign,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("prompt cache", "host memory"),
    affects=Affects(flags=("-cram",)),
    signs=(
        Sign(kinds=(Kind.STATE_GROWTH,), components=(Component.PROMPT_CACHE,), builds=(0, 9599)),
    ),
    reporters=2,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#21690",
            "ggml-org/llama.cpp#23561",
            "ggml-org/llama.cpp#25070",
        ),
        builds="b7xxx to June 2026",
        hardware="any",
        command="--cache-ram 1200",
    ),
    related=("prompt-cache-limit", "checkpoints-of-windows"),
)


def detect(facts: Facts) -> Iterator[Found]:
    limit = facts.launch.cache_ram
    if not limit or not facts.command.has("-cram") or not within(facts, 0, 9599):
        return
    context = facts.plan.context
    slots = context.n_seq_max if context else 1
    size = bytes_of(facts.plan, Component.KV) // (1 if facts.launch.params.kv_unified else slots)
    if size > limit:
        yield Found(
            because=f"a full prompt's state takes up to {human(size)}, more than -cram"
            f" ({human(limit)}), but {told(facts)} keeps it",
            applies=Applies.MAYBE,
            missing=("which build of June 2026 was the first that keeps to the limit",),
            flag="-cram",
        )
