"""Plans of many shapes: what a report must lay out without breaking or claiming too much.

Most were made by the memory room from headers without weights and then kept, so that what a report
makes of them depends on the report alone. ``python -m tests.report.plans`` makes them anew.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from arriero.base.sizes import GIB
from arriero.base.words import Component, Cost, Method
from arriero.command import Command, builtin_flags, parse_command
from arriero.gguf import Header, MemoryClass, Shape, read_header, write_model
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.machine import Pool
from arriero.memory import Planner, parse_pools
from arriero.record import (
    Advice,
    EngineRecord,
    FrontierPoint,
    HeaderReads,
    ModelRecord,
    Plan,
    PlanBuffer,
    PlanContext,
    PlanNote,
    PlanPool,
)
from arriero.record.older import completed
from tests.examples import ENGINE, MIB, mib
from tests.report.variants import HOSTILE, with_

DENSE = Shape(
    arch="llama",
    name="dense-4b",
    layers=36,
    embedding=3072,
    heads=24,
    heads_kv=8,
    head_dim=128,
    feed_forward=8192,
    vocab=65536,
    context_train=1 << 17,
)
KEPT = Path(__file__).parent / "data" / "plans.json"
HOST_3 = Pool("host", ("host",), 3 * GIB, 3 * GIB - 40 * MIB, "cgroup v2 memory.max 3.00 GiB")


def header_of(shape: Shape) -> Header:
    with tempfile.TemporaryDirectory() as home:
        return read_header(write_model(Path(home) / f"{shape.name}.gguf", shape, weights="zeros"))


def command_of(name: str, args: str) -> Command:
    words = ["llama-server", "-m", f"/home/ana/models/{name}.gguf", *shlex.split(args)]
    return parse_command(words, builtin_flags(), {})


def planned(
    header: Header, name: str, args: str, pools: Sequence[Pool] | str, build: int | None = 10434
) -> Plan:
    if isinstance(pools, str):
        pools = parse_pools(pools)
    command = command_of(name, args)
    model = Path(f"/home/ana/models/{name}.gguf")
    doc = Planner(header, pools, model=model, build=build).plan(command)
    return with_(doc, id="plan-7c01d2", argv=tuple(command.argv))


def advised(
    doc: Plan, header: Header, pools: Sequence[Pool] | str, *changes: tuple[str, str, Cost]
) -> Plan:
    """The plan with the outcome of each change (its name, its arguments, its cost)."""
    name = Path(doc.model.path).stem
    worst = min(doc.pools, key=lambda pool: (pool.headroom or 0) - pool.margin)
    advice: list[Advice] = []
    for change, args, cost in changes:
        then = planned(header, name, args, pools)
        pool = next(p for p in then.pools if p.name == worst.name)
        advice.append(
            Advice(
                change=change,
                cost=cost,
                saves=worst.planned - pool.planned,
                argv=then.argv,
                pool=worst.name,
                headroom=pool.headroom,
                fits=then.fits,
                recommended=then.fits is not False
                and not any(earlier.recommended for earlier in advice),
            )
        )
    return with_(doc, advice=tuple(advice))


def reaching(doc: Plan, header: Header, pools: str) -> Plan:
    """The plan with the largest context for each of some numbers of slots."""
    name = Path(doc.model.path).stem
    points = []
    for slots in (1, 2, 4, 8, 16, 32, 64):
        most, over = None, None
        for tokens in (2**power * slots for power in range(8, 18)):
            then = planned(header, name, f"-c {tokens} -np {slots} -cram 0 -ctxcp 0", pools)
            lacking = [pool for pool in then.pools if pool.is_short]
            if lacking:
                over = lacking[0].name
                break
            most = then
        points.append(
            FrontierPoint(
                n_seq_max=slots,
                kv_unified=False,
                n_ctx=most.context.n_ctx if most and most.context else None,
                n_ctx_seq=most.context.n_ctx_seq if most and most.context else None,
                limited_by=over,
                headroom=next((p.headroom for p in most.pools if p.name == over), None)
                if most
                else None,
            )
        )
    return with_(doc, frontier=tuple(points))


def example() -> Plan:
    """The 27B hybrid that does not fit a card of 24 GiB: figures that a person may have seen."""
    model = "/home/ana/models/27b-hybrid-Q4.gguf"
    argv = ("llama-server", "-m", model, "-c", "131072")
    state = mib(149.63) * 4

    def buffer(
        component: Component, device: str, size: float | None, method: Method, **more: object
    ) -> PlanBuffer:
        taken = None if size is None else mib(size)
        return PlanBuffer(component=component, device=device, bytes=taken, method=method, **more)  # type: ignore[arg-type]  # a table of literals

    buffers = (
        buffer(Component.WEIGHTS, "CUDA0", 15621, Method.EXACT),
        buffer(Component.WEIGHTS, "CPU_Mapped", 682, Method.EXACT),
        buffer(Component.KV, "CUDA0", 8192, Method.EXACT),
        PlanBuffer(component=Component.RS, device="CUDA0", bytes=state, method=Method.EXACT),
        buffer(Component.COMPUTE, "CUDA0", 836, Method.MEASURED),
        buffer(
            Component.POOL,
            "CUDA0",
            None,
            Method.UNKNOWN,
            reason="grows with the longest prompt",
        ),
        buffer(Component.PROMPT_CACHE, "CPU", 8192, Method.EXACT, upper_bound=True),
        PlanBuffer(
            component=Component.CHECKPOINTS,
            device="CPU",
            bytes=state * 32,
            method=Method.EXACT,
            upper_bound=True,
        ),
    )
    card = sum(b.bytes or 0 for b in buffers[:1] + buffers[2:5])
    start = mib(682)
    host = start + mib(8192) + state * 32
    small = ("-c", "98304", "-np", "1")

    def advice(change: str, cost: Cost, left: int, argv: tuple[str, ...], **more: object) -> Advice:
        return Advice(
            change=change,
            cost=cost,
            saves=mib(left) - mib(23755) + card,
            argv=argv,
            pool="CUDA0",
            headroom=mib(left),
            **more,  # type: ignore[arg-type]  # a table of literals
        )

    return completed(
        Plan(
            id="plan-9b1e44",
            model=ModelRecord(
                path=model,
                arch="qwen35",
                name="27b-hybrid",
                memory_class=MemoryClass.HYBRID,
                n_layer=64,
                n_recurrent_layer=48,
                n_ctx_train=262144,
                n_vocab=248320,
                file_bytes=mib(16310),
            ),
            argv=argv,
            context=PlanContext(
                n_ctx=131072,
                n_ctx_seq=131072,
                n_seq_max=4,
                kv_unified=True,
                n_rs_seq=0,
                n_ubatch=512,
                asked=131072,
            ),
            buffers=buffers,
            pools=(
                PlanPool(
                    name="host",
                    devices=("host",),
                    total=mib(31900),
                    free=mib(31169),
                    limited_by="MemAvailable",
                    planned=host,
                    at_start=start,
                    margin=mib(935),
                    headroom=mib(31169) - host,
                    fits=True,
                    starts=True,
                    outgrows=False,
                    surely=start,
                ),
                PlanPool(
                    name="CUDA0",
                    devices=("CUDA0",),
                    total=mib(24124),
                    free=mib(23755),
                    limited_by="memory of NVIDIA GeForce RTX 3090",
                    planned=card,
                    at_start=card,
                    margin=mib(1024),
                    headroom=mib(23755) - card,
                    fits=False,
                    starts=False,
                    surely=card,
                ),
            ),
            fits=False,
            starts=False,
            advice=(
                advice("-np 1", Cost.CONCURRENCY, -1044, (*argv, "-np", "1"), fits=False),
                advice(
                    "-np 1 -c 98304",
                    Cost.CONTEXT,
                    1004,
                    (*argv[:3], *small),
                    fits=None,
                    recommended=True,
                ),
                advice(
                    "-ctk q8_0 -ctv q8_0",
                    Cost.QUALITY,
                    2347,
                    (*argv, "-ctk", "q8_0", "-ctv", "q8_0"),
                    fits=None,
                ),
                Advice(
                    change="-ctxcp 8",
                    cost=Cost.PROMPT_REUSE,
                    saves=state * 24,
                    argv=(*argv[:3], *small, "-ctxcp", "8"),
                    pool="host",
                    headroom=mib(31169) - host + state * 24,
                    fits=None,
                ),
            ),
            notes=(
                PlanNote(
                    id="fit",
                    text="--fit would move layers to the CPU. "
                    "It does not lower -c, because you set it.",
                ),
            ),
            build=10434,
            engine=EngineRecord(
                path=ENGINE,
                found_by="PATH",
                version="version: 0.1.0-dev (build 1, commit 7e4c0a9)",
                build=10434,
                commit="7e4c0a9",
                backends=("CUDA", "CPU"),
            ),
        )
    )


def hostile() -> Plan:
    """Strangers' text in every field that can hold it."""
    full = example()
    return with_(
        full,
        model=with_(full.model, path=HOSTILE, arch=HOSTILE, name=HOSTILE),
        argv=("llama-server", "-m", HOSTILE),
        buffers=tuple(with_(b, device=HOSTILE, reason=HOSTILE, pool=HOSTILE) for b in full.buffers),
        pools=(
            *full.pools,
            with_(
                full.pools[0], name=HOSTILE, devices=(HOSTILE,), limited_by=HOSTILE, note=HOSTILE
            ),
        ),
        advice=tuple(
            with_(a, change=HOSTILE, pool=HOSTILE, argv=("llama-server", HOSTILE))
            for a in full.advice
        ),
        frontier=(
            FrontierPoint(
                n_seq_max=1, kv_unified=False, n_ctx=512, n_ctx_seq=512, limited_by=HOSTILE
            ),
        ),
        notes=(PlanNote(id="drift", text=HOSTILE),),
        engine=with_(full.engine, path=HOSTILE, version=HOSTILE, build=None, commit=HOSTILE),
    )


