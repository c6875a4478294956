"""Requests and answers of the child.

Request: JSON in ``argv[1]``. Answers: one JSON object per line on standard output, each with the
index of its request and either what was asked for or ``reason``; they are written as they are
known, so what came before a crash is not lost.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .context import run_context
from .dry_engine import DryEngine
from .model import SETTINGS, free_model, load_model
from .projector import run_projector
from .refusal import NoAnswer


def main() -> None:
    # What the engine prints must not mix with the answers.
    out = os.dup(1)
    os.dup2(2, 1)
    _lift_limit()
    spec = json.loads(sys.argv[1])
    for answer in (projected if "projector" in spec else answers)(**spec):
        os.write(out, f"\n{json.dumps(answer)}\n".encode())


def answers(library: str, requests: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One answer or reason per request, in order; a model that several share is loaded once."""
    engine: DryEngine | None = None
    model, loaded = 0, None
    for index, request in enumerate(requests):
        try:
            engine = engine or DryEngine(library)
            key = [request[name] for name in SETTINGS]
            if key != loaded:
                if model:
                    free_model(engine, model)
                model, loaded = 0, None
                model, loaded = load_model(engine, request), key
            yield {"index": index, "answer": run_context(engine, model, request)}
        except NoAnswer as refusal:
            yield {"index": index, "reason": str(refusal)}


def projected(library: str, projector: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The one answer or reason for a projector.

    Args:
        library: Path of ``libmtmd.so``; what it depends on is found through it.
    """
    try:
        yield {"index": 0, "projector": run_projector(DryEngine(library), projector)}
    except NoAnswer as refusal:
        yield {"index": 0, "reason": str(refusal)}


def _lift_limit() -> None:
    """Address space that Arriero's own caller was limited to says nothing about a plan."""
    if sys.platform == "linux":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
