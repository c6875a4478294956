"""A restored slot of a hybrid, recurrent or sliding-window model is read again, or ends the server

Symptom
-------
`/slots/0?action=restore` says that all tokens were restored, and the next request reads the whole
prompt (`cache_n` 0). On purely recurrent models the very prompt that was restored may end the
server (`GGML_ABORT`).

Root cause
----------
A slot's file holds its last state. To continue, at least one token has to be read again, and such
state cannot be taken back by one; checkpoints could, and builds up to 11434 do not save them with
the slot. Builds near 11549 do, and each adds its size to the file.

Workaround
----------
Keep the server running instead of restoring. After a restore, send a prompt that goes on from the
restored one and differs from it by more than nothing: never exactly the same. `cache_n` of the
answer is the only proof.

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
            + ": what is restored is read again",
            flag="--slot-save-path",
        )


_LAST = 11434
