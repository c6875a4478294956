"""What a context says of itself, against what was asked for.

A layout that is wrong by one member would still run: the lines of the log are where it shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from .account import says

_COMPUTE: Final = re.compile(r":\s+(?P<name>\S+) compute buffer size =\s*(?P<mib>[0-9.]+) MiB")
_TYPES: Final = re.compile(r"seqs\), K \((\w+)\):.*, V \((\w+)\):")
_SETTING: Final = re.compile(r"llama_context: (?P<name>\w+)\s+= (?P<value>\S+)")


def contradiction(
    request: Mapping[str, Any], answer: Mapping[str, Any], lines: Collection[str]
) -> str:
    """What the context says of itself and was not asked for; empty if nothing."""
    return (
        _in_settings(request, lines)
        or _in_counts(request, answer)
        or _in_cache_types(request, lines)
        or _in_compute(answer, lines)
    )


def _in_settings(request: Mapping[str, Any], lines: Collection[str]) -> str:
    said = {m["name"]: m["value"] for line in lines if (m := _SETTING.search(line))}
    flash_attn = {"auto": "auto", "on": "enabled", "off": "disabled"}[request["flash_attn"]]
    wanted = {
        "kv_unified": {"true" if request["kv_unified"] else "false"},
        # Some architectures turn it off whatever is asked.
        "flash_attn": {flash_attn, "disabled"},
        "n_outputs_max": {str(request["n_outputs_max"])},
    }
    quantised = request["type_v"] not in ("f32", "f16", "bf16")
    if flash_attn == "auto" and (quantised or request["split_mode"] == "tensor"):
        # Both need it, and auto then means on.
        wanted["flash_attn"].add("enabled")
    for name, values in wanted.items():
        if said.get(name, min(values)) not in values:
            return f"{name} = {said[name]}"
    return ""


def _in_counts(request: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    for name in ("n_batch", "n_ubatch", "n_seq_max", "n_rs_seq"):
        if answer[name] > request[name]:
            return f"{name} = {answer[name]}"
    slack = 256 * request["n_seq_max"]
    if answer["n_seq_max"] != request["n_seq_max"] or (
        request["n_ctx"] and abs(answer["n_ctx"] - request["n_ctx"]) >= slack
    ):
        return f"n_ctx = {answer['n_ctx']}, n_seq_max = {answer['n_seq_max']}"
    return ""


def _in_cache_types(request: Mapping[str, Any], lines: Collection[str]) -> str:
    for line in lines:
        types = _TYPES.search(line)
        if types and types.groups() != (request["type_k"], request["type_v"]):
            return f"K ({types[1]}), V ({types[2]})"
    return ""


def _in_compute(answer: Mapping[str, Any], lines: Collection[str]) -> str:
    compute = {b["device"]: b["compute"] for b in answer["buffers"]}
    for line in lines:
        if (match := _COMPUTE.search(line)) and not says(
            float(match["mib"]), compute.get(match["name"], 0)
        ):
            return f"compute of {match['name']} is {compute.get(match['name'])} bytes, {line!r}"
    return ""
