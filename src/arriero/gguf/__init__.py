"""GGUF files: read a header without loading it, and write small or weightless models."""

from typing import TYPE_CHECKING

from arriero.base.late import late

if TYPE_CHECKING:
    from arriero.gguf.model import MemoryClass as MemoryClass
    from arriero.gguf.model import Model as Model
    from arriero.gguf.model import describe as describe
    from arriero.gguf.reader import Header as Header
    from arriero.gguf.reader import LazyArray as LazyArray
    from arriero.gguf.reader import TensorInfo as TensorInfo
    from arriero.gguf.reader import read_header as read_header
    from arriero.gguf.reader import read_source as read_source
    from arriero.gguf.remote import open_model as open_model
    from arriero.gguf.shape import Shape as Shape
    from arriero.gguf.skeleton import write_skeleton as write_skeleton
    from arriero.gguf.source import Source as Source
    from arriero.gguf.writer import write_model as write_model
else:
    __getattr__ = late(
        __name__,
        model="MemoryClass Model describe",
        reader="Header LazyArray TensorInfo read_header read_source",
        remote="open_model",
        shape="Shape",
        skeleton="write_skeleton",
        source="Source",
        writer="write_model",
    )
