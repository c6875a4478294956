"""How a server is doing, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arriero.base.words import ServerState
from arriero.record import Status
from arriero.report.terminal.incident import pool_lines
from arriero.report.terminal.lines import Line, bullet, grid, paragraph, verdict_blocks, wrapped
from arriero.report.view import words as say
from arriero.report.view.incident import pool_row
from arriero.report.view.text import printable
from arriero.report.view.verdict import Tone, VerdictView

_SAID: Final = {
    ServerState.STARTING: (Tone.OPEN, "the engine is loading; requests wait for it"),
    ServerState.READY: (Tone.GOOD, "the engine answers"),
    ServerState.RECOVERING: (Tone.OPEN, "the engine was lost; requests are held until it is back"),
    ServerState.DRAINING: (Tone.OPEN, "ending when what is in flight is answered"),
    ServerState.FAILED: (Tone.BAD, "given up; the engine is not started again"),
}


def lines(doc: Status, width: int) -> list[Line]:
    """State, requests, memory, slots, gates and incidents."""
    tone, sentence = _SAID[doc.state]
    verdict = VerdictView(
        word=doc.state.value.upper(),
        tone=tone,
        sentence="; ".join(filter(None, (sentence, printable(doc.why)))),
    )
    shown = [
        *wrapped(" · ".join(_setting(doc)), width, style="dim"),
        Line(""),
        *(line for block in verdict_blocks(verdict, width) for line in block.lines),
        *(line for fact in _facts(doc) for line in bullet(fact, width)),
    ]
    if doc.memory:
        shown += [Line(""), *pool_lines([*map(pool_row, doc.memory)], width)]
    if doc.slots:
        rows = [
            (
                str(slot.id),
                "working" if slot.busy else "idle",
                "?" if slot.tokens is None else str(slot.tokens),
                "?" if slot.n_ctx is None else str(slot.n_ctx),
            )
            for slot in doc.slots
        ]
        shown += [Line(""), *grid(("slot", "", "tokens", "of"), rows, width, right={0, 2})]
    gates = [f"{printable(gate.change)}: {printable(gate.why)}" for gate in doc.gates]
    if gates:
        shown += [Line(""), Line("GATES", "head")]
        shown += [line for gate in gates for line in bullet(gate, width)]
    if doc.incidents:
        newest = ", ".join(map(printable, doc.incidents[:5]))
        more = len(doc.incidents) - 5
        told = newest + (f" and {more} before" if more > 0 else "")
        shown += [Line(""), *paragraph("INCIDENTS", told, width)]
    return shown


def _setting(doc: Status) -> Iterable[str]:
    yield printable(doc.model) or "no model"
    yield "engine of unknown build" if doc.engine.build is None else f"b{doc.engine.build}"
    yield "no process" if doc.engine.pid is None else f"process {doc.engine.pid}"
    yield f"up {say.duration(doc.up_s)}"


def _facts(doc: Status) -> Iterable[str]:
    one, engine, tokens = doc.requests, doc.engine, doc.tokens
    yield (
        f"{one.received} requests: {one.answered} answered, {one.refused} refused, "
        f"{one.cancelled} cancelled, {one.error_events} ended by an error event, {one.lost} lost, "
        f"{one.in_flight} in flight"
    )
    yield (
        f"{one.held} held, {one.replayed} replayed, {one.continued} continued, "
        f"{one.executed_twice} executed twice"
    )
    ready = "" if engine.ready_s is None else f", ready after {say.duration(engine.ready_s)}"
    yield f"{say.count(engine.restarts, 'restart')}{ready}"
    speeds = [
        f"{name} {value:.1f} tokens/s"
        for name, value in (("prompt", tokens.prompt_tps), ("generation", tokens.predict_tps))
        if value is not None
    ]
    if tokens.reused is not None and tokens.prompt is not None and tokens.prompt + tokens.reused:
        share = 100 * tokens.reused / (tokens.prompt + tokens.reused)
        speeds.append(f"{share:.0f} % of prompts reused")
    if speeds:
        yield ", ".join(speeds)
