"""Questions to a projector's header (``tools/mtmd/clip.cpp``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arriero.gguf import Header


def kind(projector: Header) -> str:
    """Its kind, as llama.cpp names it; empty if the header does not say."""
    keys = ("clip.projector_type", "clip.vision.projector_type")
    return next((str(projector.metadata[key]) for key in keys if key in projector.metadata), "")


def number(projector: Header, key: str) -> int:
    """A whole number of the header; 0 if it is missing."""
    value = projector.metadata.get(key)
    return value if isinstance(value, int) else 0


def embedding(projector: Header) -> int | None:
    """Width of the embeddings for the text model; None for kinds whose tensors are not known."""
    name, axis = {
        "gemma3": ("mm.input_projection.weight", 0),
        "pixtral": ("mm.2.weight", 1),
        "qwen2vl_merger": ("mm.2.bias", 0),
        "qwen2.5vl_merger": ("mm.2.bias", 0),
    }.get(kind(projector), ("", 0))
    found = next((tensor for tensor in projector.tensors if tensor.name == name), None)
    return found.shape[axis] if found is not None and axis < len(found.shape) else None
