"""Which device each layer and each tensor goes to, and what the weights take there.

Restates ``llama_model_base::load_tensors`` and ``llama_model_loader::create_tensor``.
"""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product, starmap
from typing import Final

from arriero.base.errors import UsageError
from arriero.gguf import Header, TensorInfo
from arriero.gguf.format import TYPES_BY_NAME
from arriero.launch.builds import AFTER_10435
from arriero.launch.context import pad
from arriero.launch.launch import Launch
from arriero.launch.params import EngineParams
from arriero.memory.caches import CPU_ALIGNMENT
from arriero.memory.hparams import Hparams

CPU: Final = "CPU"
MAPPED: Final = "CPU_Mapped"
REPACKED: Final = "CPU_REPACK"
_INPUT: Final = frozenset({"token_embd", "position_embd", "token_types", "per_layer_token_embd"})
_ROPE: Final = frozenset({"rope_freqs", "rope_factors_long", "rope_factors_short"})
_FIRST_LAYER: Final = frozenset(
    {"token_embd_norm", "per_layer_model_proj", "per_layer_proj_norm", "conv1d"}
)
"""Tensors that belong to no layer by name and are placed with the first one."""
_TIED_ELSEWHERE: Final = frozenset({"lfm2", "lfm2moe"})
"""Their last norm carries the name of the embedding's."""
_UNUSED: Final = re.compile(r"masked_embd|cross_attn_rel_b")
_LAYER: Final = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.")
_CUDA: Final = re.compile(r"(CUDA|ROCm|MUSA)\d+\Z")
_CUDA_WITHOUT_ROWS: Final = 10434
_HOST_BUFFERS: Final = ("CUDA", "ROCm", "MUSA", "Vulkan", "SYCL", "CANN")
_MOVED: Final = ((), ("ssm_a",), ("ssm_conv1d",), ("ssm_a", "ssm_conv1d"))
REPACKABLE: Final = frozenset({"q4_0", "q4_K", "q5_K", "q6_K", "q8_0", "q2_K", "iq4_nl", "mxfp4"})
"""Types that some CPU keeps in a layout of its own beside the file's."""


@dataclass(frozen=True)
class WeightBuffer:
    """One model buffer. ``exact`` is false where it depends on the CPU."""

    device: str
    bytes: int
    exact: bool = True


@dataclass(frozen=True)
class Quirks:
    """What only a device's own driver knows.

    ``alignment`` is that of its buffers, in bytes. ``moved`` are tensors whose operation it lacks:
    they stay with the host. ``repacked`` are types that this CPU keeps in a layout of its own; null
    where no engine was asked.
    """

    alignment: int = CPU_ALIGNMENT
    moved: tuple[str, ...] = ()
    repacked: frozenset[str] | None = None


def chosen_devices(
    params: EngineParams, listed: Sequence[str], integrated: Collection[str] = ()
) -> tuple[str, ...]:
    """The devices that a model is spread over, in llama.cpp's order: workers first.

    Graphics in the processor are left out where there is a card, unless the command names them.

    Args:
        listed: Devices as the engine lists them.
        integrated: Those that are part of the processor.

    Raises:
        UsageError: The command names a device that is not there.
    """
    if params.devices is not None:
        missing = [name for name in params.devices if name not in listed]
        if missing:
            raise UsageError(
                f"no device {missing[0]}", hint="known: " + (", ".join(listed) or "none")
            )
        devices = params.devices
    else:
        workers = [name for name in listed if name.startswith("RPC")]
        cards = [name for name in listed if name not in workers and name not in integrated]
        devices = (*workers, *(cards or [name for name in listed if name in integrated]))
    if params.split_mode == "none" and devices:
        if params.main_gpu < 0:
            return ()
        if params.main_gpu >= len(devices):
            raise UsageError(f"-mg {params.main_gpu}: there are {len(devices)} devices")
        return (devices[params.main_gpu],)
    return devices


def cuts_rows(device: str, build: int | None) -> bool:
    """Whether a backend takes ``-sm row``, where others refuse to load.

    By source, of builds 10435 and 11434 only SYCL does, and in the latter Hexagon. What CUDA did
    before was not read.
    """
    if _CUDA.match(device):
        return build is not None and build < _CUDA_WITHOUT_ROWS
    hexagon = device.startswith("HTP") and (build is None or build >= AFTER_10435)
    return device.startswith("SYCL") or hexagon


