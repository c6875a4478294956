"""KV cache and recurrent state of a context, tensor by tensor.

The formulas restate llama.cpp's memory objects (``src/llama-kv-cache*.cpp``,
``src/llama-memory-*.cpp``); they were equal to the engine's own account in every case compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from arriero.base.words import Component
from arriero.gguf import Header
from arriero.gguf.format import TYPES_BY_NAME, TensorType
from arriero.launch.attention import CACHE_TYPES
from arriero.launch.context import Context, context, pad
from arriero.launch.params import EngineParams
from arriero.memory.architectures import AFTER_10092, SEEN, Filter, Memory
from arriero.memory.hparams import Hparams, UnknownArchitectureError, read_hparams

CPU_ALIGNMENT: Final = 32
_F32: Final = 4
_CSA_RATIO: Final = 4
_HCA_RATIO: Final = 128
_UNQUANTISED: Final = frozenset({"f32", "f16", "bf16"})


@dataclass(frozen=True)
class CacheTensor:
    """One tensor of a cache: ``cache`` is which one, ``layer`` decides the device it is on.

    ``bytes`` is without the padding to the alignment of its buffer. ``cells`` is the number of
    cells of its cache, all streams together; 0 for recurrent state.
    """

    component: Component
    cache: str
    layer: int
    bytes: int
    cells: int = 0

    def padded(self, alignment: int = CPU_ALIGNMENT) -> int:
        """Bytes that it takes in a buffer."""
        return pad(self.bytes, alignment)


@dataclass(frozen=True)
class Effective:
    """What the context makes of the settings asked for (src/llama-context.cpp)."""

    context: Context
    n_batch: int
    n_ubatch: int
    n_rs_seq: int
    n_outputs_max: int
    flash_attn: bool
    """As it counts for the layout of V: ``auto`` is on."""


def effective(hparams: Hparams, params: EngineParams, build: int | None = None) -> Effective:
    """The effective values of what was asked for."""
    tokens = params.n_ctx or hparams.n_ctx_train
    n_batch = min(tokens, params.n_batch) if hparams.causal else params.n_batch
    n_rs_seq = params.n_rs_seq if rolls_back(hparams, build) else 0
    outputs = params.n_outputs_max
    if outputs is None:
        outputs = min(params.n_batch, params.n_seq_max * (1 + params.n_rs_seq))
        outputs = params.n_batch if params.embeddings else outputs
    flash = params.flash_attn != "off" and not hparams.rules.no_flash_attention
    return Effective(
        context=context(tokens, params.n_seq_max, unified=params.kv_unified),
        n_batch=n_batch,
        n_ubatch=min(n_batch, params.n_ubatch or params.n_batch),
        n_rs_seq=n_rs_seq,
        n_outputs_max=n_batch if hparams.rules.encoder else outputs,
        flash_attn=flash,
    )


def rolls_back(hparams: Hparams, build: int | None = None) -> bool:
    """Whether the memory keeps planes of state for drafted tokens."""
    since = hparams.rules.rollback_since
    return since is not None and (build is None or build >= since)


def builds_around(build: int | None) -> tuple[int, ...]:
    """The builds seen before and after one that was not; empty if its rules are known."""
    if build is None or build in SEEN or build > SEEN[-1]:
        return ()
    older = max((seen for seen in SEEN if seen < build), default=SEEN[0])
    return older, min(seen for seen in SEEN if seen > build)


def is_doubtful(header: Header, params: EngineParams, build: int | None) -> bool:
    """Whether a rule that matters here changed between two builds seen, this one in between."""
    try:
        sizes = {
            total(cache_tensors(read_hparams(header, seen), params, seen))
            for seen in builds_around(build)
        }
    except UnknownArchitectureError:
        return False
    return len(sizes) > 1


def refusal(hparams: Hparams, params: EngineParams, build: int | None = None) -> str | None:
    """Why ``llama_init_from_model`` would refuse these settings; null if it would not.

    Args:
        build: Until 10092 two types were let pass where K and V are one.
    """
    for name in (params.type_k, params.type_v):
        if name not in CACHE_TYPES:
            return f"no such cache type: {name}"
    if effective(hparams, params, build).n_outputs_max < params.n_seq_max:
        return f"{params.n_seq_max} slots need a batch (-b) of at least as many tokens"
    type_k, type_v = TYPES_BY_NAME[params.type_k], TYPES_BY_NAME[params.type_v]
    k_only = hparams.is_mla or hparams.memory is Memory.DSV4
    one_type = k_only and (build is None or build >= AFTER_10092)
    off = params.flash_attn == "off" or hparams.rules.no_flash_attention
    if one_type and type_k != type_v:
        return (
            f"this model needs one cache type for both K and V, not {type_k.name} and {type_v.name}"
        )
    if type_v.name not in _UNQUANTISED and off:
        return "a quantised V cache needs flash attention"
    if off:
        return None
    for il in range(hparams.n_layer):
        swa = hparams.is_swa[il]
        heads = (
            (type_k, hparams.head_k_swa if swa else hparams.head_k, "K"),
            (type_v, hparams.head_v_swa if swa else hparams.head_v, "V"),
        )
        for kind, size, name in heads:
            if size % kind.block:
                return f"heads of {size} elements cannot be cached as {kind.name} ({name})"
    return None


def cache_tensors(
    hparams: Hparams, params: EngineParams, build: int | None = None
) -> tuple[CacheTensor, ...]:
    """Every tensor of the context's memory; empty for a model that keeps nothing.

    Args:
        params: With ``ctx_type`` ``mtp``, the draft context of the model's own NextN layers.
        build: For rules that changed between builds.
    """
    return tuple(_Caches(hparams, params, effective(hparams, params, build)).tensors())


def total(
    tensors: Iterable[CacheTensor],
    component: Component | None = None,
    alignment: int = CPU_ALIGNMENT,
) -> int:
    """Bytes in buffers, of one component or of all."""
    return sum(t.padded(alignment) for t in tensors if component in (None, t.component))


Keep = Callable[[int], bool]


class _Caches:
    def __init__(self, hparams: Hparams, params: EngineParams, eff: Effective) -> None:
        self._h, self._params, self._eff = hparams, params, eff
        self._cells = eff.context.n_ctx_seq
        self._streams = 1 if params.kv_unified else eff.context.n_seq_max
        self._type_k = TYPES_BY_NAME[params.type_k]
        self._type_v = TYPES_BY_NAME[params.type_v]
        self._mtp = params.ctx_type == "mtp"

    def tensors(self) -> Iterator[CacheTensor]:
        match self._h.memory:
            case Memory.NONE:
                return
            case Memory.ATTENTION:
                yield from self._attention(self._h, self._attended)
            case Memory.DSA:
                yield from self._dsa(self._attended)
            case Memory.DSA_ISWA:
                yield from self._dsa_iswa()
            case Memory.DSV4:
                yield from self._dsv4()
            case Memory.MSA:
                yield from self._kv("main", self._h, self._everything, self._cells)
                index = self._h.with_one_head(self._h.indexer_head)
                lead = self._h.n_layer_dense_lead
                yield from self._kv("indexer", index, lambda il: il >= lead, self._cells)
            case Memory.RECURRENT:
                yield from self._rs(self._everything)
            case Memory.HYBRID | Memory.HYBRID_IDX:
                yield from self._hybrid()

    # which layers

    def _everything(self, il: int) -> bool:
        return True

    def _nextn(self, il: int) -> bool:
        return il >= self._h.n_layer

    def _trunk(self, il: int) -> bool:
        return il < self._h.n_layer

    def _attended(self, il: int) -> bool:
        """Layers in the KV cache of a model without recurrent ones."""
        h = self._h
        if h.n_layer_nextn == 0 or h.n_layer == 0 or h.nextn_cached:
            return True
        return self._nextn(il) if self._mtp else self._trunk(il)

    def _attended_hybrid(self, il: int) -> bool:
        h = self._h
        match h.rules.attention:
            case Filter.ALL:
                return True
            case Filter.NOT_RECURRENT:
                return not h.is_recurrent[il]
            case Filter.TRUNK:
                return self._trunk(il) and not h.is_recurrent[il]
            case Filter.IDLE:
                return not h.is_recurrent[il] and h.n_ff[il] == 0

    # the memory objects

    def _attention(
        self, h: Hparams, keep: Keep, *, streams: int | None = None
    ) -> Iterator[CacheTensor]:
        if not h.has_window:
            yield from self._kv("main", h, keep, self._cells, streams)
            return
        main, swa = self._by_window(keep)
        yield from self._kv("main", h, main, self._cells, streams)
        yield from self._kv("swa", h, swa, self._swa_cells(streams), streams)

    def _by_window(self, keep: Keep) -> tuple[Keep, Keep]:
        is_swa = self._h.is_swa
        return lambda il: keep(il) and not is_swa[il], lambda il: keep(il) and is_swa[il]

    def _swa_cells(self, streams: int | None = None) -> int:
        if self._params.swa_full:
            return self._cells
        shared = self._params.kv_unified and streams is None
        sequences = self._eff.context.n_seq_max if shared else 1
        return pad(min(self._cells, self._h.n_swa * sequences + self._eff.n_ubatch))

    def _dsa(self, main: Keep) -> Iterator[CacheTensor]:
        h = self._h
        if self._mtp and h.n_layer_nextn and not h.nextn_cached:
            yield from self._kv("main", h, self._nextn, self._cells)
            return
        yield from self._kv("main", h, main, self._cells)
        yield from self._indexer(h)

    def _indexer(self, h: Hparams) -> Iterator[CacheTensor]:
        full = h.is_indexer_full or (True,) * h.n_layer_all
        index = h.with_one_head(h.indexer_head)
        keep: Keep = lambda il: full[il] and (h.nextn_cached or self._trunk(il))  # noqa: E731 - a filter like the others
        yield from self._kv("indexer", index, keep, self._cells)

    def _dsa_iswa(self) -> Iterator[CacheTensor]:
        h = self._h
        if self._mtp and h.n_layer_nextn:
            yield from self._kv("main", h, self._nextn, self._cells)
            return
        main, swa = self._by_window(self._trunk)
        yield from self._dsa(main)
        yield from self._kv("swa", h, swa, self._swa_cells())

    def _dsv4(self) -> Iterator[CacheTensor]:
        """Always a stream per slot, whatever ``--kv-unified`` says; K only."""
        h, slots = self._h, self._eff.context.n_seq_max
        if self._mtp:
            yield from self._attention(h, self._nextn)
            return
        k_only = replace(h, is_mla=True)
        yield from self._attention(k_only, self._everything, streams=slots)
        index = replace(k_only.with_one_head(h.indexer_head), head_k_swa=h.indexer_head)
        compressed: tuple[tuple[str, Hparams, int], ...] = (
            ("csa", k_only, _CSA_RATIO),
            ("hca", k_only, _HCA_RATIO),
            ("indexer", index, _CSA_RATIO),
        )
        for name, seen, ratio in compressed:
            cells = pad(max(1, -(-self._cells // ratio)))
            yield from self._kv(name, seen, self._compressed(ratio), cells, slots)
        head = h.head_k_swa if h.is_swa[0] else h.head_k
        states = (
            ("csa", _CSA_RATIO, 2 * _CSA_RATIO * 2 * head),
            ("hca", _HCA_RATIO, _HCA_RATIO * head),
            ("indexer", _CSA_RATIO, 2 * _CSA_RATIO * 2 * h.indexer_head),
        )
        planes = slots * (1 + self._eff.n_rs_seq)
        for name, ratio, elements in states:
            for il in filter(self._compressed(ratio), range(h.n_layer)):
                for _ in ("kv", "score"):
                    size = _F32 * elements * planes
                    yield CacheTensor(Component.KV, f"{name} compressor", il, size)

    def _compressed(self, ratio: int) -> Keep:
        return lambda il: self._h.compress_ratios[il] == ratio

    def _hybrid(self) -> Iterator[CacheTensor]:
        h = self._h
        indexed = h.memory is Memory.HYBRID_IDX
        if self._mtp and h.rules.draft_head:
            yield from self._kv("main", h, self._nextn, self._cells)
            if indexed:
                yield from self._pooled_indexer(self._nextn)
            return
        yield from self._attention(h, self._attended_hybrid)
        if indexed and h.indexer_head:
            full = h.is_indexer_full or (True,) * h.n_layer_all
            yield from self._pooled_indexer(lambda il: self._attended_hybrid(il) and full[il])
        yield from self._rs(lambda il: h.is_recurrent[il])

    def _pooled_indexer(self, keep: Keep) -> Iterator[CacheTensor]:
        h = self._h
        rows = h.rules.pooled_rows if h.kpool else 1
        index = replace(h.with_one_head(h.indexer_head * rows), is_mla=True)
        yield from self._kv("indexer", index, keep, self._cells)

    # the tensors

    def _kv(
        self, name: str, h: Hparams, keep: Keep, cells: int, streams: int | None = None
    ) -> Iterator[CacheTensor]:
        """One ``llama_kv_cache``: K and, unless the model compresses both into one, V."""
        every = cells * (self._streams if streams is None else streams)
        cached = h.n_layer_all if h.n_layer_kv is None else min(h.n_layer_kv, h.n_layer_all)
        widest = 0 if self._eff.flash_attn else h.v_gqa_max
        for il in filter(keep, range(cached)):
            yield _tensor(name, il, self._type_k, h.k_gqa(il), every)
            if not h.is_mla:
                yield _tensor(name, il, self._type_v, widest or h.v_gqa(il), every)

    def _rs(self, keep: Keep) -> Iterator[CacheTensor]:
        """``llama_memory_recurrent``: always f32, one row per slot and plane."""
        h = self._h
        rows = max(1, self._eff.context.n_seq_max) * (1 + self._eff.n_rs_seq)
        for il in filter(keep, range(h.n_layer)):
            sizes = [h.n_embd_r, h.n_embd_s]
            if h.ple_state and h.is_ple[il]:
                sizes.append(h.ple_state)
            for size in sizes:
                yield CacheTensor(Component.RS, "rs", il, _F32 * size * rows)


def _tensor(name: str, il: int, kind: TensorType, elements: int, cells: int) -> CacheTensor:
    return CacheTensor(Component.KV, name, il, kind.row(elements) * cells, cells)


def output_bytes(hparams: Hparams, params: EngineParams) -> int:
    """The output buffer as it is first reserved: one row of logits per slot."""
    rows = max(1, params.n_seq_max)
    embeddings = params.embeddings or hparams.arch == "t5"
    return _F32 * rows * (hparams.n_vocab + (hparams.n_embd_out if embeddings else 0))
