"""Status and incidents laid out: on every width, whatever names hold, without what is private."""

from __future__ import annotations

import msgspec
import pytest

from arriero.base.redact import Redactor
from arriero.base.words import Recovery, ReportFormat, ServerState
from arriero.record import Incident, Incidents, Status
from arriero.record.sharing import shared
from arriero.report.formats import layout_of
from arriero.report.terminal import Shown, TerminalLayout
from arriero.report.view.text import cells
from tests.report import served

HOSTILE = "\x1b[31m<b>ana</b>\u202e\n| x | `y`"


def hostile_status() -> Status:
    status = served.status()
    gates = tuple(msgspec.structs.replace(one, change=HOSTILE, why=HOSTILE) for one in status.gates)
    memory = tuple(msgspec.structs.replace(one, pool=HOSTILE) for one in status.memory)
    return msgspec.structs.replace(status, why=HOSTILE, model=HOSTILE, gates=gates, memory=memory)


def hostile_incident() -> Incident:
    verdict = msgspec.structs.replace(served.failure(), text=HOSTILE, device=HOSTILE)
    return msgspec.structs.replace(
        served.incident(), id=HOSTILE, verdict=verdict, change=HOSTILE, why=HOSTILE, log=(HOSTILE,)
    )


SHOWN: dict[str, Shown] = {
    "status": served.status(),
    "bare status": Status(state=ServerState.STARTING),
    "hostile status": hostile_status(),
    "incident": served.incident(),
    "killed": served.killed(),
    "hostile incident": hostile_incident(),
    "incidents": served.incidents(),
    "no incidents": Incidents(incidents=()),
    "hostile incidents": Incidents(incidents=(hostile_incident(),)),
}


@pytest.mark.parametrize("width", [20, 40, 59, 60, 80, 200])
@pytest.mark.parametrize("name", SHOWN)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    text = TerminalLayout(width=width).render(SHOWN[name])
    assert [line for line in text.splitlines() if cells(line) > width] == []
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("state", ServerState)
def test_every_state_is_told(state: ServerState) -> None:
    status = msgspec.structs.replace(served.status(), state=state, why="")
    assert TerminalLayout().render(status).splitlines()[2].startswith(f"{state.value.upper()}  ")


@pytest.mark.parametrize("action", [None, *Recovery])
def test_every_action_is_told(action: Recovery | None) -> None:
    incident = msgspec.structs.replace(served.killed(), action=action, complete=action is not None)
    text = TerminalLayout().render(incident)
    word = {None: "LOST", Recovery.GIVE_UP: "GIVEN UP"}.get(action, "RECOVERED")
    told = {
        None: "being dealt with",
        Recovery.RESTART: "started again, down 1.6 s",
        Recovery.SMALLER: "started smaller",
        Recovery.WITHOUT_WORKER: "started without the worker",
        Recovery.GIVE_UP: "given up",
    }[action]
    assert text.splitlines()[2].startswith(word)
    assert told in " ".join(text.split())


@pytest.mark.parametrize("form", [ReportFormat.MARKDOWN, ReportFormat.HTML])
def test_a_report_has_the_verdict_and_nothing_private(form: ReportFormat) -> None:
    prompt = 'D srv  request: {"prompt": "the blue whale of Ana"}'
    incident = msgspec.structs.replace(
        served.incident(), log=(*served.incident().log, prompt, "/home/ana/notes.txt is missing")
    )
    once = shared(incident, Redactor())
    assert shared(once, Redactor()) == once
    text = layout_of(form).render(once)
    assert "1610612736" in text
    assert "1536.00 MiB" in text
    assert "3632 tokens of context lost" in text
    for private in ("whale", "/home/ana", "notes.txt"):
        assert private not in text


def test_markup_in_a_report_is_text() -> None:
    text = layout_of(ReportFormat.HTML).render(hostile_incident())
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
