"""`-ts` has more values than there are devices: the last ones count for nothing

Symptom
-------
`-ts 45,40,15` with two workers was meant to leave 15 of 100 to this machine, and the workers hold
all of it, as 45 to 40. They need more memory than planned, and no line of the log says that a value
was left out.

Root cause
----------
A value belongs to a device, the CPU is none, and on a machine without a card the workers are all
that there is. As many values as there are devices are read, and their sum counts as the whole.
What stays on the CPU is decided by `-ngl` alone.

Workaround
----------
As many values as devices, which `--list-devices` with the same `--rpc` shows. For a share of this
machine without a card lower `-ngl`, or start a `ggml-rpc-server` on it and name it too.

Better fix
----------
A warning when values are left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    Affects,
    Applies,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Needs,
    Provenance,
    Reproduction,
    Severity,
    Signature,
    Worker,
)
from arriero.gotchas.rpc._workers import endpoints, local_devices, remote_count
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("RPC", "workers", "placement"),
    affects=Affects(flags=("-ts", "--rpc")),
    log=("offloaded", "model buffer size"),
    provenance=Provenance(
        builds="seen on 10434", command="--rpc A:50052,B:50052 --tensor-split 45,40,15 -ngl 999"
    ),
    related=("rpc-split-skips-local",),
)


def detect(facts: Facts) -> Iterator[Found]:
    request = facts.launch.params
    shares, remote = request.tensor_split, remote_count(facts)
    while shares and not shares[-1]:
        shares = shares[:-1]
    if len(shares) < 2 or facts.command.has("-dev"):
        return
    if request.split_mode == "none" or request.n_gpu_layers == 0:
        return
    devices = remote + len(local_devices(facts))
    if not 0 < devices < len(shares):
        return
    asked = not endpoints(facts) or any(
        d.name.startswith("RPC") for d in facts.devices_or_none or ()
    )
    kept = ",".join(f"{share:g}" for share in shares[:devices])
    lost = ",".join(f"{share:g}" for share in shares[devices:])
    of = f" ({remote} of workers, {devices - remote} of this machine)" if remote else ""
    yield Found(
        because=f"-ts {facts.command.value('-ts')} has {len(shares)} values for {devices}"
        f" device{'s' * (devices > 1)}{of}: {lost} counts for nothing, the split is {kept}",
        applies=Applies.YES if asked else Applies.MAYBE,
        missing=() if asked else ("how many devices each worker has: --probe asks them",),
        edit=(Edit(flag="-ts", value=kept),) if asked else (),
        flag="-ts",
    )


_RUN = EngineRun(
    flags="-c 1024 -np 1 -ngl 99 --no-warmup --rpc {workers} -ts 1,1,1,8",
    workers=(Worker(), Worker()),
)

REPRODUCTIONS = (
    Reproduction(
        name="two-workers",
        model=tiny("llama", layers=8, name="eight-layers"),
        run=_RUN,
        control=replace(_RUN, flags="-c 1024 -np 1 -ngl 3 --no-warmup --rpc {workers} -ts 1,1"),
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"offloaded 9/9 layers"),
        needs=(Needs.RPC_SERVER,),
    ),
)
