"""A draft model, or MTP, has a context of its own, as long as the model's, with its own buffers

Symptom
-------
The model loads and its context is created. Then the draft's context fails: out of memory in
`graph_reserve`, or `failed to create MTP context`. If a device has no memory left at all, the load
ends with `vector::_M_range_check: __n (which is 1) >= this->size() (which is 1)`, because the share
of a device without free memory is not a number. Builds before about b9760 went on without drafting
and said so only in the log.

Root cause
----------
Drafting needs a second context. It has the same `-c` as the model, so its KV cache grows with it.
It also has a compute buffer of its own, which it does not share with the model. `--fit` counts it
only in newer builds.

Workaround
----------
Set a smaller `-c` or `-ub`, use `-ctkd q8_0 -ctvd q8_0` for the draft's cache, or keep the draft
model on the host with `-ngld 0`. `arriero plan` shows the draft's lines.

Better fix
----------
A separate context length for drafting, and one compute buffer for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.words import Component
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
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
    concepts=("speculative decoding", "context", "compute buffer"),
    affects=Affects(flags=("-md", "--spec-type", "-c", "-ngld")),
    signs=(
        Sign(text=r"_M_range_check|invalid vector subscript|error loading model: vector"),
        Sign(components=(Component.DRAFT,)),
    ),
    reporters=5,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#25714",
            "ggml-org/llama.cpp#27282",
            "ggml-org/llama.cpp#26894",
            "ggml-org/llama.cpp#24922",
            "ggml-org/llama.cpp#24758",
        ),
        builds="b9591 to about b10700",
        hardware="CUDA, 16 and 24 GB",
        command="-c 32768 --spec-draft-model D; --spec-type draft-mtp -c 196608",
    ),
    related=("draft-model-unused", "rs-rollback-copies"),
)


def detect(facts: Facts) -> Iterator[Found]:
    launch = facts.launch
    drafts = [kind for kind in launch.speculation if kind.startswith("draft")]
    model = launch.draft_source
    if not drafts or not (model or "draft-mtp" in drafts):
        return
    tokens = launch.context_asked or 0
    length = f"{tokens} tokens (-c)" if tokens > 0 else "the same length as the model's"
    yield Found(
        because=f"{model or drafts[0]} drafts in a second context of {length}",
        flag="-md" if model else "--spec-type",
    )
