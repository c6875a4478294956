"""``arriero status`` and ``arriero incidents``, at a server and in the history."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from arriero.base.redact import Redactor
from arriero.base.words import ServerState
from arriero.store import Store
from tests.cli.running import Place
from tests.report import served
from tests.serve.control.viewing import KEY, Seen, beside


def test_the_status_of_a_server(place: Place) -> None:
    with beside(Seen()) as url:
        said = place.run("status", url)
        read = place.run("status", f"{url}/v1", "--json").document("status")
    assert (said.status, said.err) == (0, "")
    for told in ("READY", "gemma-3-270m.gguf", "1187 answered", "Vulkan0", "-cram 0", "inci-7be1"):
        assert told in said.out
    assert read["requests"]["received"] == 1204


def test_a_server_that_has_given_up_is_a_failure(place: Place) -> None:
    view = Seen(
        now=msgspec.structs.replace(served.status(), state=ServerState.FAILED, why="5 in 10")
    )
    with beside(view) as url:
        said = place.run("status", url)
    assert said.status == 1
    assert "FAILED" in said.out
    assert "5 in 10" in said.out


def test_the_key_is_asked_for_and_given(place: Place) -> None:
    with beside(Seen(), KEY) as url:
        without = place.run("status", url)
        wrong = place.run("status", url, "--api-key", "nope")
        right = place.run("status", url, env={"LLAMA_API_KEY": KEY})
        listed = place.run("incidents", "--url", url, "--api-key", KEY, "--json")
    assert (without.status, wrong.status, right.status) == (2, 2, 0)
    assert "asks for an API key" in without.only_complaint()
    assert "refuses this API key" in wrong.only_complaint()
    assert [one["id"] for one in listed.document("incidents")["incidents"]] == [
        "inci-7be1f29c",
        "inci-0a44d8e1",
    ]


def test_where_nothing_answers(place: Place) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        said = place.run("status", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert said.status == 3
    assert "nothing answers at" in said.only_complaint()
    assert place.run("status", "ftp://127.0.0.1").status == 2


def test_one_incident_of_a_server(place: Place) -> None:
    with beside(Seen()) as url:
        said = place.run("incidents", "inci-7be1f29c", "--url", url)
        none = place.run("incidents", "inci-00000000", "--url", url)
        odd = place.run("incidents", "../status", "--url", url)
    assert said.status == 0
    for told in ("RECOVERED", "started smaller", "SIGABRT", "3632 tokens of context lost", "812"):
        assert told in said.out
    assert "Device memory allocation of size" in said.out
    assert (none.status, odd.status) == (3, 3)
    assert "no incident" in none.only_complaint()


@pytest.fixture
def kept(place: Place) -> Place:
    """A place whose history has two incidents and something else."""
    store = Store(place.home)
    for document in (served.killed(), served.incident(), served.status()):
        store.save(document, Redactor())
    return place


def test_incidents_in_the_history(kept: Place) -> None:
    said = kept.run("incidents")
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == ["incident", "inci-7be1f29c", "inci-0a44d8e1"]
    assert "started again, down 1.6 s" in said.out
    assert len(kept.run("incidents", "-n", "1", "--json").document("incidents")["incidents"]) == 1
    one = kept.run("incidents", "7be1", "--json").document("incident")
    assert one["log"] == list(served.incident().log)
    assert "inci-7be1f29c" in kept.run("history").out
    assert kept.run("history", "7be1").out == kept.run("incidents", "7be1").out


def test_there_is_no_incident(place: Place) -> None:
    assert place.run("incidents").out == "no incidents\n"
    said = place.run("incidents", "7be1")
    assert said.status == 3
    assert "there is no incident 7be1" in said.only_complaint()


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_report_of_an_incident_is_redacted(kept: Place, form: str, tmp_path: Path) -> None:
    said = kept.run("report", "7be1", "--format", form)
    assert said.status == 0
    assert "Device memory allocation of size 1610612736 failed" in said.out
    assert "/home/ana" not in said.out
    assert "started smaller" in said.out
