"""`-ts` counts workers first, and a device without a value gets nothing: the local card stays empty

Symptom
-------
With `--rpc` and as many values in `-ts` as there are workers, this machine's own card holds no
layer, no KV cache and no compute buffer. The workers hold everything, and the one that was planned
to hold less runs out of memory. The log nevertheless lists the card among the devices in use.

Root cause
----------
The values of `-ts` go to the devices in the order in which the engine spreads a model: first the
workers' devices, in the order of `--rpc`, then those of this machine. A device without a value gets
the share 0, and no message says so. The CPU is not in that list: on a machine without a card all
values are for workers, and only the layers that `-ngl` leaves out stay here.

Workaround
----------
Add one more value at the end, for the local card. `-dev RPC0,RPC1,Vulkan0` sets the order
explicitly; `--list-devices` with the same `--rpc` shows the names.

Better fix
----------
Warn when there are more devices than values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.base.words import TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    STEADY,
    Affects,
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
    affects=Affects(backends=("RPC",), flags=("--rpc", "-ts")),
    log=("output buffer size", "model buffer size"),
    reporters=1,
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#21006", "ggml-org/llama.cpp#11655"),
        builds="b8487 good, b8492 bad; seen on 10068, 10092 and 10434",
        hardware="AI Max+ 395, Vulkan and RPC",
        command="--rpc A:50001 --rpc B:50001 --tensor-split 1,1,1",
    ),
    related=("rpc-main-device", "rpc-worker-unused"),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    shares, remote = params.tensor_split, remote_count(facts)
    if not endpoints(facts) or not any(shares) or params.devices is not None:
        return
    if params.split_mode == "none" or params.n_gpu_layers == 0:
        return
    without = local_devices(facts)[max(0, len(shares) - remote) :]
    if without:
        each = f"{sum(shares) / len(shares):g}"
        value = ",".join([f"{share:g}" for share in shares] + [each] * len(without))
        yield Found(
            because=f"{facts.typed('-ts')} has {_count(len(shares), 'value')}, and"
            f" {_count(remote, 'device')} of workers come first: {', '.join(without)} gets nothing",
            edit=(Edit(flag="-ts", value=value),),
            flag="-ts",
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_RUN = EngineRun(
    flags="-c 1024 -np 1 -ngl 99 --no-warmup --rpc {workers} -ts 1,1",
    env=STEADY | {"GGML_VK_VISIBLE_DEVICES": "0"},
    workers=(Worker(), Worker()),
)

REPRODUCTIONS = (
    Reproduction(
        name="two-workers",
        model=tiny("llama", layers=8, name="eight-layers"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_RUN.flags},1"),
        # The last device has the output layer, and its results are kept beside it.
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"\bCPU +output buffer size"),
        needs=(Needs.VULKAN, Needs.RPC_SERVER),
    ),
)
