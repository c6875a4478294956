"""From what was seen of a trial to its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from arriero.base.buffers import is_on_host
from arriero.base.sizes import MIB
from arriero.base.words import LimitKind, Phase, TrialOutcome
from arriero.command import Command
from arriero.logs import Sighting
from arriero.logs.model import Buffer, Failure, Reading
from arriero.process import Exit, Limit, MemoryUse
from arriero.record import Peak, Sample, Trial
from arriero.trial.failure import at_the_limit, name_failure, on_this_cpu
from arriero.trial.replies import LoadResult
from arriero.trial.spec import Bench, TrialSpec
from arriero.trial.watch import Watch


@dataclass
class Course:
    """How one trial went, as far as it got. Times are seconds since the start."""

    command: Command
    """What was started."""
    env: Mapping[str, str]
    """Variables that the trial adds to it."""
    ready_s: float | None = None
    load_s: float | None = None
    """When the load began."""
    load: LoadResult = field(default_factory=LoadResult)
    hang: str | None = None
    """Why it counts as hanging."""
    own_end: Exit | None = None
    """None if the trial ended it."""
    memory: MemoryUse = field(default_factory=MemoryUse)

    @property
    def outcome(self) -> TrialOutcome:
        if self.ready_s is None:
            return TrialOutcome.FAILED
        held = self.load.broken is None and self.own_end is None and self.hang is None
        return TrialOutcome.SERVED if held else TrialOutcome.READY


def conclude(spec: TrialSpec, bench: Bench, course: Course, watch: Watch) -> Trial:
    """The record of a trial whose engine has ended, without secrets."""
    status = course.own_end.status if course.own_end else None
    reading, phase = watch.read(status)
    failure, secondary = _failures(bench, course, reading, phase, watch.lines)
    peak = _peak(course.memory, watch)
    load, ready_s, load_s = course.load, course.ready_s, course.load_s
    return bench.redactor.scrub(
        Trial(
            n=spec.n,
            purpose=spec.purpose,
            change=dict(spec.change),
            argv=course.command.argv,
            env=dict(course.env),
            outcome=course.outcome,
            failure=failure,
            secondary=secondary,
            buffers=reading.buffers,
            notices=reading.notices,
            effective=reading.effective,
            ready_s=round(ready_s, 3) if ready_s is not None else None,
            load_s=round(load_s, 3) if ready_s is not None and load_s else None,
            seconds=round(watch.elapsed, 3),
            exit_status=status,
            peak=peak,
            headroom=headroom(bench.limit, bench.host_free, peak),
            requests=load.requests,
            steps=tuple(load.steps),
            skipped=tuple(load.skipped),
            growth_per_request=growth(watch.samples),
            checkpoint_bytes=_checkpoint_bytes(watch.signs()),
            speed=load.speed,
            samples=tuple(watch.samples),
            valid=True,
            why_invalid=None,
            log_tail=tuple(watch.tail),
            on_host=_on_host(reading.buffers, failure),
        )
    )


def _failures(
    bench: Bench, course: Course, reading: Reading, phase: Phase | None, lines: int
) -> tuple[Failure | None, tuple[Failure, ...]]:
    """What ended the trial, and the failures that the server survived."""
    failure = None
    if course.outcome is not TrialOutcome.SERVED:
        phase = Phase.SERVING if course.ready_s is not None else phase
        failure = name_failure(
            reading, course.own_end, course.hang, course.load.broken, lines, phase
        )
    # Failures that the server survived, such as a dropped worker, are still worth telling.
    outlived = None if reading.failure is failure else reading.failure
    secondary = (outlived, *reading.secondary) if outlived else reading.secondary
    if failure is not None:
        failure = at_the_limit(failure, bench.limit)
        failure = on_this_cpu(failure, bench.engine, course.command)
    return failure, secondary


def _peak(memory: MemoryUse, watch: Watch) -> Peak:
    return Peak(
        address_space=memory.address_space_peak,
        anonymous=max((s.anonymous or 0 for s in watch.samples), default=0) or None,
        rss=memory.rss_peak,
        cgroup=memory.cgroup_peak,
        device=watch.device_peak,
    )


def _on_host(buffers: Sequence[Buffer], failure: Failure | None) -> tuple[str, ...]:
    devices = {buffer.device for buffer in buffers} | {failure.device if failure else None}
    return tuple(sorted(device for device in devices if device and is_on_host(device)))


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


def headroom(limit: Limit | None, host_free: int | None, peak: Peak) -> int | None:
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
