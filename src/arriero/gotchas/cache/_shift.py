"""Whether cached positions can be moved: ``llama_memory_can_shift``, from the header alone."""

from __future__ import annotations

from typing import Final

from arriero.gotchas.facts import Facts

_SECTIONS: Final = frozenset(
    {"qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "paddleocr", "qwen3tts"}
)
"""Architectures whose positions always have several parts, M-RoPE (src/llama-model.cpp)."""
_MAY_HAVE_SECTIONS: Final = frozenset({"glm4", "glm4moe", "hunyuan_vl", "bailingmoe3"})
"""Architectures whose positions have several parts if the header gives sections."""


def unmovable(facts: Facts) -> str | None:
    """Why the server cannot move cached positions; None where it can.

    Raises:
        MissingError: There is no model header to read.
    """
    if facts.launch.projector is not None or facts.command.has("--mmproj-url"):
        return "--mmproj is given"
    hparams = facts.hparams
    if hparams.arch in _SECTIONS or (hparams.arch in _MAY_HAVE_SECTIONS and _has_sections(facts)):
        return f"positions of {hparams.arch} have several parts (M-RoPE)"
    from arriero.memory.architectures import Memory

    if hparams.arch == "step35" or hparams.memory is Memory.DSV4:
        return f"positions in the cache of {hparams.arch} cannot be moved"
    return _window(facts)


def _has_sections(facts: Facts) -> bool:
    sections = facts.header.metadata.get(f"{facts.hparams.arch}.rope.dimension_sections")
    return isinstance(sections, tuple) and all(isinstance(n, int) and n for n in sections[:2])


def _window(facts: Facts) -> str | None:
    """A window's cache can be moved only together with the other one, so it must be as long."""
    context = facts.plan.context
    if not facts.hparams.has_window or facts.launch.params.swa_full or context is None:
        return None
    windows = [tensor.cells for tensor in facts.caches if tensor.cache == "swa"]
    cells = max(windows, default=context.n_ctx)
    if cells >= context.n_ctx:
        return None
    return f"the sliding window's cache has {cells} cells; the context has {context.n_ctx}"
