"""The projector goes to the first device or worker, whatever -dev, -ngl and -mg say

Symptom
-------
Memory is taken on a card that the command excludes, or on a worker: `CLIP using Vulkan0 backend`
with `-dev none`, `CLIP using RPC0[...] backend` with `--rpc`. `--fit` counts the projector for
another device than its own, or for none.

Root cause
----------
`--mmproj` takes the first device that llama.cpp finds. That may be a worker, if this machine has no
device of its own. Builds up to 10435 ignore `-dev`; all builds ignore `-ngl` and `-mg`. `--fit`
adds the projector to the target of the model's device with the same number: with `-dev` that is
another card, and with only a worker it is none, because llama.cpp counts workers after the CPU.

Workaround
----------
Use `--no-mmproj-offload` to keep the projector on the host, where images take longer. Or name
another device with `MTMD_BACKEND_DEVICE=CUDA1` in the environment; newer builds have
`--mmproj-device` for it.

Better fix
----------
Newer builds follow `-dev`; they could follow `-mg` and `-ngl 0` as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from arriero.base.words import TrialOutcome
from arriero.gguf.presets import tiny
from arriero.gguf.projector import Projector
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
from arriero.launch.projector import named_device
from arriero.record import Edit

if TYPE_CHECKING:
    from arriero.gotchas.facts import Facts

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("multimodal", "placement", "workers"),
    affects=Affects(flags=("--mmproj", "-dev", "-mg", "-ngl", "--rpc")),
    log=("CLIP using",),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#15804",
            "ggml-org/llama.cpp#14719",
            "ggml-org/llama.cpp#15061",
        ),
        builds="5648, 6382",
        hardware="several CUDA cards",
        command="-sm none -mg 1 --mmproj gemma-3-12b-mmproj-BF16.gguf",
    ),
    related=("mmproj-image-memory",),
)

_FOLLOWS_SINCE = 10436
_VARIABLE = "MTMD_BACKEND_DEVICE"


def detect(facts: Facts) -> Iterator[Found]:
    launch, params = facts.launch, facts.launch.params
    projector = launch.projector
    if projector is None or not projector.use_gpu or named_device(facts.command):
        return
    follows = facts.build is None or facts.build >= _FOLLOWS_SINCE
    asked = next(iter(params.devices or ()), "")
    main = params.main_gpu
    if params.devices == ():
        yield _to_host("-dev none, but --mmproj still takes the first device", "-dev")
    elif asked and not follows:
        first = next((device.name for device in facts.devices), asked)
        if first != asked:
            yield _to(asked, f"-dev {asked}, but --mmproj goes to {first}", "-dev")
    elif params.split_mode == "none" and main > 0 and not asked:
        names = [device.name for device in facts.devices]
        if main < len(names):
            yield _to(names[main], f"-mg {main}, but --mmproj goes to {names[0]}", "-mg")
    elif launch.workers and not asked:
        if all(device.name.startswith("RPC") for device in facts.devices):
            text = "this machine has no device, so --mmproj goes to the first worker"
            yield _to_host(text, "--rpc")
    elif launch.layers_given == 0 and not asked:
        text = "-ngl 0, but --mmproj still takes the first device, if there is one"
        yield replace(_to_host(text, "-ngl"), severity=Severity.INFO)


def _to_host(because: str, flag: str) -> Found:
    return Found(because=because, edit=(Edit(flag="--mmproj-offload", value="off"),), flag=flag)


def _to(device: str, because: str, flag: str) -> Found:
    return Found(because=because, edit=(Edit(flag=_VARIABLE, value=device, env=True),), flag=flag)


_FLAGS = "-c 512 -np 1 --no-warmup -dev none --mmproj {mmproj}"
_WORKER = EngineRun(flags=f"{_FLAGS} --rpc {{workers}}", workers=(Worker(),), image=64)
_VULKAN = EngineRun(flags=_FLAGS, env={**STEADY, "GGML_VK_VISIBLE_DEVICES": "0"})

REPRODUCTIONS = (
    Reproduction(
        name="worker",
        model=tiny("llama"),
        projector=Projector(),
        run=_WORKER,
        control=replace(_WORKER, flags=f"{_WORKER.flags} --no-mmproj-offload"),
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"CLIP using RPC0\["),
        needs=(Needs.RPC_SERVER,),
    ),
    Reproduction(
        name="vulkan",
        model=tiny("llama"),
        projector=Projector(),
        run=_VULKAN,
        control=replace(_VULKAN, flags=f"{_FLAGS} --no-mmproj-offload"),
        shows=Signature(outcome=TrialOutcome.SERVED, log=r"CLIP using Vulkan0 backend"),
        needs=(Needs.VULKAN,),
    ),
)
