"""With `-sm tensor` the log prints sizes for `Meta()`, and a device may take more than its share

Symptom
-------
`Meta() model buffer size = 7252.51 MiB`: no line says what each card takes. Cards hold more than
with `-sm layer`, GiB more for large models.

Root cause
----------
One device called `Meta` represents all devices, and its size lines name none of them. A report on
b9441 found that buffers are allocated in full size on each device although a split tensor needs
only a part there. The report was closed as stale.

Workaround
----------
Trust what the driver shows (`nvidia-smi`, `rocm-smi`), and leave room on the fullest card with a
smaller `-c`. Or use `-sm layer`, whose size lines name each device.

Better fix
----------
Print the size on each device, and allocate only the part that it needs.
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
    Sign,
)

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.BACKEND,
    severity=Severity.INFO,
    concepts=("placement", "several devices"),
    affects=Affects(backends=("CUDA", "ROCm"), flags=("-sm",)),
    signs=(Sign(notice="meta_backend"),),
    reporters=2,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#23937", "ggml-org/llama.cpp#26208"),
        builds="b9441",
        hardware="four devices with 96 GB in all",
        command="-sm tensor",
    ),
    related=("fit-skips-tensor-split",),
)


def detect(facts: Facts) -> Iterator[Found]:
    if facts.launch.params.split_mode == "tensor":
        yield Found(
            because="-sm tensor: no line of the log says what each device takes", flag="-sm"
        )
