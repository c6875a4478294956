"""Saving a slot's prompt reads its state back from the device, and a failed read aborts the server

Symptom
-------
The first request is answered. A later one with another prompt kills the server with SIGABRT (exit
status 134) right after the log line `prompt_save:  - saving prompt with length N`. With `--rpc` the
last line is often `Remote RPC server crashed or returned malformed response`, although the worker
is alive.

Root cause
----------
When a slot gets another prompt, the server first copies the state of the old one into host memory
for its prompt cache (`-cram`, 8 GiB by default). To copy, it reads each KV tensor through the
backend, and there a failed read is not an error but an assert. Two ways to fail were seen with a
live worker. First, a KV tensor of one layer may be larger than the device's allocation block
(Vulkan: `GGML_VK_SUBALLOCATION_BLOCK_SIZE`, 1 GiB by default). It then has no data, and reading it
ends in `GGML_ASSERT(tensor->data != NULL)`. What counted here was the size of one tensor, not of
the whole buffer: with a tensor of 4 MiB, a block of 3 MiB aborts and one of 5 MiB serves. This
needs no worker; a local Vulkan device does the same. Second, a worker must allocate memory for what
it sends: one that has enough memory to serve, but not for that copy, fails the read. No flag of the
transport matters.

Workaround
----------
Set `-cram 0`: nothing is saved, and a repeated prompt is read again. On Vulkan, a larger
`GGML_VK_SUBALLOCATION_BLOCK_SIZE` or a smaller context keeps each KV tensor within one block. A
lost worker is a different problem: the next request that needs it aborts with or without the cache.

Better fix
----------
Skip the save with a warning if the state cannot be read; ggml-org/llama.cpp#25584 proposes this for
tensors without data.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace

from arriero.base.sizes import GIB, MIB, human
from arriero.base.words import Component, Kind, TrialOutcome
from arriero.gguf import Shape
from arriero.gguf.presets import tiny
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
    Worker,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.BACKEND,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("prompt cache", "RPC", "Vulkan", "KV cache"),
    affects=Affects(backends=("RPC", "Vulkan"), flags=("--rpc", "-cram", "-c")),
    log=(
        "prompt_save:  - saving prompt with length",
        "Remote RPC server crashed or returned malformed response",
        'GGML_ASSERT(tensor->data != NULL && "tensor not allocated")',
    ),
    signs=(
        Sign(text=r"tensor->data != NULL", sure=True),
        Sign(kinds=(Kind.RPC,), components=(Component.PROMPT_CACHE,)),
        Sign(kinds=(Kind.RPC,), text=r"get_tensor"),
    ),
    reporters=3,
    provenance=Provenance(
        issues=(
            "ggml-org/llama.cpp#26529",
            "ggml-org/llama.cpp#26128",
            "ggml-org/llama.cpp#25938",
            "ggml-org/llama.cpp#25584",
        ),
        builds="about b9704 to b10200",
        hardware="three GB10 over RPC (CUDA); two Strix Halo over RPC (Vulkan)",
        command="--rpc A:50052,B:50052 --tensor-split 45,40,15 -ngl 999 -fit off -c 65536",
    ),
)
_BLOCK = "GGML_VK_SUBALLOCATION_BLOCK_SIZE"
_OFF = (Edit(flag="-cram", value="0"),)


def detect(facts: Facts) -> Iterator[Found]:
    params = facts.launch.params
    if facts.launch.cache_ram == 0 or params.n_gpu_layers == 0 or not params.offload_kqv:
        return
    if facts.launch.workers:
        yield Found(
            because=f"{facts.typed('--rpc')} with the prompt cache on (-cram is not 0): from the"
            " second prompt on, the server reads state back from the workers",
            applies=Applies.MAYBE,
            missing=("the workers' free memory and allocation block for such a read",),
            edit=_OFF,
            flag="--rpc",
        )
        return
    block = _block(facts)
    if block is None:
        return
    sizes = (tensor.bytes for tensor in facts.caches if tensor.component is Component.KV)
    largest = max(sizes, default=0)
    if largest > block:
        told = _BLOCK in facts.command.environ
        yield Found(
            because=f"one layer's KV tensor takes {human(largest)} and Vulkan allocates in blocks"
            f" of {human(block)}: reading it ends in an assert",
            applies=Applies.YES if told else Applies.MAYBE,
            missing=() if told else ("the limits of this device's driver",),
            edit=_OFF,
            flag="-c",
        )


def _block(facts: Facts) -> int | None:
    """Bytes of an allocation block of the Vulkan devices in use; None if there are none."""
    given = facts.command.environ.get(_BLOCK, "")
    listed = [device.name for device in facts.devices_or_none or ()]
    named = list(facts.launch.params.devices or ())
    if listed:
        from arriero.memory.placement import chosen_devices

        named = list(chosen_devices(facts.launch.params, listed))
    if not any(name.startswith("Vulkan") for name in named) and not given:
        return None
    return int(given) if given.isdecimal() else GIB


_CUT = {"GGML_VK_VISIBLE_DEVICES": "0", _BLOCK: str(MIB)}
_FLAGS = "-c 32768 -np 1 -ngl 99 --no-warmup"
_LOCAL = EngineRun(flags=f"{_FLAGS} -dev Vulkan0", env=STEADY | _CUT)
_REMOTE = EngineRun(flags=f"{_FLAGS} --rpc {{workers}}", workers=(Worker(env=STEADY | _CUT),))
_SHOWS = Signature(
    outcome=TrialOutcome.READY, exit_status=-signal.SIGABRT, log=r"tensor not allocated"
)

_WIDE = Shape(
    arch="llama", name="wide-kv", layers=1, embedding=32, heads=512, heads_kv=512, head_dim=512,
    feed_forward=32,
)  # fmt: skip
"""512 KiB of keys for each token: the save of a short prompt moves tens of MiB."""
_SHORT = EngineRun(
    flags="-c 256 -b 64 -ub 16 -np 1 -ngl 99 --no-warmup --rpc {workers}",
    workers=(Worker(room=16 * MIB),),
)

REPRODUCTIONS = (
    Reproduction(
        name="vulkan",
        model=tiny("llama"),
        run=_LOCAL,
        control=replace(_LOCAL, flags=f"{_LOCAL.flags} -cram 0"),
        shows=_SHOWS,
        needs=(Needs.VULKAN,),
    ),
    Reproduction(
        name="worker",
        model=tiny("llama"),
        run=_REMOTE,
        control=replace(_REMOTE, flags=f"{_REMOTE.flags} -cram 0"),
        shows=_SHOWS,
        needs=(Needs.VULKAN, Needs.RPC_SERVER),
    ),
    Reproduction(
        name="worker-short-of-memory",
        model=_WIDE,
        run=_SHORT,
        control=replace(_SHORT, flags=f"{_SHORT.flags} -cram 0"),
        shows=Signature(outcome=TrialOutcome.READY, kind=Kind.RPC, exit_status=-signal.SIGABRT),
        needs=(Needs.RPC_SERVER, Needs.ADDRESS_SPACE),
    ),
)
