"""`-sm none` with workers uses a worker: `-mg` counts workers first, so 0 is a worker

Symptom
-------
`-sm none` was meant to keep the model on the local card. With `--rpc` in the same command, all
layers and the KV cache go to the first worker over the network, and the card stays empty.

Root cause
----------
`-sm none` uses one device, the one with the number `-mg`, which is 0 by default. In that list the
workers' devices come first. (Without `-sm none`, `-mg` places nothing.)

Workaround
----------
Name the device: `-dev Vulkan0` or `-dev CUDA0`. Or leave `--rpc` out.

Better fix
----------
Use the first device of this machine if `-mg` is not given.
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
    affects=Affects(backends=("RPC",), flags=("--rpc", "-sm", "-mg")),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434", command="--rpc 127.0.0.1:50052 -sm none -ngl 99"
    ),
    related=("rpc-split-skips-local",),
)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if params.split_mode != "none" or not endpoints(facts) or params.devices is not None:
        return
    main = params.main_gpu
    if params.n_gpu_layers == 0 or not 0 <= main < remote_count(facts):
        return
    local = local_devices(facts)
    if not local:
        return
    given = f"-mg {main}" if facts.command.has("-mg") else "-mg 0 (the default)"
    edits: tuple[Edit, ...] = (Edit(flag="-dev", value=local[min(main, len(local) - 1)]),)
    if main:
        edits += (Edit(flag="-mg", value="0"),)
    yield Found(
        because=f"-sm none uses one device, and {given} is a worker's: workers come before"
        f" {local[0]}",
        edit=edits,
        flag="-sm",
    )


_FLAGS = "-c 512 -np 1 -ngl 99 --no-warmup --rpc {workers} -sm none"
_RUN = EngineRun(flags=_FLAGS, env=STEADY | {"GGML_VK_VISIBLE_DEVICES": "0"}, workers=(Worker(),))

REPRODUCTIONS = (
    Reproduction(
        name="first-is-a-worker",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags=f"{_FLAGS} -dev Vulkan0"),
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"RPC\d+\[.*\] KV buffer size"),
        needs=(Needs.VULKAN, Needs.RPC_SERVER),
    ),
)
