"""A restored slot of a hybrid, recurrent or sliding-window model reads its prompt again or crashes

Symptom
-------
`/slots/0?action=restore` says that all tokens were restored, but the next request reads the whole
prompt (`cache_n` 0). With purely recurrent models, sending exactly the restored prompt may crash
the server (`GGML_ABORT`).

Root cause
----------
A slot's file holds its last state. To continue, the server must read at least one token again, and
such a state cannot be rolled back by one token. Checkpoints would allow it, but builds up to 11434
do not save them with the slot. Builds near 11549 do; each checkpoint adds its size to the file.

Workaround
----------
Keep the server running instead of restoring. After a restore, send a prompt that continues the
restored one with new tokens, never exactly the same prompt. Only `cache_n` in the answer proves
that the restored tokens were used.

Better fix
----------
Save checkpoints with the slot (ggml-org/llama.cpp#28074).
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("slots", "prompt cache", "recurrent state"),
    affects=Affects(flags=("--slot-save-path",)),
    reporters=5,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#28194",
            "ggml-org/llama.cpp#27813",
            "ggml-org/llama.cpp#25913",
            "ggml-org/llama.cpp#26676",
            "ggml-org/llama.cpp#24003",
        ),
        builds="b10068 to September 2026",
        hardware="any",
        command="--slot-save-path DIR",
    ),
    related=("prompt-read-again", "sleep-forgets-prompts"),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.command.has("--slot-save-path") or (facts.build or 0) > _LAST:
        return
    recurrent, windows = any(facts.hparams.is_recurrent), any(facts.hparams.is_swa)
    if recurrent or windows:
        yield Found(
            because="--slot-save-path, and the model has "
            + ("recurrent state" if recurrent else "sliding windows")
            + ": a restored prompt is read again",
            flag="--slot-save-path",
        )


_LAST = 11434