@cache
def plans() -> dict[str, Plan]:
    """By name: every shape of a plan that a report has to carry."""
    kept = msgspec.json.decode(KEPT.read_bytes(), type=dict[str, Plan])
    fitting = completed(kept["fits"])
    return {
        "example": example(),
        **{name: completed(plan) for name, plan in kept.items()},
        "calibrated": with_(
            fitting,
            buffers=tuple(
                with_(b, method=Method.CALIBRATED, residual=mib(12.5), upper_bound=False)
                if b.component is Component.COMPUTE
                else with_(b, residual=mib(3.25), reason="similar runs took more")
                if b.component is Component.GRAPH
                else b
                for b in fitting.buffers
            ),
            header=HeaderReads(requests=7, bytes=3 * MIB),
        ),
        "no id, no command": with_(fitting, id="", argv=()),
        "hostile": hostile(),
    }


def made() -> dict[str, Plan]:
    """By name: the plans that the memory room makes now."""
    hybrid, dense = header_of(LADDER_HYBRID), header_of(DENSE)
    small = header_of(tiny("llama"))
    stranger = replace(small, metadata={**small.metadata, "general.architecture": "camelid"})
    card = "CUDA0=24GiB,host=64GiB"
    shared = Pool(
        "shared",
        ("host", "Vulkan0"),
        120 * GIB,
        97 * GIB,
        "GTT size (ttm.pages_limit, amdgpu.gttsize)",
    )
    broken = Pool(
        "CUDA0",
        ("CUDA0",),
        24 * GIB,
        31 * GIB,
        "memory of NVIDIA GeForce RTX 4090",
        usable=False,
        note="the driver reports more free (31.00 GiB) than there is",
    )
    host = Pool("host", ("host",), 64 * GIB, 58 * GIB, "MemAvailable")
    workers = tuple(
        Pool(
            f"RPC{n}",
            (f"RPC{n}",),
            16 * GIB,
            16 * GIB,
            "what the worker reports",
            note="a worker on a CPU reports all of its memory as free, whatever is in use",
        )
        for n in range(2)
    )
    ladder = planned(hybrid, "ladder-hybrid", "-c 4096 -np 64", [HOST_3])
    off = "-cram 0 -ctxcp 0"
    return {
        "ladder": advised(
            ladder,
            hybrid,
            [HOST_3],
            (off, f"-c 4096 -np 64 {off}", Cost.PROMPT_REUSE),
            ("-np 16", "-c 4096 -np 16", Cost.CONCURRENCY),
            (f"-np 16 {off}", f"-c 4096 -np 16 {off}", Cost.CONCURRENCY),
        ),
        "card": planned(dense, "dense-4b", "-c 32768 -np 4", card),
        "card, too much": advised(
            planned(dense, "dense-4b", "-c 131072 -np 2 --fit off", card),
            dense,
            card,
            ("-c 65536", "-c 65536 -np 2 --fit off", Cost.CONTEXT),
            (
                "-ctk q8_0 -ctv q8_0",
                "-c 131072 -np 2 --fit off -ctk q8_0 -ctv q8_0",
                Cost.QUALITY,
            ),
        ),
        "moved by fit": planned(dense, "dense-4b", "-c 131072 -np 2", card),
        "two cards": planned(
            dense, "dense-4b", "-c 65536 -np 4 -ts 3,1", "CUDA0=24GiB,CUDA1=12GiB,host=64GiB"
        ),
        "idle card": planned(
            dense, "dense-4b", "-c 8192 -dev CUDA0", "CUDA0=24GiB,CUDA1=12GiB,host=64GiB"
        ),
        "unified": planned(dense, "dense-4b", "-np 8 -c 65536", [shared]),
        "workers": planned(dense, "dense-4b", "-c 16384 -ngl 99", [host, *workers]),
        "unknown architecture": planned(stranger, "camelid", "-c 4096", card),
        "unknown, host only": planned(stranger, "camelid", "-c 4096", [HOST_3]),
        "refused": planned(dense, "dense-4b", "-c 4096 -ctv q8_0 -fa off", card),
        "unusable": planned(dense, "dense-4b", "-c 8192", [host, broken]),
        "host not given": planned(dense, "dense-4b", "-c 8192", "CUDA0=24GiB"),
        "fits": planned(small, "tiny", "-c 4096 -np 1", [host]),
        "grows too much": planned(
            dense, "dense-4b", "-c 8192", [replace(host, total=12 * GIB, free=12 * GIB)]
        ),
        "frontier": reaching(
            planned(hybrid, "ladder-hybrid", f"-c 4096 -np 16 {off}", "host=6GiB"),
            hybrid,
            "host=6GiB",
        ),
    }


if __name__ == "__main__":
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(made()), indent=1) + b"\n")
