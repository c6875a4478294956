"""Since about b8490 workers get the first values of `-ts`: an old split loads the wrong machine

Symptom
-------
After an update the values of `-ts` are the same, but the layers are elsewhere: none on this machine
and too many on a worker, which dies. The server says `Remote RPC server crashed or returned
malformed response`.

Root cause
----------
The order of the devices decides which device a value of `-ts` belongs to, and
ggml-org/llama.cpp#20908 changed that order. Now the workers' devices come first, in the order of
`--rpc`, and the devices of this machine come last. A report names b8487 as the last build with the
old order and b8492 as one with the new order.

Workaround
----------
Fix the order with `-dev RPC0,RPC1,Vulkan0`: use the names that `--list-devices` shows with the same
`--rpc`, and put the values of `-ts` in that order. Or stay with build 8487.

Better fix
----------
Print each device's share beside its name at the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.gotchas.builds._range import told
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
from arriero.gotchas.rpc._workers import endpoints

GOTCHA = Gotcha(
    updated="2026-12-01",
    kind=Class.FRAMEWORK,
    severity=Severity.INFO,
    concepts=("RPC", "workers", "placement"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-ts", "-dev")),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#21006", "ggml-org/llama.cpp#20908"),
        builds="b8487 good, b8492 bad",
        hardware="AI Max+ 395 with two workers (Vulkan)",
        command="--rpc A --rpc B --tensor-split 1,1,1",
    ),
    related=("rpc-split-skips-local",),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if not endpoints(facts) or not params.tensor_split or params.devices is not None:
        return
    if facts.build is not None and facts.build >= _FIRST:
        yield Found(
            because=f"{facts.typed('-ts')} with --rpc and no -dev: {told(facts)} gives the"
            " first values to the workers",
            applies=Applies.MAYBE,
            missing=("whether the values are meant in that order",),
            flag="-ts",
        )


_FIRST = 8488
