"""Bounds for compute buffers where no engine can be asked, by what a device does.

llama.cpp's allocator reuses memory over a graph that changes from build to build, so that no
formula is exact. This one takes the widest of the phases that follow each other (attention,
feed-forward, recurrent state, logits) and the inputs that live through all of them. The phases
were taken from dry runs of builds 10068, 10092 and 10434, of models at full size and of every
architecture; ``bench/plan_accuracy.py`` holds the bounds against real servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from arriero.base.sizes import MIB
from arriero.gguf import Header
from arriero.launch.context import pad
from arriero.launch.params import EngineParams
from arriero.memory.architectures import Memory
from arriero.memory.caches import CacheTensor, Effective
from arriero.memory.hparams import Hparams

_F32: Final = 4
_F16: Final = 2
_RESIDUALS: Final = 5
"""Copies of the hidden state that are alive beside the widest part of a phase."""
_FIXED: Final = MIB
"""Positions, indices and other small inputs."""
_COPIES: Final = 4
"""GGML_SCHED_MAX_COPIES."""
_OUTPUTS_ASKED: Final = 9733
"""First build seen in which a context is told how many outputs it needs. Before, a graph has logits
for every token of a micro-batch."""
_MASK_IN_F16: Final = 10068
"""First build seen that makes the mask of flash attention in f16; before, in f32 and a copy."""
_SINKS_KEPT: Final = 10434
"""First build seen that keeps flash attention with sinks when the host computes layers too."""
_STATES: Final = 4
_STATES_ON_DEVICE: Final = 7
_INDEXED: Final = frozenset(
    {Memory.DSA, Memory.DSA_ISWA, Memory.DSV4, Memory.MSA, Memory.HYBRID_IDX}
)
_CHOOSING: Final = 6
_WITH_BIAS: Final = frozenset({"t5", "t5encoder"})
"""Architectures that add a bias to each score: they keep scores whatever is asked."""
_BIASED: Final = 4
_WITH_SINKS: Final = frozenset({"gpt-oss", "mimo2", "deepseek4"})
_WITHOUT_CONTEXT: Final = frozenset({"llama-embed"})
"""Architectures that have a cache and do not look at it."""
_LOGITS_TWICE: Final = frozenset({"chameleon"})
_PER_LAYER: Final = {"gemma3n": 256}
"""Elements of the input that every layer has for itself, where no key says so."""
_QUANTISED: Final = re.compile(r"q\d|iq\d")
_COMPLETE: Final = re.compile(r"(CUDA|ROCm|MUSA|MTL|RPC)\d+")
"""Backends that compute whole layers; of the others some operations may stay with the host."""
_LEAST_RANGE: Final = 128 * MIB
"""What every Vulkan device must let one binding reach (maxStorageBufferRange). An operation on a
larger tensor may stay with the host."""
_USUAL_RANGE: Final = 1024 * MIB
"""What drivers of cards let one binding reach at least; most reach 4 GiB."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a context is computed.

    ``devices`` hold layers, ``output`` (one of them, or empty for the host) the output layer.
    ``on_host`` says that the host has layers or their caches, ``experts_on_host`` that it has
    weights of layers that devices compute.
    """

    devices: tuple[str, ...]
    output: str
    on_host: bool = False
    experts_on_host: bool = False
    software: bool = False
    """A device is the processor under another name, with the least of ranges."""


@dataclass(frozen=True)
class Bound:
    """Bytes that a compute buffer stays below, and that it takes in any case."""

    most: int
    least: int = 0


class ComputeBound:
    """What the compute buffers of one context stay below, in bytes.

    Args:
        tensors: The caches' tensors, for the number of their cells.
        pipeline: Several devices work on a batch in turns: each holds its inputs four times.
        build: Null bounds what every build takes.
    """

    def __init__(
        self,
        header: Header,
        hparams: Hparams,
        params: EngineParams,
        eff: Effective,
        tensors: Sequence[CacheTensor],
        *,
        pipeline: bool = False,
        build: int | None = None,
    ) -> None:
        self._h, self._params, self._sizes = hparams, params, _Sizes(header, tensors)
        self._has_context = not hparams.rules.encoder and hparams.arch not in _WITHOUT_CONTEXT
        self._flash = eff.flash_attn
        slots = max(1, eff.context.n_seq_max)
        self._tokens = pad(min(eff.context.n_ctx, eff.n_ubatch), slots)
        streams = 1 if params.kv_unified else slots
        self._cells = {t.cache: t.cells // streams for t in tensors if t.cells}
        """Cells that one token looks at, by cache: each has a mask of its own."""
        if not hparams.causal or hparams.rules.encoder:
            self._cells["batch"] = self._tokens
        self._rows = slots * (1 + eff.n_rs_seq)
        self._copies = _COPIES if pipeline else 1
        self._asked = eff.n_outputs_max
        old = build is None or build < _OUTPUTS_ASKED
        self._outputs = max(self._asked, self._tokens) if old else self._asked
        self._old_mask = build is None or build < _MASK_IN_F16
        self._loses_sinks = hparams.arch in _WITH_SINKS and (build is None or build < _SINKS_KEPT)
        self._widths = _Widths(header, hparams)

    def of(self, site: Site) -> Mapping[str, Bound]:
        """The bound of each device, and of the host under the name ``CPU``."""
        spread = bool(site.devices) and site.on_host
        flash = self._flash and not (spread and self._may_lose_flash(site))
        alone = len(site.devices) + site.on_host + (not site.devices) == 1
        found: dict[str, Bound] = {}
        for device in site.devices:
            copied = self._brought(site)
            outputs = device == site.output
            shared = site.on_host or site.experts_on_host or self._is_beyond(site)
            most = self._of_layers(outputs=outputs, shared=shared, copied=copied, flash=flash)
            sure = _COMPLETE.match(device) is not None
            found[device] = Bound(most, self._least(outputs, alone) if sure else 0)
        found["CPU"] = self._of_host(site, flash=flash, alone=alone)
        return found

    def _of_host(self, site: Site, *, flash: bool, alone: bool) -> Bound:
        if not site.devices:
            return Bound(self._of_layers(outputs=True, flash=flash), self._least(True, alone))
        outputs = not site.output
        if site.on_host or site.experts_on_host or self._is_beyond(site):
            copied = _fetched(self._sizes.cache)
            return Bound(self._of_layers(outputs=True, shared=True, copied=copied, flash=flash))
        if not all(map(_COMPLETE.match, site.devices)):
            outputs = outputs or self._sizes.output >= _LEAST_RANGE
        logits = self._logits(self._outputs) if outputs else 0
        return Bound(self._inputs(flash, on_host=True) + 4 * self._hidden + logits + _FIXED)

    def _brought(self, site: Site) -> int:
        """The largest weights and caches that a device brings from the host to compute with."""
        if not site.on_host:
            return _fetched(self._sizes.experts) if site.experts_on_host else 0
        here = site.output and all(map(_COMPLETE.match, site.devices))
        head = self._sizes.output if self._outputs > 1 and not here else 0
        return self._caches_fetched + _fetched(max(self._sizes.block, head))

    @property
    def _caches_fetched(self) -> int:
        recurrent = self._h.n_embd_r + self._h.n_embd_s > 0
        return (11 if recurrent else 3) * self._sizes.cache

    # parts

    @property
    def _hidden(self) -> int:
        """Bytes of the hidden state of a micro-batch."""
        return _F32 * self._tokens * self._h.n_embd

    @property
    def _widest_cells(self) -> int:
        return max(self._cells.values(), default=0)

    def _logits(self, outputs: int) -> int:
        return _F32 * outputs * self._h.n_vocab * (2 if self._h.arch in _LOGITS_TWICE else 1)

    def _keeps_scores(self, flash: bool) -> bool:
        return not flash or self._h.memory is Memory.NONE or self._h.arch in _WITH_BIAS

    def _scores(self, flash: bool) -> int:
        """The scores of one layer, which flash attention does not keep."""
        copies = _BIASED if self._h.arch in _WITH_BIAS else 1
        heads = max(self._h.n_head, default=0)
        one = _F32 * heads * self._tokens * self._widest_cells
        return copies * one if self._keeps_scores(flash) else 0

    def _of_layers(
        self, *, outputs: bool, flash: bool, shared: bool = False, copied: int = 0
    ) -> int:
        """Where layers are computed.

        Args:
            outputs: The output layer is computed here too.
            shared: The host and devices both compute, so that some results are held twice.
            copied: Bytes of weights and caches that are brought here from where they lie.
        """
        wide, scores = self._widths, self._keeps_scores(flash)
        kept = (_RESIDUALS + scores) * self._hidden + _F32 * self._tokens * wide.beside
        inner = _F32 * self._tokens * max(wide.feed_forward, wide.experts)
        heads = _F32 * self._tokens * (wide.heads * (10 if scores else 4) + wide.indexer)
        chosen = 0
        if self._h.memory in _INDEXED:
            chosen = _CHOOSING * _F32 * self._tokens * self._widest_cells
        attention = heads + chosen + self._scores(flash) * (2 if shared else 1)
        phases = [inner, attention + self._unpacked(flash)]
        if state := self._h.n_embd_r + self._h.n_embd_s:
            times = _STATES_ON_DEVICE if self._params.devices else _STATES
            rows = times * _F32 * self._rows * state
            phases.append(_F32 * self._tokens * wide.recurrent + rows)
        if outputs:
            logits = self._logits(self._outputs) + 4 * _F32 * self._outputs * self._h.n_embd
            phases.append(logits + (inner if shared else 0))
        return self._inputs(flash) + kept + max(phases) + copied + _FIXED

    def _inputs(self, flash: bool, *, on_host: bool = False) -> int:
        """Masks, and the copies of all inputs that a pipeline holds."""
        scores = self._keeps_scores(flash)
        each = _F32 if scores else _F16
        if self._old_mask:
            each = _F32 if scores or on_host else _F32 + _F16
        masks = self._tokens * sum(self._cells.values()) * each
        return masks + (self._copies - 1) * (masks + 2 * self._hidden)

    def _unpacked(self, flash: bool) -> int:
        """Without flash attention, keys that matrix products do not take as they lie."""
        quantised = _QUANTISED.match(self._params.type_k) is not None
        if flash or not (self._h.is_mla or quantised):
            return 0
        widest = max(map(self._h.k_gqa, range(self._h.n_layer_all)), default=0)
        return _F32 * self._widest_cells * widest

    def _least(self, outputs: bool, alone: bool) -> int:
        """The widest thing that there must be: hidden state, logits, or scores of a whole context.

        Args:
            outputs: The output layer is here.
            alone: All layers are here, so one that looks at the whole context.
        """
        if not self._has_context:
            return 0
        wanted = outputs and not self._params.embeddings
        logits = _F32 * self._asked * self._h.n_vocab if wanted else 0
        heads = min(filter(None, self._h.n_head), default=0)
        off = alone and not self._flash and self._h.causal
        scores = _F32 * heads * self._tokens * self._widest_cells if off else 0
        return max(self._hidden, logits, scores)

    # what a backend may leave to the host

    def _largest(self, flash: bool) -> int:
        """Bytes of the largest tensor that one operation of a layer reads or writes."""
        each = _F32 if self._keeps_scores(flash) else _F16
        wide = max(self._widths.feed_forward // 3, self._widths.experts // 2)
        return max(
            self._scores(flash),
            each * self._tokens * self._widest_cells,
            _F32 * self._tokens * wide,
            self._sizes.tensor,
        )

    def _is_beyond(self, site: Site) -> bool:
        """Whether some operation of a layer may be too large for a device, or unknown to it."""
        if all(map(_COMPLETE.match, site.devices)):
            return False
        recurrent = self._h.n_embd_r + self._h.n_embd_s > 0
        quantised = not self._flash and _QUANTISED.match(self._params.type_k) is not None
        return (
            recurrent
            or quantised
            or max(self._sizes.block, self._largest(self._flash)) >= _LEAST_RANGE
        )

    def _may_lose_flash(self, site: Site) -> bool:
        """Whether ``auto`` may turn flash attention off, as it does where some device has none."""
        if self._params.flash_attn != "auto" or all(map(_COMPLETE.match, site.devices)):
            return False
        if not self._params.offload_kqv and self._h.n_embd_r + self._h.n_embd_s:
            return True
        reach = _LEAST_RANGE if site.software else _USUAL_RANGE
        return self._loses_sinks or self._largest(flash=True) >= reach


def _fetched(size: int) -> int:
    """Room for a weight that is brought here, and what is kept of the one before."""
    return size * 3 // 2


class _Sizes:
    """Bytes of the largest tensors of weights and caches."""

    def __init__(self, header: Header, tensors: Sequence[CacheTensor]) -> None:
        blocks = [t for t in header.tensors if t.name.startswith("blk.")]
        self.block = max((t.bytes for t in blocks), default=0)
        self.experts = max((t.bytes for t in blocks if "exps." in t.name), default=0)
        ends = (t.bytes for t in header.tensors if t.name in ("output.weight", "token_embd.weight"))
        self.output = max(ends, default=0)
        self.tensor = max((t.bytes for t in tensors), default=0)
        layers: dict[int, int] = {}
        for t in tensors:
            layers[t.layer] = layers.get(t.layer, 0) + t.bytes
        self.cache = max(layers.values(), default=0)
        """The caches of one layer: what is copied where they do not lie."""


class _Widths:
    """Elements per token of what is alive at once in each phase of a layer."""

    def __init__(self, header: Header, hparams: Hparams) -> None:
        self._header, self._arch = header, hparams.arch
        h = hparams
        used, each = self._number("expert_used_count"), self._number("expert_feed_forward_length")
        each = each or max(h.n_ff, default=0)
        shared = self._number("expert_shared_feed_forward_length")
        shared = shared or self._number("expert_shared_count") * each
        self.feed_forward = 3 * max(h.n_ff, default=0)
        self.experts = used * 2 * (h.n_embd + each) + 3 * shared
        widest = max(h.head_k, h.head_v, h.head_k_swa)
        self.heads = max(h.n_head, default=0) * widest
        indexers = self._number("attention.indexer.head_count")
        self.indexer = 2 * indexers * h.indexer_head if h.memory in _INDEXED else 0
        per_layer = self._number("embedding_length_per_layer_input")
        per_layer = per_layer or _PER_LAYER.get(h.arch, 0)
        streams = self._number("hyper_connection.count")
        self.beside = 4 * h.n_layer_all * per_layer + 8 * streams * h.n_embd
        inner = self._number("ssm.inner_size")
        taps = max(1, self._number("ssm.conv_kernel") - 1)
        channels = h.n_embd_r // taps if inner else h.n_embd_r
        self.recurrent = 2 * channels + (6 * inner or 12 * h.n_embd)

    def _number(self, key: str) -> int:
        """A dimension; what is none of a model's counts as absent."""
        value = self._header.metadata.get(f"{self._arch}.{key}")
        numbers = value if isinstance(value, tuple) else (value,)
        return max(0, 0, *(int(v) for v in numbers if isinstance(v, int)))
