"""The first builds with `--fit` count too little: the projector, and what one buffer may take

Symptom
-------
`will leave ... of free device memory, no changes needed`, and then the load, the first image or the
compute buffer runs out of device memory. Or layers are left on the host although there was room.

Root cause
----------
`--fit` came with b7407 (December 2025). Until about b8680 it did not count the projector of
`--mmproj`, which is loaded after it (mended by ggml-org/llama.cpp#21489). It compares totals and
not the largest single buffer that a device gives, which matters without flash attention. And where
no `-c` is given, the context that it works out can push layers out that would have had room.

Workaround
----------
`-fitt 2048` or more keeps so many MiB free for the projector, `--no-mmproj-offload` keeps it on the
host. Give `-c` what is needed, and `-fa on`. Or take a newer build.

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
    command = facts.command
    reasons = {
        "--mmproj is not counted": command.has("--mmproj"),
        "there is no -c": not command.has("-c"),
        "-fa off makes single buffers large": facts.launch.params.flash_attn == "off",
    }
    if why := [reason for reason, holds_here in reasons.items() if holds_here]:
        yield Found(
            because=f"--fit of {told(facts)}: {'; '.join(why)}",
            applies=Applies.MAYBE,
            missing=("how much the devices have left after it",),
            edit=() if command.has("-fitt") else (Edit(flag="-fitt", value="2048"),),
            flag="--mmproj",
        )