def layer_devices(
    n_layer_all: int,
    n_gpu_layers: int,
    devices: Sequence[str],
    split: Sequence[float],
) -> tuple[str, ...]:
    """The device of each layer and, last, of the output layer.

    Args:
        split: Shares as ``-ts`` gives them or free memory, one for each device; in float32, as the
            engine computes it.
    """
    layers = n_layer_all + 1
    wanted = layers if n_gpu_layers < 0 else n_gpu_layers
    start, active = max(layers - wanted, 0), min(wanted, layers) if devices else 0
    shares = [_f32(share) for share in [*split, *(0.0,) * len(devices)][: len(devices)]]
    if not 0 < sum(shares) < math.inf or min(shares) < 0:
        shares = [1.0] * len(devices)
    total, points = 0.0, []
    for share in shares:
        total = _f32(total + share)
        points.append(total)
    points = [_f32(point / total) for point in points]
    placed = []
    for il in range(layers):
        if il < start or il - start >= active:
            placed.append(CPU)
        else:
            at = bisect_right(points, _f32((il - start) / active))
            placed.append(devices[min(at, len(devices) - 1)])
    return tuple(placed)


def _f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf


def host_buffer(devices: Sequence[str]) -> str | None:
    """The pinned host memory of the first device that has any."""
    for device in devices:
        prefix = device.rstrip("0123456789")
        if prefix in _HOST_BUFFERS:
            return f"{prefix}_Host"
    return None


def weights(
    header: Header,
    hparams: Hparams,
    launch: Launch,
    layers: Sequence[str],
    devices: Sequence[str],
    quirks: Quirks | None = None,
) -> tuple[WeightBuffer, ...]:
    """The model buffers as a real start allocates them.

    Args:
        layers: From :func:`layer_devices`.
        quirks: From :func:`quirks_of`, where an engine was asked.

    Raises:
        UsageError: A pattern of ``-ot`` is none.
    """
    if not header.tensors:
        return ()
    params = launch.params
    return _placed(
        _Asked(
            tensors=_Tensors(header.tensors),
            arch=hparams.arch,
            n_layer=hparams.n_layer,
            n_layer_nextn=hparams.n_layer_nextn,
            layers=tuple(layers),
            devices=tuple(devices),
            quirks=quirks or Quirks(),
            overrides=params.overrides,
            load_mtp=params.load_mtp,
            no_host=params.no_host,
            use_extra_bufts=params.use_extra_bufts,
            mmap=launch.mmap,
        )
    )


def quirks_of(
    header: Header,
    hparams: Hparams,
    launch: Launch,
    layers: Sequence[str],
    devices: Sequence[str],
    told: Mapping[str, int],
) -> Quirks | None:
    """What makes the formula say what the engine says about each device; null if nothing does.

    Args:
        told: Bytes of weights by device, from a dry run.
    """
    for quirks in starmap(Quirks, product((CPU_ALIGNMENT, 16, 64, 128, 256), _MOVED)):
        planned = {
            b.device: b.bytes for b in weights(header, hparams, launch, layers, devices, quirks)
        }
        if all(planned.get(device, 0) == told.get(device, 0) for device in devices):
            return quirks
    return None


def repacked_types(
    header: Header,
    hparams: Hparams,
    launch: Launch,
    layers: Sequence[str],
    devices: Sequence[str],
    copied: int,
) -> frozenset[str] | None:
    """The types whose tensors make up what an engine says it keeps in a layout of its own."""
    most = {b.device: b for b in weights(header, hparams, launch, layers, devices)}
    types = {t.type for t in header.tensors} & REPACKABLE if REPACKED in most else set()
    for some in product((True, False), repeat=len(types)):
        chosen = frozenset(t for t, taken in zip(sorted(types), some, strict=True) if taken)
        quirks = Quirks(repacked=chosen)
        planned = weights(header, hparams, launch, layers, devices, quirks)
        if sum(b.bytes for b in planned if b.device == REPACKED) == copied:
            return chosen
    return None


class _Tensors:
    """The tensors of one header as a key: thousands of them are not compared one by one."""

    def __init__(self, tensors: tuple[TensorInfo, ...]) -> None:
        self.tensors = tensors

    def __hash__(self) -> int:
        return id(self.tensors)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tensors) and self.tensors is other.tensors


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """All that decides where weights go: the same for most of the plans that one question takes."""

    tensors: _Tensors
    arch: str
    n_layer: int
    n_layer_nextn: int
    layers: tuple[str, ...]
    devices: tuple[str, ...]
    quirks: Quirks
    overrides: tuple[tuple[str, str], ...]
    load_mtp: bool
    no_host: bool
    use_extra_bufts: bool
    mmap: bool


@lru_cache(maxsize=32)
def _placed(asked: _Asked) -> tuple[WeightBuffer, ...]:
    return tuple(_Weights(asked).buffers())


