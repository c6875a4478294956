"""The command names a device or buffer type that this engine does not have: it ends at once

Symptom
-------
`error while handling argument "-dev": invalid device: CUDA0`, or `error while handling argument
"-ot": unknown buffer type` with a list of the known ones. Exit status 1. Often the command comes
from a machine with another backend, or the container was not given the card.

Root cause
----------
Device names depend on the backends that the engine finds at its start: `Vulkan0` in a Vulkan build,
`CUDA0` in a CUDA build, and none if the driver shows no card. `-ot` takes the names of their buffer
types, letter by letter.

Workaround
----------
Run `llama-server --list-devices` to see the devices. Without the flag, the engine uses all of them.

Better fix
----------
List the known devices in the error of `-dev`, as `-ot` does for buffer types.
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
    Provenance,
    Reproduction,
    Severity,
    Sign,
    Signature,
)
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("devices", "placement"),
    affects=Affects(flags=("-dev", "-ot")),
    log=(
        'error while handling argument "-dev": invalid device',
        'error while handling argument "-ot": unknown buffer type',
    ),
    signs=(Sign(text=r"invalid device: |unknown buffer type", sure=True),),
    provenance=Provenance(builds="seen on 10068, 10092 and 10434", command="-ot exps=CUDA0"),
)


def detect(facts: Facts) -> Iterator[Found]:
    command, launch = facts.command, facts.launch
    named = launch.params.devices or ()
    buffers = [buffer for _, buffer in launch.overrides]
    remote = bool(launch.workers)

    def missing(names: tuple[str, ...] | list[str], *, exact: bool) -> list[str]:
        given = [n for n in names if not (n.startswith("CPU") or (remote and n.startswith("RPC")))]
        if not given:
            return []
        there = [device.name for device in facts.devices]
        if exact:  # buffer types of one device begin with its name
            return [n for n in given if not any(n.startswith(device) for device in there)]
        return [n for n in given if n.lower() not in {device.lower() for device in there}]

    for flag, names in (
        ("-dev", missing(named, exact=False)),
        ("-ot", missing(buffers, exact=True)),
    ):
        if not names:
            continue
        there = ", ".join(device.name for device in facts.devices) or "none"
        yield Found(
            because=f"{flag} names {names[0]}; this engine's devices: {there}",
            edit=(Edit(flag=flag),) if command.count(flag) == 1 else (),
            flag=flag,
        )


def _refused(flag: str, value: str, log: str) -> Reproduction:
    run = EngineRun(flags=f"-c 512 --no-warmup {flag} {value}")
    return Reproduction(
        name=flag.lstrip("-"),
        model=tiny("llama"),
        run=run,
        control=replace(run, flags="-c 512 --no-warmup"),
        shows=Signature(exit_status=1, log=log),
    )


REPRODUCTIONS = (
    _refused("-dev", "CUDA9", r"invalid device: CUDA9"),
    _refused("-ot", "ffn=CUDA9", r"unknown buffer type"),
)
