"""What is answered under ``/arriero/``, to whom, and what never is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from arriero.base.redact import Redactor
from arriero.record import Incident, Incidents, Status, decode, json_schema
from arriero.serve.control.endpoints import ENDPOINTS, is_ours, openapi, place_of
from arriero.serve.control.handler import Control, Reply
from tests.report import served
from tests.serve.control.viewing import KEY, Seen, Written, request

PATHS = tuple(f"/arriero/{one.path}".replace("{id}", "inci-7be1f29c") for one in ENDPOINTS)
SECRET = "sk-proj-0123456789abcdefghij"


def reply(
    path: str, view: Seen | None = None, *, method: str = "GET", allowed: bool = True
) -> Reply:
    control = Control(view or Seen(), Redactor(secrets=[KEY, SECRET]))
    return asyncio.run(control.reply(method, path, allowed=allowed))


@pytest.mark.parametrize("path", PATHS)
def test_an_endpoint_answers_as_the_table_says(path: str) -> None:
    answer = reply(path)
    place = place_of(path)
    assert place is not None
    assert (answer.status, answer.media) == (200, place.endpoint.media)
    if place.endpoint.document:
        document = json.loads(answer.body)
        assert document["schema"] == f"arriero.{place.endpoint.document}/1"
        jsonschema.validate(document, json_schema(place.endpoint.document))


def test_documents_are_those_of_the_view() -> None:
    view = Seen()
    status = decode(reply("/arriero/status", view).body, "it")
    assert status == view.now
    listed = decode(reply("/arriero/incidents", view).body, "it")
    assert listed == served.incidents()
    one = decode(reply("/arriero/incidents/inci-7be1f29c", view).body, "it")
    assert isinstance(one, Incident)
    assert one == msgspec.structs.replace(served.incident(), log=one.log)
    assert any("failed" in line for line in one.log)


@pytest.mark.parametrize("path", PATHS[1:])
def test_without_the_key_nothing_is_told(path: str) -> None:
    answer = reply(path, allowed=False)
    assert answer.status == 401
    assert (b"www-authenticate", b"Bearer") in answer.headers()
    assert json.loads(answer.body)["error"]["id"] == "key"
    assert b"gemma" not in answer.body


def test_without_the_key_the_page_is_empty() -> None:
    view = Seen()
    locked, open_ = reply("/arriero/", view, allowed=False), reply("/arriero/", view)
    assert (locked.status, open_.status) == (401, 200)
    assert locked.body == open_.body
    assert b"gemma" not in locked.body


def test_an_unknown_path_without_the_key_is_not_told_from_a_known_one() -> None:
    unknown, known = (reply(p, allowed=False) for p in ("/arriero/none", "/arriero/status"))
    assert unknown == known


@pytest.mark.parametrize(
    "path",
    [
        "/arriero/none",
        "/arriero//status",
        "/arriero/status/",
        "/arriero/./status",
        "/arriero/%73tatus",
        "/arriero/incidents/",
        "/arriero/incidents/{id}",
        "/arriero/incidents/inci-00000000",
        "/arriero/incidents/../status",
        "/arriero/incidents/inci-7be1f29c/log",
        "/arriero/page/page.js",
        "/arriero/../v1/models",
    ],
)
def test_only_the_paths_of_the_table_mean_anything(path: str) -> None:
    answer = reply(path)
    assert answer.status == 404
    error = json.loads(answer.body)["error"]
    assert error["hint"]
    assert error["id"] in ("not-found", "no-incident")


def test_which_paths_are_arriero_s() -> None:
    assert is_ours("/arriero")
    assert is_ours("/arriero/anything")
    assert is_ours("/llm/arriero/status", "/llm")
    assert is_ours("/arriero/status", "/llm/")
    assert not is_ours("/arrieros")
    assert not is_ours("/v1/arriero/")
    assert not is_ours("/llm/arriero/status")
    bare = reply("/arriero")
    assert (bare.status, bare.more) == (308, ((b"location", b"arriero/"),))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_everything_can_only_be_read(method: str) -> None:
    answer = reply("/arriero/status", method=method)
    assert answer.status == 405
    assert (b"allow", b"GET, HEAD") in answer.headers()


def test_the_head_has_the_length_and_no_body() -> None:
    def asked(method: str) -> Written:
        outlet = Written()
        asyncio.run(Control(Seen(), Redactor()).answer(request("/arriero/", method), outlet))
        return outlet

    whole, head = asked("GET"), asked("HEAD")
    assert head.length == whole.length == len(whole.body) > 1000
    assert (head.body, head.ended, head.headers) == (b"", True, whole.headers)


@pytest.mark.parametrize("path", [*PATHS, "/arriero/none"])
def test_nobody_may_keep_frame_or_read_it_from_elsewhere(path: str) -> None:
    headers = dict(reply(path).headers())
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"cross-origin-resource-policy"] == b"same-origin"
    policy = headers[b"content-security-policy"].decode()
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert not any(name.startswith(b"access-control-") for name in headers)


def test_prompts_and_keys_are_in_no_answer() -> None:
    incident = msgspec.structs.replace(
        served.incident(),
        verdict=msgspec.structs.replace(served.failure(), text=f"failed with {SECRET}"),
        log=(f"srv  params: api_key {SECRET}", 'D srv  request: {"prompt": "the blue whale"}'),
    )
    view = Seen(lost=(incident,), lines=[*Seen().lines, f"I srv  key {SECRET}", KEY])
    view.now = msgspec.structs.replace(
        view.now, why=f"no {KEY}", engine=served_with("--api-key", SECRET)
    )
    view.answers["/slots"] = json.dumps(
        [{"id": 0, "n_ctx": 9, "is_processing": True, "prompt": "the blue whale"}]
    ).encode()
    answers = [reply(path, view).body for path in PATHS]
    for hidden in (SECRET, KEY, "blue whale"):
        assert [body for body in answers if hidden.encode() in body] == []
    assert b"model loaded" in answers[PATHS.index("/arriero/log")]


def served_with(*words: str) -> object:
    engine = served.status().engine
    return msgspec.structs.replace(engine, argv=(*engine.argv, *words))


def test_openapi_has_every_endpoint_and_only_references_that_are_there() -> None:
    document = openapi()
    assert len(document["paths"]) == len(ENDPOINTS)
    text = json.dumps(document)
    assert "#/$defs/" not in text
    for part in text.split('"#/components/schemas/')[1:]:
        assert part.partition('"')[0] in document["components"]["schemas"]


def test_the_docs_name_every_endpoint() -> None:
    page = (Path(__file__).parents[3] / "docs" / "serve.md").read_text("utf-8")
    section = page.partition("\n## Endpoints\n")[2].partition("\n## ")[0]
    missing = [one.path for one in ENDPOINTS if f"`/arriero/{one.path}`" not in section]
    assert missing == []


def test_incidents_and_status_read_back() -> None:
    assert isinstance(decode(reply("/arriero/incidents").body, "it"), Incidents)
    assert isinstance(decode(reply("/arriero/status").body, "it"), Status)
