"""The devices cannot do the requested split mode: the model is not loaded

Symptom
-------
`device Vulkan0 does not support split buffers` (`-sm row`), `LLAMA_SPLIT_MODE_TENSOR needs >= 1
devices` (`-sm tensor`), or `invalid value for main_gpu: 3 (available devices: 1)` (`-sm none`).
Then `failed to load model`, as if the file were bad; exit status 1.

Root cause
----------
`-sm row` cuts matrices across devices, which few backends can do (CUDA, HIP, SYCL). `-sm tensor`
does the same above the backends and needs a device. `-sm none` uses one device, the one that `-mg`
names; only this mode checks that it exists.

Workaround
----------
Use `-sm layer`, the default: it works with every backend, and without any device.

Better fix
----------
Say so when the flags are read, before the model's file gets the blame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
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
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.BACKEND,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("devices", "split mode"),
    affects=Affects(backends=("Vulkan", "CPU"), flags=("-sm", "-mg")),
    log=(
        "does not support split buffers",
        "LLAMA_SPLIT_MODE_TENSOR needs >= 1 devices",
        "invalid value for main_gpu",
    ),
    provenance=Provenance(builds="seen on 10434", command="-sm row on Vulkan"),
    related=("device-unknown",),
)
_LAYER = (Edit(flag="-sm", value="layer"),)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    mode = params.split_mode
    if mode == "layer" or facts.launch.workers:
        return
    names = params.devices or tuple(device.name for device in facts.devices)
    if params.devices == ():  # -dev none
        names = ()
    if mode == "tensor" and not names:
        yield Found(because="-sm tensor, but there is no device", edit=_LAYER, flag="-sm")
    elif mode == "row" and (vulkan := next((n for n in names if n.startswith("Vulkan")), None)):
        yield Found(because=f"{vulkan} does not support -sm row", edit=_LAYER, flag="-sm")
    elif mode == "none" and names and params.main_gpu >= len(names):
        yield Found(
            because=f"-mg {params.main_gpu} with -sm none, but the last device is {len(names) - 1}",
            edit=(Edit(flag="-mg", value="0"),),
            flag="-mg",
        )


_SHOWN = {"GGML_VK_VISIBLE_DEVICES": "0"}
_FLAGS = "-c 512 -ngl 99 -fit off --no-warmup"
_DEVICE = f"{_FLAGS} -dev Vulkan0"
_ROW = EngineRun(flags=f"{_DEVICE} -sm row", env=_SHOWN)
_MAIN = EngineRun(flags=f"{_DEVICE} -sm none -mg 3", env=_SHOWN)
_TENSOR = EngineRun(flags=f"{_FLAGS} -sm tensor")

REPRODUCTIONS = (
    Reproduction(
        name="row",
        model=tiny("llama"),
        run=_ROW,
        control=replace(_ROW, flags=f"{_DEVICE} -sm layer"),
        shows=Signature(exit_status=1, log=r"does not support split buffers"),
        needs=(Needs.VULKAN,),
    ),
    Reproduction(
        name="main-device",
        model=tiny("llama"),
        run=_MAIN,
        control=replace(_MAIN, flags=f"{_DEVICE} -sm none -mg 0"),
        shows=Signature(exit_status=1, log=r"invalid value for main_gpu"),
        needs=(Needs.VULKAN,),
    ),
    Reproduction(
        name="tensor-without-device",
        model=tiny("llama"),
        run=_TENSOR,
        control=replace(_TENSOR, flags=f"{_FLAGS} -sm layer"),
        shows=Signature(log=r"LLAMA_SPLIT_MODE_TENSOR needs >= 1 devices"),
    ),
)
