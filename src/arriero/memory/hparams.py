"""A header's hyperparameters as llama.cpp reads them, per layer, forced values and defaults too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from arriero.base.errors import ModelError
from arriero.gguf import Header, LazyArray
from arriero.memory.architectures import (
    AFTER_10092,
    AFTER_10435,
    ARCHITECTURES,
    SEEN,
    Arch,
    Layers,
    Memory,
    Recurrent,
    State,
    Window,
)

_MAX_LAYERS: Final = 512
_MAX_EMBEDDING: Final = 1 << 31
NEWEST: Final = 1 << 30
"""Stands for a build that is newer than every rule."""
_GLM_LONG_CONTEXT: Final = 1 << 20
"""glm-dsa files from this training context on have fewer indexers than layers (GLM 5.2)."""
_GLM_INDEXERS: Final = (True, True, *(il % 4 == 0 for il in range(76)))

Flags = tuple[bool, ...]
Counts = tuple[int, ...]


class UnknownArchitectureError(ModelError):
    """The header is fine, but nothing is known about what this architecture keeps in memory."""

    default_id = "arch-unknown"


@dataclass(frozen=True, kw_only=True)
class Hparams:
    """What decides the size of KV cache and recurrent state.

    Tuples have one entry per layer, ``n_layer_all`` of them: NextN (MTP) layers, loops and router
    layers included. Sizes are elements; ``n_embd_r`` and ``n_embd_s`` those of one row.
    """

    arch: str
    rules: Arch
    n_layer_all: int
    n_layer_nextn: int
    n_embd: int
    n_embd_out: int
    n_vocab: int
    n_ctx_train: int
    causal: bool
    n_head: Counts
    n_head_kv: Counts
    n_ff: Counts
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    n_swa: int
    """0 where there is no sliding window."""
    is_swa: Flags
    is_mla: bool
    is_recurrent: Flags
    n_embd_r: int = 0
    n_embd_s: int = 0
    ple_state: int = 0
    """qwen4exp: elements of one row of its convolution history, on the layers of ``is_ple``."""
    is_ple: Flags = ()
    n_layer_kv: int | None = None
    """Only so many layers from the start have a cache of their own."""
    nextn_cached: bool = False
    """Any KV cache covers trunk and NextN layers alike."""
    n_layer_dense_lead: int = 0
    indexer_head: int = 0
    is_indexer_full: Flags = ()
    kpool: int = 0
    compress_ratios: Counts = ()

    @property
    def n_layer(self) -> int:
        """Layers of the trunk."""
        return self.n_layer_all - self.n_layer_nextn

    @property
    def memory(self) -> Memory:
        return self.rules.memory

    @property
    def has_window(self) -> bool:
        return any(self.is_swa)

    def k_gqa(self, il: int) -> int:
        return (self.head_k_swa if self.is_swa[il] else self.head_k) * self.n_head_kv[il]

    def v_gqa(self, il: int) -> int:
        return (self.head_v_swa if self.is_swa[il] else self.head_v) * self.n_head_kv[il]

    @property
    def v_gqa_max(self) -> int:
        return max(map(self.v_gqa, range(self.n_layer_all)), default=0)

    def with_one_head(self, key: int) -> Hparams:
        """As an indexer sees the model: one key head of its own size in every layer."""
        return replace(self, n_head_kv=(1,) * self.n_layer_all, head_k=key)


def read_hparams(header: Header, build: int | None = None) -> Hparams:
    """Hyperparameters of a model as a build of llama.cpp takes them.

    Args:
        build: Null for the newest rules known. Where a rule changed between two builds that were
            seen, ``caches.is_doubtful`` says whether it matters.

    Raises:
        UnknownArchitectureError: Nothing is known about the architecture, or this build lacks it.
        ModelError: A key is missing or absurd, so that llama.cpp would refuse the file.
    """
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str) or not arch:
        raise ModelError(f"{header.parts[0].name}: no general.architecture in the header")
    rules = ARCHITECTURES.get(arch)
    if rules is None:
        raise UnknownArchitectureError(
            f"unknown architecture {arch!r}: its caches cannot be sized",
            hint="use an engine that knows it: its dry run tells the sizes",
        )
    if build is not None and build < rules.since:
        raise UnknownArchitectureError(f"build {build} does not know architecture {arch!r}")
    return _Reading(header, arch, rules, NEWEST if build is None else build).hparams()


def lacks(header: Header, build: int | None) -> bool | None:
    """Whether a build does not know the model's architecture; null where nobody can say.

    False for the newest rules (null) of an architecture in the table, null for one that is not.
    """
    rules = ARCHITECTURES.get(str(header.metadata.get("general.architecture")))
    if rules is None:
        return None
    if build is None or not rules.since:
        return False
    if build < rules.since:
        return True
    # between the last build seen without it and the first seen with it
    return False if build >= min(seen for seen in SEEN if seen >= rules.since) else None


class _Reading:
    """One pass over a header's keys, in the order of llama.cpp's ``load_hparams``."""

    def __init__(self, header: Header, arch: str, rules: Arch, build: int) -> None:
        self._header, self._arch, self._rules, self._build = header, arch, rules, build

    def hparams(self) -> Hparams:
        rules = self._rules
        blocks = self._number("block_count")
        if not 0 < blocks <= _MAX_LAYERS:
            raise self._wrong("block_count", f"is {blocks}, not in 1..{_MAX_LAYERS}")
        nextn = self._nextn(blocks)
        n_embd = self._number("embedding_length")
        head = self._per_layer("attention.head_count", blocks) or (0,) * blocks
        head_kv = self._per_layer("attention.head_count_kv", blocks) or head
        n_ff = self._per_layer("feed_forward_length", blocks) or (0,) * blocks
        per_head = n_embd // head[0] if head[0] else 0
        reads_length = head[0] > 0 or self._arch == "plamo2"
        key = self._number("attention.key_length", per_head) if reads_length else 0
        value = self._number("attention.value_length", per_head) if reads_length else 0
        value_swa = self._number("attention.value_length_swa", value)
        if rules.latent_v:
            value = self._number("attention.kv_lora_rank", value)
        h = Hparams(
            arch=self._arch,
            rules=rules,
            n_layer_all=blocks,
            n_layer_nextn=nextn,
            n_embd=n_embd,
            n_embd_out=self._number("embedding_length_out", 0) or n_embd,
            n_vocab=self._vocabulary(),
            n_ctx_train=self._number("context_length"),
            causal=bool(self._header.metadata.get(f"{self._arch}.attention.causal", True)),
            n_head=head,
            n_head_kv=head_kv,
            n_ff=n_ff,
            head_k=key,
            head_v=value,
            head_k_swa=self._number("attention.key_length_swa", key),
            head_v_swa=value_swa,
            n_swa=0,
            is_swa=(False,) * blocks,
            is_mla=rules.mla
            and self._number("attention.key_length_mla", 0) > 0
            and self._number("attention.value_length_mla", 0) > 0,
            is_recurrent=(False,) * blocks,
            nextn_cached=self._build < rules.nextn_filter_since,
        )
        h = self._with_indexer(self._with_recurrent(h))
        h = self._with_window(h)
        return self._with_layers(h)

    # steps

    def _nextn(self, blocks: int) -> int:
        if self._build < self._rules.nextn_since:
            return 0
        nextn = self._number("nextn_predict_layers", 0)
        if nextn > blocks:
            raise self._wrong("nextn_predict_layers", f"is {nextn} of {blocks} layers")
        if self._arch == "deepseek4":
            # counted only if the tensors are there: a file may be converted without them
            probe = f"blk.{blocks - nextn}.nextn.eh_proj.weight"
            if not any(tensor.name == probe for tensor in self._header.tensors):
                return 0
        return nextn

    def _with_recurrent(self, h: Hparams) -> Hparams:
        match self._rules.recurrent:
            case None:
                return h
            case Recurrent.ALL:
                layers = (True,) * h.n_layer_all
            case Recurrent.NO_KV_HEADS:
                counted = h.n_layer_all if self._arch == "glm5-next" else h.n_layer
                layers = tuple(il < counted and heads == 0 for il, heads in enumerate(h.n_head_kv))
            case Recurrent.IDLE:
                layers = tuple(
                    il < h.n_layer and h.n_head_kv[il] == 0 and h.n_ff[il] == 0
                    for il in range(h.n_layer_all)
                )
            case Recurrent.INTERVAL:
                layers = self._interval(h)
        r, s = self._state(h)
        return replace(h, is_recurrent=layers, n_embd_r=r, n_embd_s=s)

    def _interval(self, h: Hparams) -> Flags:
        listed = self._per_layer("attention.recurrent_layers", h.n_layer_all)
        if listed is not None:
            return tuple(map(bool, listed))
        n = self._number("full_attention_interval", self._rules.interval)
        if n <= 0:
            raise self._wrong("full_attention_interval", f"is {n}")
        return tuple(il < h.n_layer and (il + 1) % n != 0 for il in range(h.n_layer_all))

    def _state(self, h: Hparams) -> tuple[int, int]:
        match self._rules.state:
            case State.WKV:
                head = self._number("wkv.head_size")
                return self._number("token_shift_count", 2) * h.n_embd, h.n_embd * head
            case State.SHORT_CONVOLUTION:
                return h.n_embd * max(self._number("shortconv.l_cache") - 1, 0), 0
            case State.KDA:
                head, taps = self._number("kda.head_dim"), self._number("ssm.conv_kernel")
                return 3 * (taps - 1 if taps else 3) * h.n_head[0] * head, head**2 * h.n_head[0]
            case State.LIGHTNING:
                return 0, h.head_k**2 * h.n_head[0]
            case _:
                taps, inner = self._number("ssm.conv_kernel"), self._number("ssm.inner_size")
                state = self._number("ssm.state_size")
                grouped = self._rules.state is State.SSM
                groups = self._number("ssm.group_count") if grouped else 0
                return max(taps - 1, 0) * (inner + 2 * groups * state), state * inner

    def _with_indexer(self, h: Hparams) -> Hparams:
        """Keys of indexed and compressed attention, and qwen4exp's n-gram embedding."""
        full = (True,) * h.n_layer_all
        if self._build < self._rules.indexer_since:
            return replace(h, rules=replace(h.rules, memory=Memory.ATTENTION))
        match self._arch:
            case "deepseek32":
                return replace(h, indexer_head=self._indexer_head())
            case "minimax-m3":
                lead = self._number("leading_dense_block_count", 0)
                return replace(h, indexer_head=self._indexer_head(), n_layer_dense_lead=lead)
            case "glm-dsa":
                if h.n_ctx_train >= _GLM_LONG_CONTEXT:
                    full = (*_GLM_INDEXERS, *(False,) * _MAX_LAYERS)[: h.n_layer_all]
                full = self._indexer_types(h) or full
                return replace(h, indexer_head=self._indexer_head(), is_indexer_full=full)
            case "hy_v4":
                if self._number("attention.indexer.top_k", 0) == 0:
                    plain = replace(h.rules, memory=Memory.ATTENTION)
                    return replace(h, rules=plain, nextn_cached=True)
                full = self._indexer_types(h) or (False,) * h.n_layer_all
                return replace(h, indexer_head=self._indexer_head(), is_indexer_full=full)
            case "dots3note":
                types = self._array("attention.indexer.types", h.n_layer_all)
                return replace(h, indexer_head=self._indexer_head(), is_indexer_full=types)
            case "deepseek4":
                ratios = self._integers("attention.compress_ratios")
                if ratios is None or len(ratios) < h.n_layer_all:
                    raise self._wrong("attention.compress_ratios", "is shorter than block_count")
                ratios = ratios[: h.n_layer_all]
                return replace(h, indexer_head=self._indexer_head(), compress_ratios=ratios)
            case "glm5-next":
                kpool = self._number("attention.indexer.kpool")
                full = self._indexer_types(h) or full
                return replace(
                    h, indexer_head=self._indexer_head(), is_indexer_full=full, kpool=kpool
                )
            case "qwen4exp":
                return self._with_ngrams(h)
            case _:
                return h

    def _with_ngrams(self, h: Hparams) -> Hparams:
        ratios = self._per_layer("attention.compress_ratios", h.n_layer_all) or ()
        layers = self._integers("ple.layers") or ()
        state = 0
        if layers and (self._number("ple.ngram_size") - 1) * self._number("ple.heads_per_ngram"):
            rows = max(self._number("ple.conv_kernel") - 1, 0) * self._number("ple.ngram_size")
            state = rows * self._number("hyper_connection.count") * h.n_embd
        return replace(
            h,
            indexer_head=self._indexer_head(),
            kpool=max(ratios, default=0),
            ple_state=state,
            is_ple=tuple(il in layers for il in range(h.n_layer_all)),
        )

    def _indexer_head(self) -> int:
        return self._number("attention.indexer.key_length")

    def _indexer_types(self, h: Hparams) -> Flags | None:
        types = self._per_layer("attention.indexer.types", h.n_layer)
        if types is None:
            return None
        return (*map(bool, types), *(False,) * h.n_layer_nextn)

    def _with_window(self, h: Hparams) -> Hparams:
        window = self._rules.window
        mixed = self._arch == "dflash" and self._build >= AFTER_10092
        if mixed and self._number("hyper_connection.count", 0) > 0:
            window, h = Window(layers=Layers.ALL), replace(h, nextn_cached=True)
        if window is None:
            return h
        layers = h.n_layer_all if self._build < window.trunk_since else h.n_layer
        tokens = self._window(window, layers)
        if tokens is None:
            return h
        return replace(h, n_swa=tokens, is_swa=self._windowed(window, h, layers))

    def _window(self, window: Window, layers: int) -> int | None:
        if window.only_with_layers not in (None, layers):
            return None
        needed = not window.optional and window.tokens is None and window.forced is None
        said = self._number("attention.sliding_window", None if needed else -1)
        if (window.optional and said <= 0) or (window.off_by_zero and said == 0):
            return None
        if window.forced is not None:
            return window.forced
        if said < 0:
            return window.tokens
        return said

    def _windowed(self, window: Window, h: Hparams, layers: int) -> Flags:
        key = "attention.sliding_window_pattern"
        match window.layers:
            case Layers.ALL:
                return (True,) * h.n_layer_all
            case Layers.ATTENTION:
                return tuple(
                    il < h.n_layer and not recurrent for il, recurrent in enumerate(h.is_recurrent)
                )
            case Layers.ARRAY:
                return self._array(key, h.n_layer_all)
        said = self._header.metadata.get(f"{self._arch}.{key}")
        if isinstance(said, tuple | LazyArray) and self._build >= window.array_since:
            return self._array(key, h.n_layer_all)
        n = (
            window.period
            if isinstance(said, tuple | LazyArray)
            else self._number(key, window.period)
        )
        dense = 0 if window.dense_first else n - 1
        return tuple(il < layers and (n == 0 or il % n != dense) for il in range(h.n_layer_all))

    def _with_layers(self, h: Hparams) -> Hparams:
        """Layers that the file does not count as they are cached."""
        rules = self._rules
        if rules.kv_from_start is not None:
            h = replace(h, n_layer_kv=rules.kv_from_start)
        if rules.shared_kv:
            shared = self._number("attention.shared_kv_layers", 0)
            h = replace(h, n_layer_kv=max(h.n_layer_all - shared, 0))
        loops = self._number("num_loops", 1) if rules.loops else 1
        if loops * h.n_layer > _MAX_LAYERS:
            raise self._wrong("num_loops", f"makes more than {_MAX_LAYERS} layers")
        if loops > 1:
            n = h.n_layer
            h = replace(
                h,
                n_layer_all=n * loops,
                n_head=h.n_head[:n] * loops,
                n_head_kv=h.n_head_kv[:n] * loops,
                n_ff=h.n_ff[:n] * loops,
                is_swa=h.is_swa[:n] * loops,
                is_recurrent=h.is_recurrent[:n] * loops,
            )
        if rules.router_layer:
            n = h.n_layer
            h = replace(
                h,
                n_layer_all=n + 1,
                n_layer_nextn=1,
                nextn_cached=True,
                n_head=(*h.n_head[:n], 1),
                n_head_kv=(*h.n_head_kv[:n], 1),
                n_ff=(*h.n_ff[:n], 0),
                is_swa=(*h.is_swa[:n], False),
                is_recurrent=(*h.is_recurrent[:n], False),
            )
        return h

    # keys

    def _number(self, key: str, default: int | None = None) -> int:
        value = self._header.metadata.get(f"{self._arch}.{key}", default)
        if value is None:
            raise self._wrong(key, "is missing, and llama.cpp needs it")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "is no whole number")
        if not -1 <= value < _MAX_EMBEDDING or (value < 0 and value != default):
            raise self._wrong(key, f"is {value}")
        return value

    def _integers(self, key: str) -> Counts | None:
        value = self._header.metadata.get(f"{self._arch}.{key}")
        if not isinstance(value, tuple):
            return None
        numbers = tuple(int(v) for v in value if isinstance(v, int))
        if len(numbers) != len(value) or any(not 0 <= n < _MAX_EMBEDDING for n in numbers):
            raise self._wrong(key, "holds what is no count")
        return numbers

    def _per_layer(self, key: str, layers: int) -> Counts | None:
        """A number for all layers, or an array of one for each."""
        value = self._header.metadata.get(f"{self._arch}.{key}")
        if value is None:
            return None
        if not isinstance(value, tuple):
            return (self._number(key),) * layers
        if len(value) != layers:
            raise self._wrong(key, f"has {len(value)} entries for {layers} layers")
        return self._integers(key)

    def _array(self, key: str, layers: int) -> Flags:
        """An array of flags; layers beyond its end are off."""
        value = self._integers(key)
        if value is None and self._build < AFTER_10435:
            value = self._per_layer(key, layers)
        if value is None:
            raise self._wrong(key, "is no array, and llama.cpp needs one")
        return (*(bool(v) for v in value[:layers]), *(False,) * (layers - len(value)))

    def _vocabulary(self) -> int:
        tokens = self._header.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, LazyArray):
            return tokens.count
        return self._number("vocab_size", 0)

    def _wrong(self, key: str, what: str) -> ModelError:
        return ModelError(f"{self._header.parts[0].name}: {self._arch}.{key} {what}")
