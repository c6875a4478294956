"""`-ts` has more values than there are devices: the last values are ignored

Symptom
-------
`-ts 45,40,15` with two workers was meant to leave 15 of 100 to this machine, but the workers hold
everything, as 45 to 40. They need more memory than planned, and no line of the log says that a
value was ignored.

Root cause
----------
Each value belongs to a device. The CPU is not a device, so on a machine without a card there are
only the workers. The engine reads as many values as there are devices and takes their sum as the
whole. Only `-ngl` decides what stays on the CPU.

Workaround
----------
Give as many values as there are devices; `--list-devices` with the same `--rpc` shows them. To give
this machine a share without a card, lower `-ngl`, or start a `ggml-rpc-server` on it and name that
too.

Better fix
----------
Warn when values are left over.
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
    params = facts.launch.params
    shares, remote = params.tensor_split, remote_count(facts)
    while shares and not shares[-1]:
        shares = shares[:-1]
    if len(shares) < 2 or params.devices is not None:
        return
    if params.split_mode == "none" or params.n_gpu_layers == 0:
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
        because=f"{facts.typed('-ts')} has {len(shares)} values for {devices}"
        f" device{'s' * (devices > 1)}{of}: {lost} is ignored, the split is {kept}",
        applies=Applies.YES if asked else Applies.MAYBE,
        missing=() if asked else ("how many devices each worker has (--probe asks them)",),
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
