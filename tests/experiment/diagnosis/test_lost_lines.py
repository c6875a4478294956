"""A log that lost the line that names the buffer: what a diagnosis still may say."""

from __future__ import annotations

import msgspec
import pytest

from arriero.base.words import Component, Evidence, Kind, Method
from arriero.command import Command
from arriero.experiment.diagnosis.evidence import with_component
from arriero.logs import read_log
from arriero.logs.model import Failure
from arriero.record import Plan, PlanBuffer
from tests.examples import example_trials
from tests.experiment.diagnosis.world import Knowing, Server, World, diagnose
from tests.report import plans

RS = 4_215_275_520
LOST = f"""\
load_tensors:   CPU_Mapped model buffer size =   265.14 MiB
llama_kv_cache:        CPU KV buffer size =    80.00 MiB
ggml_aligned_malloc: insufficient memory (attempted to allocate 4020.00 MB)
ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size {RS}
alloc_tensor_range: failed to allocate CPU buffer of size {RS}
"""
NAMED = LOST + "llama_init_from_model: failed to allocate buffer for rs cache\n"


def failure_in(log: str) -> Failure:
    (reading,) = read_log([log.encode()])
    assert reading.failure is not None
    return reading.failure


def plan_with(*buffers: tuple[str, str, int, str]) -> Plan:
    """A plan of these buffers: component, device, bytes, method."""
    return msgspec.structs.replace(
        plans.example(),
        buffers=tuple(
            PlanBuffer(component=Component(c), device=d, bytes=n, method=Method(m))
            for c, d, n, m in buffers
        ),
    )


KV = ("kv", "CPU", 83_886_080, "exact")


@pytest.mark.parametrize(
    ("buffers", "component"),
    [
        ([KV, ("rs", "CPU", RS, "exact")], "rs"),
        ([KV, ("rs", "CPU", RS + 4096, "exact")], None),
        ([KV, ("rs", "CPU", RS, "estimated")], None),
        ([KV, ("rs", "CUDA0", RS, "exact")], None),
        ([KV, ("rs", "CPU", RS, "exact"), ("compute", "CPU", RS, "measured")], None),
    ],
)
def test_a_plan_names_what_it_has_once_and_exactly(
    buffers: list[tuple[str, str, int, str]], component: str | None
) -> None:
    found = with_component(failure_in(LOST), (), plan_with(*buffers))
    assert found.component == component
    assert found.evidence is Evidence.INFERRED


def test_a_plan_never_overrules_the_engine_and_never_agrees_with_a_guess() -> None:
    named = failure_in(NAMED)
    wrong = plan_with(("compute", "CPU", RS, "exact"))
    assert with_component(named, (), wrong) is named
    inferred = msgspec.structs.replace(failure_in(LOST), component=Component.RS)
    assert with_component(inferred, (), wrong).component is None


def test_another_run_names_the_same_bytes() -> None:
    lost, named = failure_in(LOST), failure_in(NAMED)
    other = msgspec.structs.replace(example_trials()[1], failure=named)
    assert with_component(lost, [other], None).component == Component.RS
    more = msgspec.structs.replace(named, bytes=RS + 32)
    other = msgspec.structs.replace(example_trials()[1], failure=more, secondary=())
    assert with_component(lost, [other], None).component is None


class Planning(Knowing):
    """A forecast that has one plan for every command."""

    def __init__(self, planned: Plan | None) -> None:
        super().__init__(Server())
        self.planned = planned

    def plan(self, command: Command, asked: bool) -> Plan | None:
        return self.planned


@pytest.mark.parametrize("launches", [2, 3])
@pytest.mark.parametrize(
    ("planned", "component"),
    [
        (plan_with(KV, ("rs", "CPU", RS, "exact")), Component.RS),
        (plan_with(KV), None),
        (None, None),
    ],
)
def test_a_verdict_without_the_naming_line_in_any_run(
    planned: Plan | None, component: Component | None, launches: int
) -> None:
    world = World(Server(rs=RS // 64), unnamed=lambda n: True)
    found = diagnose(world, "-c 4096 -np 64", Planning(planned), max_launches=launches)
    assert found.launches == launches, "the small start, and as given: twice, if that may be"
    assert found.verdict is not None
    assert (found.verdict.kind, found.verdict.bytes) == (Kind.ALLOCATION, RS)
    assert found.verdict.component is component
    assert found.verdict.failure.evidence is Evidence.INFERRED
