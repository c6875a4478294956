"""One run of the engine: start, load, watch, end, record.

A trial always ends in one of three ways: ``served`` (it became ready and answered the whole
standard load), ``ready`` (it became ready, then failed the load) or ``failed`` (it never became
ready: refused, crashed, killed, hung or out of time). Measuring must not change the result:
readiness is read from the log instead of polled, because each HTTP thread that a poll wakes takes
memory.
"""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import psutil

from arriero.base import limits
from arriero.base.buffers import is_on_host
from arriero.base.redact import Redactor
from arriero.base.sizes import MIB
from arriero.base.words import Evidence, Kind, LimitKind, Phase, TrialOutcome
from arriero.command import Command
from arriero.engine import Engine, compiled_for, is_binary
from arriero.launch import Serving, serving_of
from arriero.launch.caches import prompt_cache
from arriero.logs import LogReader, Sighting
from arriero.logs.model import Buffer, Cpu, Failure, Reading
from arriero.machine import cpu_behind, misfit
from arriero.process import Exit, Limit, MemoryUse, Running, free_port, start
from arriero.record import Peak, Requests, Sample, Speed, Trial
from arriero.trial.load import Client, LoadResult, Reply, Workload, kind_of, run_load, slots_in

QUIET: Final = {"GGML_NO_BACKTRACE": "1"}
"""Set in every trial: a debugger attached to a dying server takes longer than all the rest."""
_SIGKILL: Final = 9
"""``signal.SIGKILL``, which Windows lacks."""
_NO_SPACE_FOR: Final = (
    "Resource temporarily unavailable",
    "failed to map segment from shared object",
    "Cannot allocate memory",
)
"""Messages of a thread or the dynamic loader when nothing more can be mapped."""
LOG_TAIL: Final = 60
MAX_SAMPLES: Final = 240
_TICK: Final = 0.02
_SETTLE: Final = 0.4
"""Seconds without a new thread or mapping after the ready line; a server may still die of one."""
_SETTLE_AT_MOST: Final = 3.0
_STOPPED_FOR: Final = 5.0
"""Seconds a process may be in the stopped state before it counts as hanging."""


@dataclass(frozen=True)
class Patience:
    """How long a trial waits, in seconds.

    ``stall_s`` limits the time in which nothing at all happens while loading: no log line, no CPU
    time, no page read. A large model that is still being read does not hang. ``whole_s`` is for the
    whole trial, from its start to its last answer.
    """

    ready_s: float = 1800.0
    stall_s: float = 60.0
    request_s: float = 120.0
    stop_s: float = 8.0
    whole_s: float = math.inf


@dataclass(frozen=True)
class Bench:
    """Everything that is the same for all trials."""

    engine: Engine
    limit: Limit | None
    scratch: Path
    cwd: Path
    redactor: Redactor
    host_free: int | None = None
    """Bytes free on the host before the first trial; a higher limit gives no more."""
    device_memory: Callable[[], Mapping[str, int]] = dict
    patience: Patience = field(default_factory=Patience)
    on_libraries: Callable[[Path], None] = lambda _: None
    """Called with the directory from which libllama was loaded, even by a wrapper script."""


@dataclass(frozen=True)
class TrialSpec:
    """The purpose of one trial and what it changes.

    ``change`` maps a flag to its values before and after, compared with the command as given.
    """

    n: int
    purpose: str
    command: Command
    change: Mapping[str, tuple[Any, Any]]
    env: Mapping[str, str] = field(default_factory=dict)
    workload: Workload = field(default_factory=Workload)


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
    return asyncio.run(_TrialRun(spec, bench).run())


