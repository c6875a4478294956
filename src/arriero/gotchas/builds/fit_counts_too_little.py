"""The first builds with `--fit` count too little: no projector, no limit of a single buffer

Symptom
-------
The log says `will leave ... of free device memory, no changes needed`. Then the load, the first
image or the compute buffer runs out of device memory. Or layers stay on the host although the
device had room for them.

Root cause
----------
`--fit` came with b7407 (December 2025). Until about b8680 it did not count the projector of
`--mmproj`, which is loaded after it ran (fixed by ggml-org/llama.cpp#21489). It compares totals,
but not the largest single buffer that a device can give, which matters without flash attention. And
without `-c`, the context that it chooses can push out layers that would have fitted.

Workaround
----------
Keep memory free for the projector with `-fitt 2048` or more (MiB), or keep the projector on the
host with `--no-mmproj-offload`. Set `-c` to what you need, and `-fa on`. Or use a newer build.

Better fix
----------
Count what is loaded after the fit, as newer builds do.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.builds._range import told, within
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    Found,
    Gotcha,
    Provenance,
    Severity,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("fit", "multimodal", "context"),
    affects=Affects(flags=("--fit", "--mmproj", "-c", "-fa")),
    reporters=5,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#18111",
            "ggml-org/llama.cpp#19980",
            "ggml-org/llama.cpp#18097",
            "ggml-org/llama.cpp#18527",
            "ggml-org/llama.cpp#21489",
        ),
        builds="b7407 to about b8680",
        hardware="CUDA, several cards; Vulkan",
        command="--mmproj; no -c; -fa off",
    ),
    related=("mmproj-image-memory", "scores-without-flash", "fit-refused-layers"),
)


def detect(facts: Facts) -> Iterator[Found]:
    on_device = any("host" not in pool.devices for pool in facts.pools)
    if not facts.launch.fit or not on_device or not within(facts, 7407, 8679):
        return
    launch = facts.launch
    reasons = {
        "--mmproj is not counted": launch.projector is not None,
        "-c is not given": launch.context_asked is None,
        "-fa off makes single buffers large": launch.params.flash_attn == "off",
    }
    if why := [reason for reason, holds_here in reasons.items() if holds_here]:
        yield Found(
            because=f"--fit of {told(facts)} counts too little: {'; '.join(why)}",
            applies=Applies.MAYBE,
            missing=("how much memory it leaves on the devices",),
            edit=() if facts.command.has("-fitt") else (Edit(flag="-fitt", value="2048"),),
            flag="--mmproj",
        )
