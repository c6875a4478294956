"""A model's header without private content, and the same header made smaller.

The memory that a model takes depends on its architecture's numbers, on the names, shapes, types and
positions of its tensors, and on the size of its vocabulary. These are kept. Free text and
everything about the model's origin are removed: names, authors, addresses, licences, the chat
template, token texts and merges, paths that tools leave behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final

from arriero.base.errors import ModelError
from arriero.gguf.format import TYPES_BY_NAME, ValueType
from arriero.gguf.header import Header, LazyArray, Part, TensorInfo, Value
from arriero.gguf.model import describe
from arriero.gguf.source import LocalSource, Source
from arriero.gguf.writer import (
    Encoded,
    appearing,
    encode,
    encode_texts,
    header_bytes,
    vocabulary_keys,
)

_GENERAL: Final = {"alignment", "architecture", "file_type", "quantization_version", "type"}
_WORD: Final = re.compile(r"[a-z0-9_-]{1,32}\Z")
_CHOICES: Final = {
    "general.type": ("model", "mmproj", "adapter", "vocab"),
    "adapter.type": ("lora",),
    "rope.scaling.type": ("none", "linear", "yarn", "longrope"),
    "hidden_activation": (
        "gelu",
        "gelu_pytorch_tanh",
        "geglu",
        "silu",
        "swish",
        "swiglu",
        "relu",
        "reglu",
    ),
}
"""Endings of keys whose text decides which code of llama.cpp runs, with the allowed texts.

Two more keys may have any single word: the architecture, and the projector of a multimodal model.
"""
_TOKENS: Final = "tokenizer.ggml.tokens"
_TOKENIZER: Final = "tokenizer.ggml.model"
_TYPE_COUNT: Final = "tokenizer.ggml.token_type_count"
_VOCABULARY: Final = frozenset(key for key, _ in vocabulary_keys(3))
_WORTH_LEAVING_OUT: Final = 1 << 14
"""Tokens; an engine reads a smaller vocabulary in no time."""
_NO_VOCABULARY: Final = {"none", "no_vocab"}
_NAME: Final = "skeleton"
_MAX_TEXTS: Final = 1 << 16
_PART: Final = re.compile(r"(?:-\d{5}-of-\d{5})?(?:\.gguf)?\Z")
_LAYER: Final = re.compile(r"blk\.(\d+)\.(.+)\Z")
_VOCABULARY_TENSORS: Final = re.compile(
    r"(?:(?:token_embd|per_layer_token_embd|output)\.(?:weight|bias)"
    r"|blk\.\d+\.nextn\.(?:embed_tokens|shared_head_head)\.weight)\Z"
)
_EXPERT_TENSORS: Final = re.compile(r"blk\.\d+\.(?:ffn_\w+_exps|ffn_gate_inp|exp_probs_b)\.")
_LAYERS_MEAN_MORE: Final = {
    *("command-r", "eagle3", "exaone4", "gemma3n", "graniteswitch", "hrm_text", "nanbeige"),
}
"""Architectures for which llama.cpp derives more than the depth from the number of layers."""
_NOT_PER_LAYER: Final = ("rope.dimension_sections",)
SMALL_VOCABULARY: Final = 512


# --- without what could be private --------------------------------------------------------------


@dataclass(frozen=True)
class Neutral:
    """A header for sharing, in which ``tokenizer.ggml.tokens`` has meaningless tokens.

    The names of all keys are listed by what happened to them, in the order of the file.
    """

    header: Header
    kept: tuple[str, ...]
    replaced: tuple[str, ...]
    dropped: tuple[str, ...]


def neutral(header: Header) -> Neutral:
    """The parts of a header that may be shared, the architecture's numbers among them.

    Raises:
        ModelError: The header names no architecture.
    """
    arch = describe(header).arch
    has_vocabulary = isinstance(header.metadata.get(_TOKENS), LazyArray)
    metadata: dict[str, Value] = {}
    kept: list[str] = []
    replaced: list[str] = []
    dropped: list[str] = []
    for key, value in header.metadata.items():
        if key.startswith("split."):
            continue  # written again for the actual number of parts
        if _is_kept(key, value, arch):
            metadata[key] = value
            kept.append(key)
        elif key == "general.name":
            metadata[key] = _NAME
            replaced.append(key)
        elif (has_vocabulary and key == _TOKENS) or _is_label(key, value, arch):
            metadata[key] = value
            replaced.append(key)
        else:
            (replaced if has_vocabulary and key in _VOCABULARY else dropped).append(key)
    return Neutral(replace(header, metadata=metadata), tuple(kept), tuple(replaced), tuple(dropped))


def _is_kept(key: str, value: Value, arch: str) -> bool:
    if key == _TOKENIZER:
        return isinstance(value, str) and value in _NO_VOCABULARY
    if key == _TYPE_COUNT:
        return isinstance(value, int)
    space, _, name = key.partition(".")
    if space not in ("general", "adapter", arch) or (space == "general" and name not in _GENERAL):
        return False
    if isinstance(value, str):
        if key == "general.architecture" or name.endswith("projector_type"):
            return _WORD.match(value) is not None
        return any(key.endswith(end) and value in words for end, words in _CHOICES.items())
    return not isinstance(value, LazyArray)


def _is_label(key: str, value: Value, arch: str) -> bool:
    """Texts of which the engine needs only the number, such as a classifier's labels."""
    return (
        key.startswith(f"{arch}.")
        and isinstance(value, LazyArray)
        and value.type is ValueType.STRING
        and value.count <= _MAX_TEXTS
    )