class _TrialRun:
    def __init__(self, spec: TrialSpec, bench: Bench) -> None:
        self.spec, self.bench = spec, bench
        self.reader = LogReader()
        self.lock = threading.Lock()
        self.lines = 0
        self.tail: list[str] = []
        self.samples: list[Sample] = []
        self.requests = 0
        self.device_peak: dict[str, int] = {}
        self.began = time.monotonic()
        self.interval = 0.25
        self.env: dict[str, str] = {}
        self.load_s: float | None = None

    # The drain thread calls this; everything else runs in the event loop.
    def on_line(self, line: str) -> None:
        with self.lock:
            self.lines += 1
            self.reader.feed(line)
            self.tail.append(line[:600])
            if len(self.tail) > LOG_TAIL:
                del self.tail[0]

    def signs(self) -> Mapping[str, Sighting]:
        with self.lock:
            return dict(self.reader.signs)

    async def run(self) -> Trial:
        spec, bench = self.spec, self.bench
        port = free_port()
        command = prepare(spec.command, bench.engine, port)
        self.env = {k: v for k, v in QUIET.items() if k not in command.environ} | dict(spec.env)
        env = bench.engine.environment({**command.exec_environ, **self.env})
        scratch = bench.scratch / f"trial-{spec.n}"
        scratch.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic()
        with start(
            command.exec_argv,
            env=env,
            cwd=bench.cwd,
            limit=bench.limit,
            on_line=self.on_line,
            log_file=scratch / "engine.log",
        ) as running:
            watcher = asyncio.create_task(self._watch(running))
            try:
                hang = await self._wait_until_ready(running)
                ready_s = None
                result: LoadResult | None = None
                if hang is None and running.poll() is None:
                    ready_s = time.monotonic() - self.began
                    await self._settle(running)
                    self.load_s = time.monotonic() - self.began
                    if (libraries := library_directory(running.pid)) is not None:
                        bench.on_libraries(libraries)
                    if running.poll() is None:
                        result, hang = await self._load(running, command)
                    else:
                        ready_s = None
                    await self._sample(running)
            finally:
                watcher.cancel()
                with suppress(asyncio.CancelledError):
                    await watcher
            own_end = running.poll()
            memory = running.memory()
            exit_ = running.stop(0.0 if hang else bench.patience.stop_s)
        return self._conclude(command, own_end, exit_, memory, ready_s, result, hang)

    async def _watch(self, running: Running) -> None:
        while True:
            await self._sample(running)
            await asyncio.sleep(self.interval)

    async def _sample(self, running: Running) -> None:
        memory = running.memory()
        device = dict(self.bench.device_memory())
        for name, used in device.items():
            self.device_peak[name] = max(self.device_peak.get(name, 0), used)
        self.samples.append(
            Sample(
                at=round(time.monotonic() - self.began, 3),
                address_space=memory.address_space,
                anonymous=memory.anonymous,
                requests=self.requests,
                device=device,
            )
        )
        if len(self.samples) > MAX_SAMPLES:
            del self.samples[1:-1:2]
            self.interval *= 2

    async def _wait_until_ready(self, running: Running) -> str | None:
        """None if it is ready or has ended; otherwise why it counts as hanging."""
        patience = self.bench.patience
        pulse, since = None, time.monotonic()
        stopped_since: float | None = None
        while running.poll() is None:
            with self.lock:
                if self.reader.ready:
                    return None
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            beat = _pulse(running.pid, self.lines)
            if beat != pulse:
                pulse, since = beat, now
            stopped_since = (stopped_since or now) if _is_stopped(running.pid) else None
            if stopped_since is not None and now - stopped_since > _STOPPED_FOR:
                return "the process is stopped (state T)"
            if now - since > patience.stall_s:
                return f"no log line, CPU time or memory change for {patience.stall_s:.0f} s"
            if now - self.began > min(patience.ready_s, patience.whole_s):
                return f"not ready after {now - self.began:.0f} s"
        return None

    async def _settle(self, running: Running) -> None:
        """Wait until the server has started its last threads, or has died of them."""
        began = since = time.monotonic()
        before: object = None
        while running.poll() is None and time.monotonic() - began < _SETTLE_AT_MOST:
            memory = running.memory()
            now = (memory.address_space, memory.threads)
            if now != before:
                before, since = now, time.monotonic()
            elif time.monotonic() - since > _SETTLE:
                break
            await asyncio.sleep(_TICK)
        await self._sample(running)

    async def _load(self, running: Running, command: Command) -> tuple[LoadResult, str | None]:
        server = serving_of(command, self.bench.cwd)
        with self.lock:
            effective = self.reader.effective
        n_slots, n_ctx_slot = await _slots(server, effective.n_seq_max, effective.n_ctx_seq)

        async def answered(count: int) -> None:
            self.requests = count
            await self._sample(running)

        result = LoadResult()
        work = asyncio.create_task(
            run_load(
                server,
                self.spec.workload,
                result,
                n_slots=n_slots,
                n_ctx_slot=n_ctx_slot,
                n_ubatch=effective.n_ubatch or 512,
                signs=self.signs,
                prompt_cache=prompt_cache(command) != 0,
                alive=lambda: running.poll() is None,
                answered=answered,
            )
        )
        stopped_since: float | None = None
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=0.25)
                now = time.monotonic()
                stopped_since = (stopped_since or now) if _is_stopped(running.pid) else None
                if stopped_since is not None and now - stopped_since > _STOPPED_FOR:
                    work.cancel()
                    return result, "the process is stopped (state T)"
                if now - self.began > self.bench.patience.whole_s:
                    work.cancel()
                    return result, f"the load did not finish in {now - self.began:.0f} s"
            work.result()
        finally:
            work.cancel()
        if result.broken is not None and not result.broken.timed_out:
            # A process that is about to die needs a moment to say why.
            await asyncio.to_thread(running.wait, 3.0)
        broken = result.broken
        hang = broken.error if broken is not None and broken.timed_out else None
        return result, hang

    def _conclude(
        self,
        command: Command,
        own_end: Exit | None,
        exit_: Exit,
        memory: MemoryUse,
        ready_s: float | None,
        result: LoadResult | None,
        hang: str | None,
    ) -> Trial:
        status = own_end.status if own_end else None
        with self.lock:
            reading = self.reader.readings(status)[0]
            signs, phase = dict(self.reader.signs), self.reader.phase
        ok = ready_s is not None and result is not None and result.broken is None
        ok = ok and own_end is None and hang is None
        outcome = (
            TrialOutcome.FAILED
            if ready_s is None
            else TrialOutcome.SERVED
            if ok
            else TrialOutcome.READY
        )
        limit = self.bench.limit
        failure = None
        if outcome is not TrialOutcome.SERVED:
            broken = result.broken if result else None
            phase = Phase.SERVING if ready_s is not None else phase
            failure = _name_failure(reading, own_end, hang, broken, self.lines, phase)
        # Failures that the server survived, such as a dropped worker, are still worth telling.
        outlived = None if reading.failure is failure else reading.failure
        secondary = (outlived, *reading.secondary) if outlived else reading.secondary
        if failure is not None:
            failure = _at_the_limit(failure, limit)
            failure = on_this_cpu(failure, self.bench.engine, command)
        peak = Peak(
            address_space=memory.address_space_peak,
            anonymous=max((s.anonymous or 0 for s in self.samples), default=0) or None,
            rss=memory.rss_peak,
            cgroup=memory.cgroup_peak,
            device=self.device_peak,
        )
        redactor = self.bench.redactor
        steps = list(result.steps) if result else []
        return redactor.scrub(
            Trial(
                n=self.spec.n,
                purpose=self.spec.purpose,
                change=dict(self.spec.change),
                argv=command.argv,
                env=self.env,
                outcome=outcome,
                failure=failure,
                secondary=secondary,
                buffers=reading.buffers,
                notices=reading.notices,
                effective=reading.effective,
                ready_s=round(ready_s, 3) if ready_s is not None else None,
                load_s=round(self.load_s, 3) if ready_s is not None and self.load_s else None,
                seconds=round(time.monotonic() - self.began, 3),
                exit_status=status,
                peak=peak,
                headroom=_headroom(limit, self.bench.host_free, peak),
                requests=result.requests if result else Requests(),
                steps=tuple(steps),
                skipped=tuple(result.skipped) if result else (),
                growth_per_request=growth(self.samples),
                checkpoint_bytes=_checkpoint_bytes(signs),
                speed=result.speed if result else Speed(),
                samples=tuple(self.samples),
                valid=True,
                why_invalid=None,
                log_tail=tuple(self.tail),
                on_host=_on_host(reading.buffers, failure),
            )
        )


