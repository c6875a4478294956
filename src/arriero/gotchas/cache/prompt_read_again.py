"""Without checkpoints a hybrid or recurrent model reads the whole prompt again

Symptom
-------
A chat gets slower with every turn. With `-lv 4` the log says `forcing full prompt re-processing due
to lack of cache data`, and `cache_n` in the reply is 0 although most of the prompt was sent before.

Root cause
----------
Recurrent state describes the text up to its last token. It cannot be rolled back to the token where
two prompts begin to differ, and a sliding window cannot bring back what has left it. The server can
only go back to a context checkpoint, a copy made while the prompt was read. `-ctxcp 0` saves the
memory of checkpoints, so there is none to go back to. Then a prompt that does not continue the old
one exactly is read from its beginning.

Workaround
----------
Keep some checkpoints: `-ctxcp 4`. Each costs a copy of the recurrent state, or of the window.
Clients help when they send the model's own answers back unchanged.

Better fix
----------
A limit in bytes instead of a count, so that users can weigh memory against speed (also requested
upstream).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import Kind
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
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("checkpoints", "recurrent state", "prompt cache"),
    affects=Affects(flags=("-ctxcp",)),
    log=("forcing full prompt re-processing due to lack of cache data",),
    signs=(Sign(kinds=(Kind.REPROCESSING,)),),
    reporters=4,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#21831",
            "ggml-org/llama.cpp#19794",
            "ggml-org/llama.cpp#14157",
            "ggml-org/llama.cpp#13194",
        ),
        builds="5648 to 8124 and later; seen on 10434",
        hardware="CUDA, Vulkan",
        command="a hybrid, recurrent or sliding-window model",
    ),
    related=("rs-alloc-slots",),
)
_KEPT = (Edit(flag="-ctxcp", value="4"),)


def detect(facts: Facts) -> Iterator[Found]:
    embedding = facts.launch.params.embeddings
    if embedding or facts.launch.checkpoints or facts.command.flags.get("-ctxcp") is None:
        return
    layers = sum(facts.hparams.is_recurrent)
    if layers:
        yield Found(
            because=f"-ctxcp 0 and {layers} recurrent layers: a prompt that differs from the last"
            " one is read from its beginning",
            edit=_KEPT if facts.has_room(_KEPT) else (),
            flag="-ctxcp",
        )


_FLAGS = "-c 1024 -np 1 -b 64 -ub 16 --no-warmup -lv 4"
"""With a short micro-batch, checkpoints of short prompts lie within what all prompts share."""
_RUN = EngineRun(flags=f"{_FLAGS} -ctxcp 0", shared=48)


def _again(name: str, arch: str) -> Reproduction:
    return Reproduction(
        name=name,
        model=tiny(arch),
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} -ctxcp 4"),
        shows=Signature(log=r"forcing full prompt re-processing due to lack of cache data"),
    )


REPRODUCTIONS = (_again("hybrid", "qwen35"), _again("recurrent", "mamba2"))