def without_vocabulary(header: Header) -> Header | None:
    """The header with only the number of its tokens; None if that does not help.

    An engine makes the same tensors, caches and graphs of it without reading a vocabulary. It
    cannot serve with it.
    """
    arch, tokens = header.metadata.get("general.architecture"), header.metadata.get(_TOKENS)
    if not isinstance(tokens, LazyArray) or tokens.count < _WORTH_LEAVING_OUT:
        return None
    metadata: dict[str, Value] = {}
    for key, value in header.metadata.items():
        own = key.startswith(f"{arch}.")
        if isinstance(value, LazyArray):
            if not own:
                continue
            if value.type is not ValueType.STRING:
                return None
        if own or key.startswith("general.") or key == _TYPE_COUNT:
            metadata[key] = value
    metadata |= {_TOKENIZER: "none", f"{arch}.vocab_size": tokens.count}
    return replace(header, metadata=metadata)


# --- smaller ------------------------------------------------------------------------------------


def layer_kinds(header: Header) -> list[frozenset[tuple[str, tuple[int, ...]]]] | None:
    """The tensors of each layer without their types; None if layers cannot be left out.

    They cannot if their number has another meaning, if one tensor serves all layers, or if they are
    not called ``blk.N.``.
    """
    arch = describe(header).arch
    is_lite = arch == "deepseek2" and f"{arch}.attention.q_lora_rank" not in header.metadata
    if is_lite or arch in _LAYERS_MEAN_MORE:
        return None
    count = _integer(header, "block_count")
    kinds: list[set[tuple[str, tuple[int, ...]]]] = [set() for _ in range(min(count, 1 << 12))]
    for tensor in header.tensors:
        if match := _LAYER.match(tensor.name):
            if int(match[1]) >= len(kinds):
                return None
            kinds[int(match[1])].add((match[2], tensor.shape))
        elif tensor.name.startswith("per_layer_"):
            return None
    return [frozenset(kind) for kind in kinds] if all(kinds) else None


