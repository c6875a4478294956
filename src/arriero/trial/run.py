"""One run of the engine: start, load, watch, end, record.

A trial always ends in one of three ways: ``served`` (it became ready and answered the whole
standard load), ``ready`` (it became ready, then failed the load) or ``failed`` (it never became
ready: refused, crashed, killed, hung or out of time).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp

from arriero.base import limits
from arriero.command import Command
from arriero.engine import Engine
from arriero.launch import Serving, serving_of
from arriero.launch.caches import prompt_cache
from arriero.process import Running, free_port, start
from arriero.record import Trial
from arriero.trial.client import Client, slots_in
from arriero.trial.conclude import Course, conclude
from arriero.trial.load import run_load
from arriero.trial.spec import Bench, TrialSpec
from arriero.trial.watch import Watch

QUIET: Final = {"GGML_NO_BACKTRACE": "1"}
"""Set in every trial: a debugger attached to a dying server takes longer than all the rest."""


def prepare(command: Command, engine: Engine, port: int) -> Command:
    """The command to start: a private loopback port, visible buffer sizes, log on stderr.

    Nothing else changes. The user's log files would be overwritten, so they are left out.
    """
    command = engine.show_sizes(command.with_program(str(engine.path)))
    for flag in ("--log-file", "--log-prompts-dir"):
        if command.has(flag):
            command = command.without(flag)
    return command.with_value("--host", "127.0.0.1").with_value("--port", str(port))


def run_trial(spec: TrialSpec, bench: Bench) -> Trial:
    """Run one trial to its end and leave nothing behind.

    Raises:
        EngineError: The engine could not be executed at all.
        KeyboardInterrupt: The user stopped it; the engine is gone by then.
    """
    return asyncio.run(_run(spec, bench))


async def _run(spec: TrialSpec, bench: Bench) -> Trial:
    command = prepare(spec.command, bench.engine, free_port())
    added = {k: v for k, v in QUIET.items() if k not in command.environ} | dict(spec.env)
    scratch = bench.scratch / f"trial-{spec.n}"
    scratch.mkdir(parents=True, exist_ok=True)
    course, watch = Course(command, added), Watch(bench)
    with start(
        command.exec_argv,
        env=bench.engine.environment({**command.exec_environ, **added}),
        cwd=bench.cwd,
        limit=bench.limit,
        on_line=watch.on_line,
        log_file=scratch / "engine.log",
    ) as running:
        sampling = asyncio.create_task(watch.keep_sampling(running))
        try:
            await _start_and_load(spec, bench, running, course, watch)
        finally:
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling
        course.own_end = running.poll()
        course.memory = running.memory()
        running.stop(0.0 if course.hang else bench.patience.stop_s)
    return conclude(spec, bench, course, watch)


async def _start_and_load(
    spec: TrialSpec, bench: Bench, running: Running, course: Course, watch: Watch
) -> None:
    """Wait until the engine is ready, then put the load on it; ``course`` tells how far it got."""
    course.hang = await watch.until_ready(running)
    if course.hang is not None or running.poll() is not None:
        return
    ready_s = watch.elapsed
    await watch.until_settled(running)
    course.load_s = watch.elapsed
    if (libraries := library_directory(running.pid)) is not None:
        bench.on_libraries(libraries)
    if running.poll() is None:
        course.ready_s = ready_s
        course.hang = await _load(spec, bench, running, course, watch)
    await watch.sample(running)


async def _load(
    spec: TrialSpec, bench: Bench, running: Running, course: Course, watch: Watch
) -> str | None:
    """Put the load on a ready engine. The reason why it counts as hanging, if it does."""
    server = serving_of(course.command, bench.cwd)
    effective = watch.effective()
    n_slots, n_ctx_slot = await _slots(server, effective.n_seq_max, effective.n_ctx_seq)

    async def answered(count: int) -> None:
        watch.requests = count
        await watch.sample(running)

    load = asyncio.create_task(
        run_load(
            server,
            spec.workload,
            course.load,
            n_slots=n_slots,
            n_ctx_slot=n_ctx_slot,
            n_ubatch=effective.n_ubatch or 512,
            signs=watch.signs,
            prompt_cache=prompt_cache(course.command) != 0,
            alive=lambda: running.poll() is None,
            answered=answered,
        )
    )
    try:
        hang = await watch.until_loaded(load, running)
        if hang is not None:
            return hang
        load.result()
    finally:
        load.cancel()
    broken = course.load.broken
    if broken is not None and broken.timed_out:
        return broken.error
    if broken is not None:
        # A process that is about to die needs a moment to say why.
        await asyncio.to_thread(running.wait, 3.0)
    return None


def library_directory(pid: int) -> Path | None:
    """The directory of a running engine's libllama; None if it is static or not on Linux."""
    with suppress(OSError), Path(f"/proc/{pid}/maps").open(encoding="utf-8", errors="replace") as f:
        for line in f.read(1 << 22).splitlines():
            _, _, path = line.partition("/")
            if path.rpartition("/")[2].startswith("libllama.so"):
                return Path(f"/{path}").parent
    return None


async def _slots(server: Serving, n_seq_max: int | None, n_ctx_seq: int | None) -> tuple[int, int]:
    """Slots and context per slot: from the log, else from ``/props``, else one slot of 512."""
    if n_seq_max is None or n_ctx_seq is None:
        with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with Client(server, 10.0) as client:
                _, props = await client.call("GET", "/props")
            count, context = slots_in(props)
            n_seq_max, n_ctx_seq = n_seq_max or count, n_ctx_seq or context
    # another program may answer here, so its numbers are limited to llama.cpp's own bounds
    slots = min(max(n_seq_max or 1, 1), limits.SLOTS)
    return slots, min(max(n_ctx_seq or 512, 1), limits.SLOT_CONTEXT)
