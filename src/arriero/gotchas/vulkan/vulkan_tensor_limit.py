"""A KV tensor larger than a Vulkan shader can address aborts the server, with memory to spare

Symptom
-------
`pre-allocated tensor (cache_k_l0) in a buffer (Vulkan0) that cannot run the operation (NONE)` and
exit status 134 (SIGABRT) as soon as the context is made; with `--fit` even before the weights are
loaded. A slightly smaller context starts, and the device has memory for several times as much.

Root cause
----------
A device says how many bytes of a buffer one shader may see (`maxStorageBufferRange`): 4 GiB for
most cards, 256 MiB or less for layers over other systems, 128 MiB for the software driver. The
backend refuses operations on larger tensors. The keys or the values of one layer, for all tokens of
all slots, are one tensor. The engine places it before it checks the limit, and a tensor on a device
that cannot use it aborts the program. (128 MiB with lavapipe: 8192 tokens of 16 KiB serve, 256
tokens more abort.)

Workaround
----------
Set a smaller `-c` or a quantised KV cache, or keep the cache in host memory with `-nkvo`. `-fit
off` changes nothing.

Better fix
----------
Place a KV cache that the device cannot use in host memory, with a warning.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import GIB, MIB, human
from arriero.base.words import Component
from arriero.gguf import Shape
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import (
    STEADY,
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
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.BACKEND,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("Vulkan", "KV cache", "limits of a device"),
    affects=Affects(backends=("Vulkan",), flags=("-c", "-np", "-nkvo")),
    log=("pre-allocated tensor (cache_k_l0) in a buffer (Vulkan0) that cannot run the operation",),
    signs=(Sign(text=r"that cannot run the operation", sure=True),),
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#18709", "ggml-org/whisper.cpp#3777"),
        builds="checked since #18709, January 2026; seen on 10068, 10092 and 10434",
        hardware="Dozen (WSL2) and lavapipe, both 128 MiB",
        command="-dev Vulkan0 -ngl 99 -c 8448",
    ),
    related=("rpc-prompt-cache-abort",),
)
_SOFTWARE_LIMIT = 128 * MIB
"""The limit of lavapipe, and the smallest that the standard allows."""
_CARD_LIMIT = 4 * GIB - 1


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if params.n_gpu_layers == 0 or not params.offload_kqv:
        return
    used = _vulkan(facts)
    if not used:
        return
    from arriero.machine.pools import SOFTWARE

    kv = (tensor.bytes for tensor in facts.caches if tensor.component is Component.KV)
    largest = max(kv, default=0)
    listed = {device.name: device.description for device in facts.devices_or_none or ()}
    software = [name for name in used if SOFTWARE.search(listed.get(name, ""))]
    unknown = not all(name in listed for name in used)
    limit = _SOFTWARE_LIMIT if software or unknown else _CARD_LIMIT
    if largest <= limit:
        return
    sure = bool(software)
    yield Found(
        because=f"one layer's KV tensor takes {human(largest)}; shaders of {(software or used)[0]}"
        f" see {'' if sure else 'at least '}{human(limit)} of a buffer",
        applies=Applies.YES if sure else Applies.MAYBE,
        missing=() if sure else ("the device's maxStorageBufferRange (vulkaninfo shows it)",),
        severity=Severity.INFO if unknown and largest <= _CARD_LIMIT else None,
        edit=(Edit(flag="-kvo", value="off"),) if sure else (),
        flag="-c",
    )


def _vulkan(facts: Facts) -> tuple[str, ...]:
    """The Vulkan devices that hold layers."""
    params = facts.launch.params
    if facts.devices_or_none is None:
        names = params.devices or ()
    else:
        from arriero.memory.placement import chosen_devices

        names = chosen_devices(params, [device.name for device in facts.devices_or_none])
    return tuple(name for name in names if name.startswith("Vulkan"))


_WIDE = Shape(
    arch="llama", name="16-kib-of-keys", layers=1, embedding=32, heads=64, heads_kv=64,
    head_dim=128, feed_forward=32, context_train=1 << 20,
)  # fmt: skip
_ENV = STEADY | {"GGML_VK_VISIBLE_DEVICES": "0"}
_RUN = EngineRun(flags="-c 8448 -np 1 -ngl 99 -dev Vulkan0 --no-warmup", env=_ENV)


def _aborts(name: str, run: EngineRun, control: str) -> Reproduction:
    return Reproduction(
        name=name,
        model=_WIDE,
        weights="zeros",
        run=run,
        control=replace(run, flags=control),
        shows=Signature(
            exit_status=-signal.SIGABRT,
            log=r"pre-allocated tensor \(cache_k_l0\) in a buffer \(Vulkan0\)",
        ),
        needs=(Needs.VULKAN,),
    )


REPRODUCTIONS = (
    _aborts("smaller-context", _RUN, _RUN.flags.replace("8448", "8192")),
    _aborts(
        "cache-on-the-host",
        replace(_RUN, flags=f"{_RUN.flags} -fit off"),
        f"{_RUN.flags} -fit off -nkvo",
    ),
)
