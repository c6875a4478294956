"""Metrics for Prometheus: one table of what Arriero measures itself, and the engine's behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from arriero.base.words import ServerState
from arriero.record import Incident, Status

Sample = tuple[tuple[str, ...], float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric: its name without ``arriero_``, what it is, its labels, and its samples.

    A counter's name gets ``_total`` where it is shown. A sample without a value is left out.
    """

    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Status], Iterable[Sample]]

    @property
    def shown(self) -> str:
        """The name as Prometheus sees it."""
        return f"arriero_{self.name}" + ("_total" if self.kind is CounterMetricFamily else "")


def _one(value: Callable[[Status], float | None]) -> Callable[[Status], Iterable[Sample]]:
    return lambda status: [((), value(status))]


def _states(status: Status) -> Iterator[Sample]:
    for state in ServerState:
        yield (state.value,), float(state is status.state)


def _outcomes(status: Status) -> Iterator[Sample]:
    for outcome in ("answered", "refused", "error_events", "cancelled", "lost"):
        yield (outcome,), getattr(status.requests, outcome)


def _tokens(status: Status) -> Iterator[Sample]:
    for kind in ("prompt", "reused", "predicted"):
        yield (kind,), getattr(status.tokens, kind)


def _memory(field: str) -> Callable[[Status], Iterable[Sample]]:
    return lambda status: [((one.pool,), getattr(one, field)) for one in status.memory]


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily
MEASURES: Final = (
    Measure(
        "build_info",
        _GAUGE,
        "Always 1; says which Arriero and which build of the engine",
        ("version", "engine_build"),
        lambda s: [((s.version, "" if s.engine.build is None else str(s.engine.build)), 1.0)],
    ),
    Measure("state", _GAUGE, "1 for the state that the server is in", ("state",), _states),
    Measure("up_seconds", _GAUGE, "Since the server listens", (), _one(lambda s: s.up_s)),
    Measure(
        "engine_ready_seconds",
        _GAUGE,
        "From the engine's last start to the first completion that it answered",
        (),
        _one(lambda s: s.engine.ready_s),
    ),
    Measure(
        "engine_restarts",
        _COUNTER,
        "Starts of the engine after the first one",
        (),
        _one(lambda s: s.engine.restarts),
    ),
    Measure(
        "requests_received",
        _COUNTER,
        "Requests of clients that were received",
        (),
        _one(lambda s: s.requests.received),
    ),
    Measure(
        "requests_ended",
        _COUNTER,
        "Requests that ended, by how: every one received ends in exactly one way",
        ("outcome",),
        _outcomes,
    ),
    Measure(
        "requests_held",
        _COUNTER,
        "Requests that waited for the engine to come back",
        (),
        _one(lambda s: s.requests.held),
    ),
    Measure(
        "requests_replayed",
        _COUNTER,
        "Requests that were sent to the engine again",
        (),
        _one(lambda s: s.requests.replayed),
    ),
    Measure(
        "requests_continued",
        _COUNTER,
        "Broken answers of which the rest was asked for",
        (),
        _one(lambda s: s.requests.continued),
    ),
    Measure(
        "requests_executed_twice",
        _COUNTER,
        "Requests sent again although the engine may have answered them",
        (),
        _one(lambda s: s.requests.executed_twice),
    ),
    Measure(
        "requests_in_flight",
        _GAUGE,
        "Requests received and not ended",
        (),
        _one(lambda s: s.requests.in_flight),
    ),
    Measure(
        "requests_waiting",
        _GAUGE,
        "Of those in flight, the ones that wait for a slot or for the engine",
        (),
        _one(lambda s: s.requests.waiting),
    ),
    Measure(
        "tokens",
        _COUNTER,
        "Tokens over all starts: of prompts read, of prompts reused, predicted",
        ("kind",),
        _tokens,
    ),
    Measure(
        "slots",
        _GAUGE,
        "Slots of the engine, by whether they work",
        ("busy",),
        lambda s: [
            ((word,), sum(one.busy is busy for one in s.slots) if s.slots else None)
            for word, busy in (("true", True), ("false", False))
        ],
    ),
    Measure(
        "context_tokens",
        _GAUGE,
        "Tokens of context that the slots hold",
        (),
        _one(lambda s: sum(one.tokens or 0 for one in s.slots) if s.slots else None),
    ),
    Measure(
        "memory_planned_bytes",
        _GAUGE,
        "What was planned in a pool at the start",
        ("pool",),
        _memory("planned"),
    ),
    Measure(
        "memory_most_bytes",
        _GAUGE,
        "What was planned in a pool at most, with what grows while serving",
        ("pool",),
        _memory("most"),
    ),
    Measure(
        "memory_actual_bytes",
        _GAUGE,
        "What the engine takes of a pool",
        ("pool",),
        _memory("actual"),
    ),
    Measure("memory_free_bytes", _GAUGE, "What is free of a pool", ("pool",), _memory("free")),
    Measure("memory_total_bytes", _GAUGE, "The size of a pool", ("pool",), _memory("total")),
)
INCIDENTS: Final = "arriero_incidents_total"
DOWN: Final = "arriero_down_seconds_total"
_HELP: Final = {
    INCIDENTS: "Losses of the engine, by the kind of failure",
    DOWN: "Seconds in which the engine could not answer because it was lost",
}


def documented() -> dict[str, str]:
    """Every metric of Arriero's own as Prometheus sees it → what it says."""
    return {**{one.shown: one.help for one in MEASURES}, **_HELP}


class Metrics(Collector):
    """The metrics of one server.

    Incidents that are no longer listed stay counted.
    """

    def __init__(self) -> None:
        self._status: Status | None = None
        self._kinds: dict[str, int] = {}
        self._seen: frozenset[str] = frozenset()
        self._down: dict[str, float] = {}
        self._down_before = 0.0
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self, status: Status, incidents: Iterable[Incident], engine: str = "") -> bytes:
        """All of them in Prometheus' text format; ``engine`` has the engine's own, if any."""
        self._status = status
        self._tally(incidents)
        return generate_latest(self._registry) + engine.encode()

    def collect(self) -> Iterator[Metric]:
        """What ``prometheus_client`` calls."""
        status = self._status
        if status is None:
            return
        for measure in MEASURES:
            family = measure.kind(f"arriero_{measure.name}", measure.help, labels=measure.labels)
            for labels, value in measure.samples(status):
                if value is not None:
                    family.add_metric(labels, value)
            yield family
        kinds = CounterMetricFamily(
            INCIDENTS.removesuffix("_total"), _HELP[INCIDENTS], None, ["kind"]
        )
        for kind, count in sorted(self._kinds.items()):
            kinds.add_metric([kind], count)
        yield kinds
        down = self._down_before + sum(self._down.values())
        yield CounterMetricFamily(DOWN.removesuffix("_total"), _HELP[DOWN], down)

    def _tally(self, incidents: Iterable[Incident]) -> None:
        listed = {one.id: one for one in incidents}
        for id_ in listed.keys() - self._seen:
            kind = listed[id_].verdict.kind.value
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._seen = frozenset(listed)
        self._down_before += sum(self._down.pop(id_) for id_ in self._down.keys() - listed.keys())
        self._down.update({id_: one.down_s or 0.0 for id_, one in listed.items()})