class _Weights:
    def __init__(self, asked: _Asked) -> None:
        self._asked, self._tensors = asked, asked.tensors.tensors
        self._layers, self._devices, self._quirks = asked.layers, asked.devices, asked.quirks
        names = tuple(tensor.name for tensor in self._tensors)
        self._overridden: dict[str, str] = {}
        for pattern, buffer in reversed(asked.overrides):  # the first that matches wins
            self._overridden |= dict.fromkeys(_matched(pattern, names), buffer)

    def buffers(self) -> list[WeightBuffer]:
        placed: dict[str, list[TensorInfo]] = {}
        for tensor in self._tensors:
            for device in self._places(tensor):
                placed.setdefault(device, []).append(tensor)
        host = host_buffer(self._devices)
        copied = self.repackable(placed.get(CPU, []))
        if self._quirks.repacked is not None:
            copied = [t for t in copied if t.type in self._quirks.repacked]
            names = {t.name for t in copied}
            placed[CPU] = [t for t in placed.get(CPU, []) if t.name not in names]
        buffers = []
        for device, tensors in placed.items():
            if device != CPU:
                buffers.append(WeightBuffer(device, self._sum(tensors, device)))
            elif not tensors:
                continue
            elif self._asked.mmap:
                buffers.append(WeightBuffer(MAPPED, _ranges(tensors)))
            elif host and not self._asked.no_host:
                buffers.append(WeightBuffer(host, self._sum(tensors, device)))
            else:
                buffers.append(WeightBuffer(CPU, self._sum(tensors, device)))
        if copied:
            exact = self._quirks.repacked is not None
            buffers.append(WeightBuffer(REPACKED, self._sum(copied, CPU), exact))
        return buffers

    def _places(self, tensor: TensorInfo) -> set[str]:
        """Buffers that hold the tensor; a tied embedding and RoPE factors can be in several."""
        name, _, suffix = tensor.name.rpartition(".")
        name = name or suffix
        if _UNUSED.search(tensor.name):
            return set()
        if (buffer := self._overridden.get(tensor.name)) is not None:
            return {CPU if buffer.startswith(CPU) else buffer}
        match = _LAYER.match(tensor.name)
        if match:
            if tensor.name[match.end() :].partition(".")[0] in self._quirks.moved:
                return {CPU} if self._of_layer(int(match[1])) else set()
            return self._of_layer(int(match[1]))
        if name == "token_embd" and self._is_tied:
            return {CPU, self._layers[-1]}
        if name in _INPUT:
            return {CPU}
        if name in _ROPE:
            return set(self._layers[: self._asked.n_layer])
        if name in _FIRST_LAYER and self._asked.arch not in _TIED_ELSEWHERE:
            return {self._layers[0]}
        return {self._layers[-1]}

    def _of_layer(self, il: int) -> set[str]:
        asked = self._asked
        if il >= asked.n_layer and asked.n_layer_nextn and not asked.load_mtp:
            return set()  # NextN layers are read for speculation only
        return {self._layers[min(il, len(self._layers) - 1)]}

    @property
    def _is_tied(self) -> bool:
        return not any(t.name == "output.weight" for t in self._tensors)

    def _sum(self, tensors: Sequence[TensorInfo], device: str) -> int:
        alignment = CPU_ALIGNMENT if device == CPU else self._quirks.alignment
        return sum(pad(t.bytes + _extra(t, device), alignment) for t in tensors)

    def repackable(self, tensors: Sequence[TensorInfo]) -> list[TensorInfo]:
        """The most that a CPU keeps in a layout of its own."""
        if not self._asked.use_extra_bufts or host_buffer(self._devices):
            return []
        return [
            t
            for t in tensors
            if t.type in REPACKABLE and len(t.shape) > 1 and not t.name.startswith("token_embd")
        ]


def _ranges(tensors: Sequence[TensorInfo]) -> int:
    """A mapping per file, from the first byte of these tensors to the last, holes included."""
    total = 0
    for part in {t.part for t in tensors}:
        inside = [t for t in tensors if t.part == part]
        total += max(t.offset + t.bytes for t in inside) - min(t.offset for t in inside)
    return total


def _extra(tensor: TensorInfo, device: str) -> int:
    """CUDA pads rows of quantised tensors to 512 elements (ggml-cuda.cu)."""
    kind = TYPES_BY_NAME.get(tensor.type)
    if kind is None or kind.block == 1 or not _CUDA.match(device) or not tensor.shape:
        return 0
    over = tensor.shape[0] % 512
    return kind.row(512 - over) if over else 0


@lru_cache(maxsize=512)
def _matched(pattern: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Tensors that a pattern of ``-ot`` matches. Fit asks it hundreds of times of one model."""
    compiled = _pattern(pattern)
    return tuple(name for name in names if compiled.search(name))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"-ot: {text!r} is no regular expression: {error}") from None
