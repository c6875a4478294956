"""Where in its life the server is: begin, dry runs, load, ready, serving, exit."""

from __future__ import annotations

from typing import Final

from arriero.base.words import Phase, Role
from arriero.logs.grammar import Event, Rule, To
from arriero.logs.lines import Line
from arriero.logs.model import EngineTag
from arriero.logs.story.cause import RUNTIME
from arriero.logs.story.process import Process
from arriero.logs.story.start import Start

_ROLES: Final = {To.DRAFT: Role.DRAFT, To.MMPROJ: Role.MMPROJ, To.MAIN: Role.MAIN}
_NO_FEATURES: Final = frozenset(("LLAMAFILE", "ACCELERATE", "OPENMP", "KLEIDIAI", "REPACK", "BLAS"))
"""What ``system_info`` tells beside features of the CPU."""


def features_in(text: str) -> tuple[str, ...]:
    """Features of the CPU that a ``system_info`` line says the engine was compiled with."""
    _, named, of_cpu = text.partition("CPU : ")  # other backends' come before, where any are named
    told = (of_cpu if named else text.partition(" | ")[2]).split(" | ")
    pairs = (item.strip(" |").partition(" = ") for item in told)
    return tuple(name for name, _, value in pairs if value == "1" and name not in _NO_FEATURES)


def begin(process: Process, event: Event, line: Line) -> None:
    """What a process says once in its life."""
    facts, rule = event.facts, event.rule
    if rule in process.start.said or process.start.over:
        process.next_start()
    start = process.start
    start.said.add(rule)
    start.progress(line)
    if rule.to is To.FEATURES:
        start.introduced = True
        start.features = features_in(line.text)
    if "verbosity" in facts:
        start.verbosity = (int(facts["verbosity"]), line)
    if "build" in facts:
        build = int(facts["build"])
        process.engine = EngineTag(
            # built outside of a git checkout, it calls itself 0 or 1
            build=build if build > 1 else None,
            commit=facts["commit"],
            version=facts.get("version"),
        )


def milestone(process: Process, event: Event, line: Line) -> None:
    """Where in its life the server is."""
    rule = event.rule
    if rule.to is To.LOAD and process.start.over:
        process.next_start()
    start = process.start
    if rule.to is To.EXIT:
        start.exited, start.phase = True, Phase.SHUTDOWN
    elif rule.to is To.SLEEP:
        start.sleep()
    elif rule.phase is Phase.SERVING:
        _serves(start, rule, line)
    else:
        _loads(start, rule, line)


def _serves(start: Start, rule: Rule, line: Line) -> None:
    start.serve()
    if rule.to in (To.IDLE, To.RELEASED):
        start.outlive(line)
    elif rule.to is To.READY and line.stamp is None:  # where a clock would tell of a start
        start.ready_line = line.number
    if rule.to in (To.READY, To.IDLE):
        start.ready, start.end = True, None
    start.role = Role.MMPROJ if rule.to is To.IMAGE else start.role
    start.progress(line)


def _loads(start: Start, rule: Rule, line: Line) -> None:
    if rule.to is To.LOAD:
        start.introduced = True
    loads = rule.phase in (Phase.LOAD, Phase.CONTEXT)
    if loads:
        start.load()
    if rule.to in (To.DRY, To.REAL):
        start.dry, start.contexts = rule.to is To.DRY, 0
    if start.probing and loads:
        return
    if rule.to is To.TENSORS:
        start.reading = True
    if rule.to is To.CONTEXT:
        start.contexts += 1
        if start.contexts > 1 and start.role is Role.MAIN:
            start.role = Role.DRAFT
    if rule.to is To.RESERVE:
        start.reserving = True
    if start.phase is not Phase.SERVING:
        start.phase = rule.phase
        if rule.phase is Phase.LOAD and start.role is Role.MMPROJ:
            start.role = Role.MAIN
    start.progress(line)


def fit_begin(process: Process, event: Event, line: Line) -> None:
    """Dry runs measure memory from here on."""
    start = process.start
    start.fit = "probing" if event.rule.to is To.PROBING else start.fit or "announced"
    start.role = Role.MAIN  # the projector and the draft are measured before


def fit_end(process: Process, event: Event, line: Line) -> None:
    """The dry runs are over."""
    start = process.start
    if event.rule.to is To.PROBED:
        start.probed()  # the default verbosity hides where the probe began
    start.note(event.rule.notice, line)
    start.fit = start.end = None
    if start.phase not in RUNTIME:
        start.phase = Phase.LOAD


def role(process: Process, event: Event, line: Line) -> None:
    """Whose lines follow."""
    process.start.role = _ROLES[event.rule.to or To.MAIN]


def notice(process: Process, event: Event, line: Line) -> None:
    """Something worth knowing that is not a failure."""
    start, rule = process.start, event.rule
    if rule.to is To.WORKER:
        start.worker = True
        start.progress(line)
        return
    if rule.to is To.RESTART:
        process.restarted(event, line)
        return
    if rule.to is To.PROBED:
        start.probed()
    if rule.to is To.PINNED and "ErrorOutOf" not in line.text:
        start.pinned_line = line.number  # the next line may say why
    if rule.to is not To.IN_ANY_CASE:
        start.progress(line)
    start.note(rule.notice, line)


def device(process: Process, event: Event, line: Line) -> None:
    """The log names a device."""
    process.know(event.facts["device"])
