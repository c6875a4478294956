"""A context above the model's training context takes memory that no slot may use

Symptom
-------
`the slot context (65536) exceeds the training context of the model (32768) - capping`, one warning
among many, and prompts longer than 32768 tokens are refused. Memory is taken for all 65536.

Root cause
----------
The KV cache is made as large as `-c` says. Only then the server limits each slot to the training
context in the model's file. Builds before ggml-org/llama.cpp#28030 do so even if RoPE scaling
stretches the model (`--rope-scaling yarn --rope-scale 4`): they compare with the number in the
file, not with the stretched one.

Workaround
----------
Set `-c` to at most the training context for each slot. If RoPE scaling is intended, tell the server
the stretched context with `--override-kv ARCH.context_length=int:N`.

Better fix
----------
Newer builds scale the training context along with YaRN's flags. Without these flags, the server
could limit the context before it makes the cache.
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
    Sign,
    Signature,
)
from arriero.launch.builds import AFTER_10435
from arriero.launch.context import context
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("context", "KV cache", "RoPE scaling"),
    affects=Affects(flags=("-c", "--rope-scaling", "--rope-scale")),
    log=(
        "exceeds the training context of the model",
        "possible training context overflow",
    ),
    signs=(Sign(notice="context_changed", text=r"exceeds the training context", sure=True),),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#17459",
            "ggml-org/llama.cpp#22140",
            "meta-models/meta-oss-cookbook#37",
        ),
        builds="b8850 to b10754",
        hardware="any",
        command="--rope-scaling yarn --rope-scale 1.25 --ctx-size 320000",
    ),
)
_SCALING = ("--rope-scaling", "--rope-scale", "--rope-freq-scale", "--yarn-orig-ctx")


def detect(facts: Facts) -> Iterator[Found]:
    command, params = facts.command, facts.launch.params
    asked = facts.launch.context_asked or 0
    if (
        asked <= 0
        or params.embeddings
        or "context_length" in (command.value("--override-kv") or "")
    ):
        return
    scaled = any(command.has(name) for name in _SCALING)
    if scaled and (facts.build is None or facts.build >= AFTER_10435):
        return
    trained = facts.model.n_ctx_train
    if not trained:
        return
    made = context(asked, params.n_seq_max, unified=params.kv_unified)
    usable = trained * made.n_seq_max
    if made.n_ctx <= context(usable, made.n_seq_max, unified=made.unified).n_ctx:
        return
    yield Found(
        because=f"-c {asked} makes a cache for {made.n_ctx} tokens; the model's training context is"
        f" {trained}, so {_slots(made.n_seq_max)} at most {usable}",
        edit=_stretched(facts, made.n_ctx_seq) if scaled else (Edit(flag="-c", value=str(usable)),),
        flag="-c",
    )


def _stretched(facts: Facts, tokens: int) -> tuple[Edit, ...]:
    if facts.command.has("--override-kv"):  # the edit would replace it
        return ()
    return (Edit(flag="--override-kv", value=f"{facts.model.arch}.context_length=int:{tokens}"),)


def _slots(count: int) -> str:
    return "a slot uses" if count == 1 else f"{count} slots use"


_SHORT = tiny("llama", context_train=2048, name="short-trained")
_RUN = EngineRun(flags="-c 4096 -np 1 --no-warmup")
_SHOWS = Signature(log=r"exceeds the training context of the model \(2048\) - capping")
_YARN = EngineRun(flags="-c 4096 -np 1 --rope-scaling yarn --rope-scale 2 --no-warmup")

REPRODUCTIONS = (
    Reproduction(
        name="twice-as-long",
        model=_SHORT,
        run=_RUN,
        control=replace(_RUN, flags="-c 2048 -np 1 --no-warmup"),
        shows=_SHOWS,
    ),
    Reproduction(
        name="stretched",
        model=_SHORT,
        run=_YARN,
        control=replace(_YARN, flags=f"{_YARN.flags} --override-kv llama.context_length=int:4096"),
        shows=_SHOWS,
    ),
)
