"""`-ot` needs a worker's buffer type, `RPC0[host:port]`; `-dev` and the device list say `RPC0`

Symptom
-------
`error while handling argument "-ot": unknown buffer type`, exit status 1, although `--list-devices`
shows an `RPC0`. `RPC[host:port]`, as in commands of 2025, is refused too.

Root cause
----------
`-ot` takes the name of a buffer type, letter by letter. For a worker it consists of `RPC`, the
number of the device on that worker, and the endpoint in brackets. The device list instead counts
over all workers. So the second of two workers with one device each is `RPC1` for `-dev` and
`RPC0[host:port]` for `-ot`.

Workaround
----------
Use a buffer type from the list that the engine prints on standard output when it refuses the flag.

Better fix
----------
Accept device names in `-ot` as well.
"""

from __future__ import annotations

import re
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
    Worker,
)
from arriero.gotchas.rpc._workers import endpoints
from arriero.record import Edit

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.ERROR,
    updated="2026-11-30",
    concepts=("RPC", "workers", "placement"),
    affects=Affects(backends=("RPC",), flags=("--rpc", "-ot")),
    log=('error while handling argument "-ot": unknown buffer type',),
    provenance=Provenance(
        issues=("ggml-org/llama.cpp#11397",),
        builds="the name without a number in early 2025; refused on 10068, 10092 and 10434",
        command=r"--rpc A:50050 -ot 'exps=RPC0'",
    ),
    related=("device-unknown",),
)
_BUFFER = re.compile(r"RPC\d+\[.+\]\Z")
_DEVICE = re.compile(r"=RPC(?:(\d+)|\[([^\]]+)\])(?=,|\Z)")


def detect(facts: Facts) -> Iterator[Found]:
    workers = endpoints(facts)
    if not workers:
        return
    buffers = [buffer for _, buffer in facts.launch.overrides]
    wrong = [b for b in buffers if b.startswith("RPC") and not _BUFFER.match(b)]
    if wrong:
        yield Found(
            because=f"-ot names {wrong[0]}; buffer types of the workers are"
            f" {', '.join(f'RPC0[{worker}]' for worker in workers)}",
            edit=_named(facts, workers),
            flag="-ot",
        )


def _named(facts: Facts, workers: tuple[str, ...]) -> tuple[Edit, ...]:
    """The corrected flag; right if each worker has one device."""

    def buffer(match: re.Match[str]) -> str:
        number, endpoint = match.groups()
        if number is not None and int(number) < len(workers):
            endpoint = workers[int(number)]
        return f"=RPC0[{endpoint}]" if endpoint else match[0]

    value = facts.command.value("-ot") or ""
    changed = _DEVICE.sub(buffer, value)
    if facts.command.count("-ot") > 1 or changed == value:
        return ()
    return (Edit(flag="-ot", value=changed),)


def _refused(name: str, buffer: str) -> Reproduction:
    flags = r"-c 512 -np 1 -ngl 99 --no-warmup --rpc {workers} -ot blk\.0\.="
    run = EngineRun(flags=flags + buffer, workers=(Worker(),))
    return Reproduction(
        name=name,
        model=tiny("llama"),
        run=run,
        control=replace(run, flags=f"{flags}RPC0[{{workers}}]"),
        shows=Signature(exit_status=1, log=r'argument "-ot": unknown buffer type'),
        needs=(Needs.RPC_SERVER,),
    )


REPRODUCTIONS = (_refused("device", "RPC0"), _refused("without-number", "RPC[{workers}]"))