def _on_host(buffers: Sequence[Buffer], failure: Failure | None) -> tuple[str, ...]:
    devices = {buffer.device for buffer in buffers} | {failure.device if failure else None}
    return tuple(sorted(device for device in devices if device and is_on_host(device)))


def _pulse(pid: int, lines: int) -> object:
    """Something that changes as long as the process does anything."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            cpu = process.cpu_times()
            return (lines, cpu.user, cpu.system, process.memory_info().rss >> 16)
    except psutil.Error:
        return (lines,)


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


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


def growth(samples: list[Sample]) -> int | None:
    """Bytes of RssAnon + VmSwap per request: least squares over the later half of the load.

    The first requests are left out: they fill caches that every server has.
    """
    points = {s.requests: s.anonymous for s in samples if s.requests and s.anonymous}
    points = {x: y for x, y in points.items() if x > max(points) // 3} if points else {}
    if len(points) < 3:
        return None
    mean_x = sum(points) / len(points)
    mean_y = sum(points.values()) / len(points)
    spread = sum((x - mean_x) ** 2 for x in points)
    return round(sum((x - mean_x) * (y - mean_y) for x, y in points.items()) / spread)


def _headroom(limit: Limit | None, host_free: int | None, peak: Peak) -> int | None:
    """Bytes left at the peak, of the limit or of the host's free memory, whichever is less.

    None if the use of the limit (or of the host, without a limit) is unknown.
    """
    known = host_free is not None and peak.anonymous is not None
    of_host = (host_free or 0) - (peak.anonymous or 0) if known else None
    if limit is None:
        return of_host
    used = peak.address_space if limit.kind is LimitKind.ADDRESS_SPACE else peak.cgroup
    if used is None:
        return None
    left = limit.bytes - used
    return left if of_host is None else min(left, of_host)


def _checkpoint_bytes(signs: Mapping[str, Sighting]) -> int | None:
    sighting = signs.get("checkpoint_created")
    if sighting is None or not sighting.count:
        return None
    _, _, rest = sighting.last_text.rpartition("size = ")
    with suppress(ValueError):
        return round(float(rest.split(" ", 1)[0]) * MIB)
    return None


def _name_failure(
    reading: Reading,
    end: Exit | None,
    hang: str | None,
    broken: Reply | None,
    lines: int,
    phase: Phase | None,
) -> Failure:
    """The failure of a trial: the one in the log, otherwise what was seen from outside."""
    named = reading.failure
    if named is not None and (named.fatal or broken is not None or end is not None):
        return named
    if hang is not None:
        return Failure(
            kind=Kind.HANG, phase=phase, fatal=True, line=lines, text=hang,
            evidence=Evidence.INFERRED,
        )  # fmt: skip
    if end is not None and end.oom_kills:
        return Failure(
            kind=Kind.KILLED, phase=phase, fatal=True, line=lines,
            text="killed by the kernel: the memory cgroup reached its limit",
            evidence=Evidence.INFERRED,
        )  # fmt: skip
    if broken is not None and end is None:
        return Failure(
            kind=kind_of(broken), phase=Phase.SERVING, fatal=False, line=lines, text=broken.error
        )
    status = end.status if end is not None else 0
    text = f"ended with {describe_status(status)} and the log names no cause"
    kind = Kind.KILLED if status == -_SIGKILL else Kind.CRASH if status < 0 else Kind.ENVIRONMENT
    return Failure(
        kind=kind, phase=phase, fatal=True, line=lines, text=text, evidence=Evidence.INFERRED
    )


def _at_the_limit(failure: Failure, limit: Limit | None) -> Failure:
    """Blame the limit if a thread cannot start or a library cannot be mapped: no address space.

    The log alone cannot tell: the same words can mean a limit on the number of processes, or a
    damaged library.
    """
    refused = failure.kind is Kind.ENVIRONMENT and any(t in failure.text for t in _NO_SPACE_FOR)
    if not refused or limit is None or limit.kind is not LimitKind.ADDRESS_SPACE:
        return failure
    return msgspec.structs.replace(
        failure, kind=Kind.RUNTIME_ALLOCATION, component=None, evidence=Evidence.INFERRED,
        not_this=tuple(t for t in failure.not_this if "memory" not in t),
    )  # fmt: skip


def on_this_cpu(failure: Failure, engine: Engine, command: Command) -> Failure:
    """Decide for an illegal instruction whether this CPU lacks the feature that it belongs to.

    Programs also use one to end themselves on purpose. If the CPU has all features for which the
    engine was compiled, it is a crash; if the CPU is unknown, the log's verdict stays.
    """
    if failure.cpu is None:
        return failure
    environ = command.exec_environ
    needs = failure.cpu.needs or compiled_for(engine, environ) or ()
    cpu = cpu_behind(command.wrapper, environ) if is_binary(engine) else None
    if not needs or cpu is None or not cpu.knows(needs):
        return msgspec.structs.replace(failure, cpu=Cpu(needs=needs))
    found = misfit(needs, cpu)
    if found is None:
        return msgspec.structs.replace(failure, kind=Kind.CRASH, cpu=None)
    return msgspec.structs.replace(failure, cpu=Cpu(needs=found.needs, lacks=found.lacks))


def describe_status(status: int) -> str:
    """``exit status 1`` or the name of the signal."""
    if status < 0:
        with suppress(ValueError):
            return signal.Signals(-status).name
    return f"exit status {status}"
