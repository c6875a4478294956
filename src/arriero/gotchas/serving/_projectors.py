"""What a projector's header says (``tools/mtmd/clip.cpp``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arriero.gguf import Header


def kind(projector: Header) -> str:
    """Its kind, as llama.cpp names it; empty if the header does not say."""
    keys = ("clip.projector_type", "clip.vision.projector_type")
    return next((str(projector.metadata[key]) for key in keys if key in projector.metadata), "")


def number(projector: Header, key: str) -> int:
    """A whole number of the header; 0 where there is none."""
    value = projector.metadata.get(key)
    return value if isinstance(value, int) else 0


def embedding(projector: Header) -> int | None:
    """Width of what it gives to the text model; null for kinds of which it is not known here."""
    name, axis = {
        "gemma3": ("mm.input_projection.weight", 0),
        "pixtral": ("mm.2.weight", 1),
        "qwen2vl_merger": ("mm.2.bias", 0),
        "qwen2.5vl_merger": ("mm.2.bias", 0),
    }.get(kind(projector), ("", 0))
    found = next((tensor for tensor in projector.tensors if tensor.name == name), None)
    return found.shape[axis] if found is not None and axis < len(found.shape) else None