def with_layers(header: Header, layers: int) -> Header:
    """Keep only the first layers, and all NextN layers.

    Arrays with one entry per layer are shortened too, and counts of layers are adjusted.
    """
    arch = describe(header).arch
    blocks = _integer(header, "block_count")
    trunk = blocks - _integer(header, "nextn_predict_layers")
    gone = trunk - layers

    def cut(name: str, value: Value) -> Value:
        match name, value:
            case "block_count", int():
                return value - gone
            case "leading_dense_block_count", int():
                return min(value, layers)
            case "attention.shared_kv_layers", int():
                return max(value - gone, 0)
            case "ple.layers", tuple():
                return tuple(v for v in value if isinstance(v, int) and v < layers)
            case _, tuple() if name not in _NOT_PER_LAYER and len(value) in (blocks, trunk):
                return value[:layers] + value[trunk:]
        return value

    def renamed(tensor: TensorInfo) -> TensorInfo | None:
        match = _LAYER.match(tensor.name)
        if match is None or (layer := int(match[1])) < layers:
            return tensor
        if layer < trunk:
            return None
        return replace(tensor, name=f"blk.{layer - gone}.{match[2]}")

    metadata = {
        key: cut(key.removeprefix(f"{arch}."), value) if key.startswith(f"{arch}.") else value
        for key, value in header.metadata.items()
    }
    tensors = (renamed(tensor) for tensor in header.tensors)
    return _repacked(header, metadata, (t for t in tensors if t is not None))


