"""-ngl without a usable device: everything stays on the CPU, but the log says that it moved

Symptom
-------
The server is slow, and the card's memory stays empty. With `-lv 4` the log even says `offloaded
33/33 layers to GPU`, but the buffers are named `CPU`.

Root cause
----------
The engine has a backend for devices but finds no device: no driver, a container without the card,
or a variable such as `GGML_VK_VISIBLE_DEVICES` that hides it. The layers then go to the CPU. The
log line counts what was requested, not what was found.

Workaround
----------
Make sure that `llama-server --list-devices` shows the card. Name the card (`-dev Vulkan0`): then
the server refuses to start without it.

Better fix
----------
A warning when layers are requested but there is no device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from arriero.gguf.presets import tiny
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    STEADY,
    Affects,
    Class,
    EngineRun,
    Found,
    Gotcha,
    Provenance,
    Reproduction,
    Severity,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.FRAMEWORK,
    severity=Severity.WARNING,
    updated="2026-11-30",
    concepts=("devices", "placement"),
    affects=Affects(flags=("-ngl",)),
    log=("layers to GPU",),
    provenance=Provenance(builds="seen on 10068 and 10434", command="-ngl 99 without a device"),
    related=("device-unknown",),
)
_HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GGML_VK_VISIBLE_DEVICES")


def detect(facts: Facts) -> Iterator[Found]:
    command, launch = facts.command, facts.launch
    if launch.layers_open or launch.layers_given == 0 or launch.params.devices is not None:
        return
    if launch.workers or facts.devices:
        return
    hidden = next((f"{n}={command.environ[n]}" for n in _HIDING if n in command.environ), None)
    own = any(name in command.env for name in _HIDING)
    yield Found(
        because=f"{facts.typed('-ngl')}, but the engine finds no device"
        + (f" (with {hidden})" if hidden else ""),
        edit=(Edit(flag="-ngl", value="0"),) if own else (),  # else a device is meant to be there
        flag="-ngl",
    )


_RUN = EngineRun(
    flags="-c 512 -ngl 99 --no-warmup -lv 4", env=STEADY | {"GGML_VK_VISIBLE_DEVICES": "99"}
)

REPRODUCTIONS = (
    Reproduction(
        name="hidden",
        model=tiny("llama"),
        run=_RUN,
        control=replace(_RUN, flags="-c 512 -ngl 0 --no-warmup -lv 4"),
        shows=Signature(log=r"offloaded 5/5 layers to GPU"),
    ),
)
