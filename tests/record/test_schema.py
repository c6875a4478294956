"""The JSON Schemas hold for real documents, and the contract's names are all there."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pkgutil import iter_modules
from typing import Any

import jsonschema
import msgspec
import pytest

from arriero import record
from arriero.base.errors import UsageError
from arriero.record import SCHEMAS, document_type, encode, json_schema
from tests import examples
from tests.report import plans, served

PATH = record.__path__
CONTRACT = {
    "error": "schema error",
    "error.error": "id message hint",
    "explanation": "schema source era child engine outcome failure secondary buffers notices",
    "explanation.engine": "build commit version",
    "explanation.failure": "kind component device bytes buffer_bytes phase fatal line text "
    "not_this evidence cpu",
    "explanation.buffers": "component device bytes line role",
    "explanation.notices": "id line text",
    "diagnosis": "schema baseline trials verdict boundary slopes recommendation launches seconds",
    "diagnosis.trials": "n purpose change argv env outcome failure buffers effective ready_s peak "
    "headroom requests speed valid why_invalid",
    "diagnosis.trials.effective": "n_ctx n_ctx_seq n_seq_max kv_unified n_gpu_layers",
    "diagnosis.trials.peak": "address_space anonymous device",
    "diagnosis.trials.requests": "sent ok failed",
    "diagnosis.trials.speed": "prompt_tps predict_tps",
    "diagnosis.verdict": "kind component device bytes trial",
    "diagnosis.boundary.-np": "served ready fails fails_with held trials",
    "diagnosis.boundary.-np.fails_with": "kind component",
    "diagnosis.slopes": "component per bytes method",
    "diagnosis.recommendation": "argv env changes costs verified skipped worst_case",
    "diagnosis.recommendation.worst_case": "planned limit fits",
    "verification": "schema verified skipped",
    "plan": "schema model context buffers pools fits starts outgrows advice",
    "plan.model": "path arch memory_class n_layer n_recurrent_layer n_ctx_train file_bytes",
    "plan.context": "n_ctx n_ctx_seq n_seq_max kv_unified n_rs_seq",
    "plan.buffers": "component device bytes method upper_bound",
    "plan.pools": "name devices total free limited_by planned margin headroom fits starts outgrows",
    "plan.advice": "change cost saves argv",
    "status": "schema state engine gates requests memory incidents",
    "status.engine": "pid build argv ready_s restarts",
    "status.requests": "received answered held replayed continued refused error_events lost "
    "executed_twice",
    "status.memory": "pool planned actual total",
    "incident": "schema id at verdict signal status lost_context_tokens requests down_s action log",
    "incident.verdict": "kind component device bytes phase fatal line text not_this evidence",
    "incident.requests": "replayed continued",
    "incidents": "schema incidents",
    "event": "schema event id verdict",
}
WORDS = {
    "component": "weights kv rs compute graph output prompt_cache checkpoints mmproj draft pool",
    "kind": "allocation buffer_limit runtime_allocation cache_full state_growth reprocessing rpc "
    "backend config model environment killed hang crash",
    "phase": "arguments fit load context warmup serving shutdown",
    "evidence": "named inferred",
}
MAKERS: dict[str, Callable[[], msgspec.Struct]] = {
    "error": examples.example_error,
    "explanation": examples.example_explanation,
    "explanations": examples.example_explanations,
    "diagnosis": examples.example_diagnosis,
    "verification": examples.example_verification,
    "run": examples.example_run,
    "plan": plans.example,
    "status": served.status,
    "incident": served.incident,
    "incidents": served.incidents,
    "event": served.event,
}


def as_json(name: str) -> Any:
    return json.loads(encode(MAKERS[name]()))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_a_schema(name: str) -> None:
    schema = json_schema(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema)


@pytest.mark.parametrize("name", MAKERS)
def test_real_documents_are_valid(name: str) -> None:
    jsonschema.validate(as_json(name), json_schema(name))


def test_a_router_log_is_valid() -> None:
    document = json.loads(encode(examples.example_router_explanation()))
    jsonschema.validate(document, json_schema("explanation"))
    assert [child["child"] for child in document["children"]] == ["34605", "41303"]


@pytest.mark.parametrize(
    ("name", "member", "value"),
    [
        ("diagnosis", "schema", "arriero.explanation/1"),
        ("diagnosis", "launches", "nine"),
        ("explanation", "outcome", "crashed"),
        ("error", "error", None),
    ],
)
def test_wrong_documents_are_not_valid(name: str, member: str, value: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(as_json(name) | {member: value}, json_schema(name))


def test_the_schema_tag_is_required() -> None:
    document = as_json("error")
    del document["schema"]
    with pytest.raises(jsonschema.ValidationError, match="'schema' is a required property"):
        jsonschema.validate(document, json_schema("error"))


@pytest.mark.parametrize("place", CONTRACT)
def test_the_contract_s_names_are_there(place: str) -> None:
    name, *way = place.split(".")
    part = as_json(name)
    for step in way:
        part = part[step]
        if isinstance(part, list):
            part = part[0]
    assert set(CONTRACT[place].split()) <= set(part)


@pytest.mark.parametrize("word", WORDS)
def test_the_contract_s_words_are_there(word: str) -> None:
    definition = json_schema("explanation")["$defs"][word.capitalize()]
    assert set(definition["enum"]) == set(WORDS[word].split())


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        json_schema("diagnose")
    assert "diagnosis" in caught.value.hint


def tagged() -> dict[str, type[msgspec.Struct]]:
    """What the tag of each document of the room names → its type, in every module."""
    modules = [importlib.import_module(f"arriero.record.{m.name}") for m in iter_modules(PATH)]
    kinds = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and "schema" in kind.__struct_fields__
        and kind.__struct_defaults__
    }
    return {kind.__struct_defaults__[0].removeprefix("arriero.")[:-2]: kind for kind in kinds}


def test_every_document_of_the_room_is_known_by_the_name_in_its_tag() -> None:
    assert {name: document_type(name) for name in SCHEMAS} == tagged()