def fewer_experts(header: Header) -> int | None:
    """The smallest number of experts with which routing works; None if none can be left out.

    These are as many as one token uses. If experts are chosen by groups, each group needs two, and
    the groups of one token need enough for it.
    """
    count, used = _integer(header, "expert_count"), _integer(header, "expert_used_count")
    groups = _integer(header, "expert_group_count") or 1
    used_groups = _integer(header, "expert_group_used_count") or groups
    if not 0 < used <= count or not 0 < used_groups <= groups or count % groups:
        return None
    in_group = max(-(-used // used_groups), 2 if groups > 1 else 1)
    others = any("_chexps." in tensor.name for tensor in header.tensors)
    return None if others or in_group * groups >= count else in_group * groups


def with_experts(header: Header, experts: int) -> Header:
    """Keep only so many experts in every layer."""
    key = f"{describe(header).arch}.expert_count"
    count = _integer(header, "expert_count")
    tensors = (
        _narrowed(t, count, experts) if _EXPERT_TENSORS.match(t.name) else t for t in header.tensors
    )
    return _repacked(header, {**header.metadata, key: experts}, tensors)


def with_vocabulary(header: Header, tokens: int) -> Header:
    """Keep only so many tokens."""
    key = f"{describe(header).arch}.vocab_size"
    held = header.metadata.get(_TOKENS)
    if not isinstance(held, LazyArray):
        return header
    metadata = {**header.metadata, _TOKENS: replace(held, count=tokens)}
    if key in metadata:
        metadata[key] = tokens
    tensors = (
        _narrowed(t, held.count, tokens) if _VOCABULARY_TENSORS.match(t.name) else t
        for t in header.tensors
    )
    return _repacked(header, metadata, tensors)


def _narrowed(tensor: TensorInfo, count: int, fewer: int) -> TensorInfo:
    if not tensor.shape or tensor.shape[-1] != count:
        return tensor
    return replace(tensor, shape=(*tensor.shape[:-1], fewer))


def _repacked(
    header: Header, metadata: Mapping[str, Value], tensors: Iterable[TensorInfo]
) -> Header:
    """The header of one file in which each tensor follows the one before."""
    placed: list[TensorInfo] = []
    end = 0
    for tensor in tensors:
        kind = TYPES_BY_NAME.get(tensor.type)
        if kind is None:
            raise ModelError(
                f"{header.parts[0].name}: cannot make tensor {tensor.name!r} smaller: its type"
                f" {tensor.type} is unknown"
            )
        size = prod(tensor.shape) // kind.block * kind.size
        placed.append(replace(tensor, offset=end, bytes=size, part=0))
        end += -(-size // header.alignment) * header.alignment
    return replace(
        header,
        metadata=metadata,
        tensors=tuple(placed),
        data_offset=0,
        file_bytes=end,
        parts=(Part(header.parts[0].name, end, 0),),
    )


def _integer(header: Header, name: str) -> int:
    value = header.metadata.get(f"{describe(header).arch}.{name}", 0)
    return value if isinstance(value, int) else 0


# --- files --------------------------------------------------------------------------------------


def part_paths(path: Path, parts: int) -> list[Path]:
    """The file of each part: ``path`` itself, or ``NAME-00001-of-0000N.gguf`` beside it."""
    if parts == 1:
        return [path]
    stem = _PART.sub("", path.name, count=1)
    return [path.with_name(f"{stem}-{i + 1:05d}-of-{parts:05d}.gguf") for i in range(parts)]


def write_header(header: Header, path: Path) -> list[Path]:
    """Write a neutral header and a hole in place of the weights; a split set stays split.

    Tensors keep their positions, counted from the start of the weights, so that the engine maps the
    same part of each file. A file appears complete or not at all, the first file of a set last.

    Raises:
        NotFoundError, UsageError, ArrieroError: As :func:`arriero.gguf.writer.write_model`.
    """
    paths = part_paths(path, len(header.parts))
    with ExitStack() as stack:
        files = [stack.enter_context(appearing(p, 0)) for p in paths]
        for number, (part, file) in enumerate(zip(header.parts, files, strict=True)):
            keys = list(_encoded(header.metadata)) if number == 0 else []
            if len(paths) > 1:
                keys += _split_keys(number, len(paths), len(header.tensors))
            tensors = [
                (t.name, t.shape, _type_id(t), t.offset - part.data_offset)
                for t in header.tensors
                if t.part == number
            ]
            file.writelines(header_bytes(keys, tensors))
            start = -(-file.tell() // header.alignment) * header.alignment
            file.truncate(start + max(part.bytes - part.data_offset, 0))
    return paths


def copy_header(header: Header, source: Source, paths: Sequence[Path]) -> None:
    """Copy a model without its weights: the same header, byte by byte, then a hole.

    Args:
        source: The first part; the others are found beside it.
        paths: One file for each part.

    Raises:
        NotFoundError, UsageError, ArrieroError: As :func:`arriero.gguf.writer.write_model`.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(appearing(p, 0)) for p in paths]
        for number, (part, file) in enumerate(zip(header.parts, files, strict=True)):
            held = source
            if number:
                held = source.sibling(part.name.replace("\\", "/").rpartition("/")[2])
                stack.callback(held.close)
            # a model without tensors may end before the padding of its header
            at, end = 0, min(part.data_offset, part.bytes)
            while at < end and (chunk := held.read(at, min(end - at, 1 << 20))):
                file.write(chunk)
                at += len(chunk)
            file.truncate(part.bytes)


def write_skeleton(header: Header, directory: Path) -> Path:
    """Copy a local model without its weights, see :func:`copy_header`.

    The engine takes the same memory for it and answers nonsense. It costs as much disk as the
    header. The parts of a split set keep their names; the path of the first is returned.

    Raises:
        NotFoundError, UsageError, ArrieroError: As :func:`arriero.gguf.writer.write_model`.
    """
    paths = [directory / Path(part.name).name for part in header.parts]
    source = LocalSource(Path(header.parts[0].name))
    try:
        copy_header(header, source, paths)
    finally:
        source.close()
    return paths[0]


def _encoded(metadata: Mapping[str, Value]) -> Iterator[tuple[str, Encoded]]:
    tokens = metadata.get(_TOKENS)
    for key, value in metadata.items():
        if key == _TOKENS:
            continue  # a whole vocabulary comes after the other keys
        if isinstance(value, LazyArray):
            yield key, encode_texts(value.count, (f"text {i}" for i in range(value.count)))
        else:
            yield key, encode(value)
    if isinstance(tokens, LazyArray):
        yield from vocabulary_keys(tokens.count)


def _split_keys(number: int, parts: int, tensors: int) -> list[tuple[str, Encoded]]:
    """llama.cpp asks for exactly these types."""
    return [
        ("split.no", encode(number, ValueType.UINT16)),
        ("split.count", encode(parts, ValueType.UINT16)),
        ("split.tensors.count", encode(tensors, ValueType.INT32)),
    ]


def _type_id(tensor: TensorInfo) -> int:
    known = TYPES_BY_NAME.get(tensor.type)
    return known.id if known else int(tensor.type.removeprefix("type "))
