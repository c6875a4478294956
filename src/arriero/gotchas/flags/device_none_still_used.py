"""`-dev none` keeps layers off the GPU, but the engine still opens the GPU's driver

Symptom
-------
With `-dev none` or `-ngl 0`, `nvidia-smi` still shows some hundred MiB for the server. With
`--mmproj` it is more, and long prompts take device memory too. If the card is full, the start
fails.

Root cause
----------
The flag only says where layers go. Every compiled-in backend still opens its devices (a CUDA
context takes about 300 MiB). The projector goes to the first GPU unless another place is given. And
with `-ngl 0` the engine still sends large matrix products to the GPU for speed (`--op-offload`).

Workaround
----------
Hide the device: set `CUDA_VISIBLE_DEVICES=`, `HIP_VISIBLE_DEVICES=` or `GGML_VK_VISIBLE_DEVICES=`
to an empty value in the server's environment. `--no-mmproj-offload` and `--no-op-offload` keep the
projector and matrix products on the CPU.

Better fix
----------
Do not open devices on which nothing is to run.
"""

from __future__ import annotations

from collections.abc import Iterator

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

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("devices", "offload"),
    affects=Affects(backends=("CUDA", "ROCm", "Vulkan"), flags=("-dev", "-ngl")),
    reporters=0,
    provenance=Provenance(
        builds="the size of a CUDA context is from measurements by others; not tried here",
        hardware="CUDA",
        command="-dev none",
    ),
    related=("mmproj-first-device",),
)


def detect(facts: Facts) -> Iterator[Found]:
    command = facts.command
    if facts.launch.params.devices != () or any(name in command.environ for name in _VARIABLES):
        return
    projector = facts.launch.projector
    on_device = projector is not None and projector.use_gpu
    yield Found(
        because="-dev none: backends still open their devices"
        + (", and --mmproj goes to the first one" if on_device else ""),
        applies=Applies.MAYBE,
        missing=("which backends the engine was built with",),
        flag="-dev",
    )


_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
)
