"""What is under ``/arriero/``: one table, from which the routes, the docs and OpenAPI come."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from arriero import __version__
from arriero.record import json_schema

ROOT: Final = "/arriero"
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"
METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_ID: Final = re.compile(r"[a-z0-9-]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path below ``/arriero/``; ``{id}`` in it stands for the ID of an incident."""

    path: str
    media: str
    help: str
    document: str = ""
    """The document of the contract that it answers with, where it is one."""


ENDPOINTS: Final = (
    Endpoint("", HTML, "The page. Without the key it asks for it."),
    Endpoint("status", JSON, "How the server is doing now.", "status"),
    Endpoint("incidents", JSON, "Losses of the engine, newest first.", "incidents"),
    Endpoint("incidents/{id}", JSON, "One of them, with the last lines of the log.", "incident"),
    Endpoint("log", TEXT, "The last lines of the engine's log: those that show no prompt."),
    Endpoint("metrics", METRICS, "Metrics for Prometheus: Arriero's own and the engine's."),
    Endpoint("openapi.json", JSON, "These endpoints, described for programs."),
)
_BY_PATH: Final = {one.path: one for one in ENDPOINTS}


@dataclass(frozen=True, slots=True)
class Place:
    """What a path asks for: an endpoint, and the ID in it."""

    endpoint: Endpoint
    id: str = ""


def is_ours(path: str, prefix: str = "") -> bool:
    """Whether a path belongs to Arriero and not to the engine, below the prefix or not."""
    return _below(path, prefix) is not None


def is_bare(path: str, prefix: str = "") -> bool:
    """Whether it is ``/arriero`` without the slash that the page needs."""
    return _below(path, prefix) == ""


def place_of(path: str, prefix: str = "") -> Place | None:
    """What a path asks for. Only paths exactly as they are in the table mean anything."""
    below = _below(path, prefix)
    if not below:
        return None
    name, slash, id_ = below[1:].partition("/")
    if slash and name == "incidents" and _ID.match(id_):
        return Place(_BY_PATH["incidents/{id}"], id_)
    found = _BY_PATH.get(below[1:])
    return None if found is None or "{" in found.path else Place(found)


def _below(path: str, prefix: str) -> str | None:
    """What follows ``/arriero``; None where the path is not Arriero's."""
    for root in dict.fromkeys((ROOT, prefix.rstrip("/") + ROOT)):
        if path == root or path.startswith(root + "/"):
            return path[len(root) :]
    return None


def openapi() -> dict[str, Any]:
    """The endpoints as an OpenAPI 3.1 document."""
    parts: dict[str, Any] = {}
    paths = {f"{ROOT}/{one.path}": {"get": _operation(one, parts)} for one in ENDPOINTS}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Arriero", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _operation(one: Endpoint, parts: dict[str, Any]) -> dict[str, Any]:
    refused = {"description": "No key, or a wrong one.", "content": _error(parts)}
    answers: dict[str, Any] = {
        "200": {
            "description": one.help,
            "content": {one.media.partition(";")[0]: {"schema": _schema(one.document, parts)}},
        },
        "401": refused if one.path else refused | {"content": {"text/html": {}}},
    }
    operation: dict[str, Any] = {"summary": one.help, "responses": answers}
    if "{id}" in one.path:
        operation["parameters"] = [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
        answers["404"] = {"description": "There is none of this ID.", "content": _error(parts)}
    return operation


def _error(parts: dict[str, Any]) -> dict[str, Any]:
    return {JSON: {"schema": _schema("error", parts)}}


def _schema(document: str, parts: dict[str, Any]) -> dict[str, Any]:
    """A reference to a document's schema, which is added to the parts."""
    if not document:
        return {}
    schema = json_schema(document)
    for name, part in schema["$defs"].items():
        parts[name] = _moved(part)
    return {"$ref": schema["$ref"].replace("#/$defs/", "#/components/schemas/")}


def _moved(value: Any) -> Any:
    """With references to where the parts are here."""
    if isinstance(value, dict):
        return {name: _moved(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_moved(part) for part in value]
    if isinstance(value, str) and value.startswith("#/$defs/"):
        return value.replace("#/$defs/", "#/components/schemas/")
    return value
