"""A command as llama.cpp's C API gets it: the server's arithmetic between flags and parameters.

Sources: ``tools/server/server.cpp``, ``common/arg.cpp``, ``common/common.cpp`` and
``common/speculative.cpp`` of builds 10435 and 11434.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, cast

from arriero.base.sizes import MIB
from arriero.command import Command
from arriero.launch.builds import AFTER_10435
from arriero.launch.params import EngineParams
from arriero.launch.slots import Slots, slots_of

DEFAULT_CACHE_MIB: Final = 8192
"""``--cache-ram`` (common/common.h)."""
DEFAULT_CHECKPOINTS: Final = 32
"""``--ctx-checkpoints`` per slot (common/common.h)."""
DEFAULT_FIT_TARGET: Final = 1024 * MIB
"""``--fit-target``: what the engine's own fit leaves free on each device."""
DEFAULT_FIT_CONTEXT: Final = 4096
_DEFAULT_DRAFT: Final = 3
_MAX_LAYERS: Final = 512
_EXPERTS: Final = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""Tensors of experts, as ``--cpu-moe`` names them (common/common.h)."""
_ROLLING: Final = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
"""Kinds of speculation that need state to roll back to."""
_DRAFTING: Final = _ROLLING | {"draft-simple"}
_NGRAM_LENGTHS: Final = {
    "ngram-simple": ("--spec-ngram-simple-size-m", 48),
    "ngram-map-k": ("--spec-ngram-map-k-size-m", 48),
    "ngram-map-k4v": ("--spec-ngram-map-k4v-size-m", 48),
    "ngram-mod": ("--spec-ngram-mod-n-max", 64),
}
_NO_MMAP: Final = frozenset({"none", "mlock", "dio"})


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What decides the memory of one server.

    ``params`` can be answered by the formulas and by the engine alike.
    """

    params: EngineParams
    slots: Slots
    context_given: bool
    """Whether the command sets the context; otherwise the model does and ``--fit`` may shrink."""
    fit: bool
    fit_targets: tuple[int, ...] = (DEFAULT_FIT_TARGET,)
    """Bytes that fit keeps free on each device; one figure is for all of them."""
    layers_given: int | None = None
    """``-ngl`` as llama.cpp numbers it, null where it is left to the engine; -2 is ``all``."""
    fit_ctx: int = DEFAULT_FIT_CONTEXT
    """The least context that fit takes, per slot where slots are separate."""
    mmap: bool = True
    cache_ram: int | None = DEFAULT_CACHE_MIB * MIB
    """Limit of the prompt cache in bytes; null where nothing limits it."""
    checkpoints: int = DEFAULT_CHECKPOINTS
    speculation: tuple[str, ...] = ()
    draft_model: str | None = None
    draft: EngineParams | None = None
    """The context that drafts, of a model of its own or of this model's NextN layers. Its context
    is the command's, and its devices are null unless the command names them for it."""

    def fit_target(self, device: int) -> int:
        """Bytes that fit keeps free on a device, by its place in the engine's list."""
        if len(self.fit_targets) == 1:
            return self.fit_targets[0]
        return dict(enumerate(self.fit_targets)).get(device, DEFAULT_FIT_TARGET)

    def fixed_for_fit(self, devices: int) -> str:
        """Why fit may not move weights; empty if it may."""
        if self.layers_given is not None:
            return f"-ngl is set to {'all' if self.layers_given < 0 else self.layers_given}"
        if devices > 1 and any(self.params.tensor_split):
            return "-ts is set"
        if devices > 1 and self.params.split_mode == "row":
            return "it knows no -sm row"
        return "-ot, -cmoe or -ncmoe is set" if self.params.overrides else ""

    @property
    def overrides(self) -> tuple[tuple[str, str], ...]:
        """Pattern and buffer type of ``-ot``, ``-cmoe`` and ``-ncmoe``, in order."""
        return self.params.overrides


def launch_of(
    command: Command,
    model: Path,
    *,
    n_ctx_train: int = 0,
    build: int | None = None,
    n_ctx: int | None = None,
    n_seq_max: int | None = None,
    kv_unified: bool | None = None,
    n_ubatch: int | None = None,
) -> Launch:
    """What the server makes of a command.

    Args:
        n_ctx_train: The model's training context; a command without ``-c`` may ask for several.
        build: For defaults that changed.
        n_ctx, n_seq_max, kv_unified, n_ubatch: In place of what the command says.
    """
    given = slots_of(command)
    slots = given.count if n_seq_max is None else n_seq_max
    unified = given.unified if kv_unified is None else kv_unified
    fit = command.value("--fit") not in ("off", "0", "false", "disabled")
    asked = command.number("-c")
    tokens = _tokens(command, slots, unified, fit, n_ctx_train, build) if n_ctx is None else n_ctx
    embedding = command.switch("--embedding") is True or command.switch("--rerank") is True
    ubatch = n_ubatch or command.number("-ub") or 512
    batch = command.number("-b") or 2048
    speculation = _speculation(command)
    drafted = _drafted(command, speculation)
    n_batch = min(batch, ubatch) if embedding else batch
    type_v = command.value("-ctv") or "f16"
    request = EngineParams(
        model=model,
        n_ctx=tokens,
        # an embedding server reads a prompt in one piece: its batch is its micro-batch
        n_batch=n_batch,
        n_ubatch=ubatch,
        n_seq_max=slots,
        kv_unified=unified,
        n_rs_seq=drafted if _ROLLING & set(speculation) else 0,
        n_outputs_max=n_batch if embedding else max(1, min(n_batch, slots * (1 + drafted))),
        n_outputs_max_per_seq=1 if embedding else max(1, min(n_batch, 1 + drafted)),
        type_k=command.value("-ctk") or "f16",
        type_v=type_v,
        flash_attn=_flash_attn(command, type_v),
        swa_full=command.switch("--swa-full") is True,
        offload_kqv=command.switch("--kv-offload") is not False,
        op_offload=command.switch("--op-offload") is not False,
        embeddings=embedding,
        n_gpu_layers=_layers(command),
        split_mode=_split_mode(command),
        main_gpu=command.number("-mg") or 0,
        tensor_split=_tensor_split(command),
        devices=_devices(command),
        use_extra_bufts=command.switch("--repack") is not False,
        no_host=command.switch("--no-host") is True,
        load_mtp="draft-mtp" in speculation,
        overrides=tuple(_overrides(command)),
    )
    cache = command.number("-cram")
    cache = DEFAULT_CACHE_MIB if cache is None else cache
    checkpoints = command.number("-ctxcp")
    return Launch(
        params=request,
        slots=Slots(count=slots, unified=unified, given=given.given or n_seq_max is not None),
        context_given=n_ctx is not None
        or asked is not None
        or bool(command.number("--kv-unified-per-slot")),
        fit=fit,
        fit_targets=_fit_targets(command),
        layers_given=_layers_given(command),
        fit_ctx=command.number("-fitc") or DEFAULT_FIT_CONTEXT,
        mmap=_mmap(command),
        cache_ram=_cache(command, cache),
        checkpoints=_checkpoints(command, checkpoints),
        speculation=speculation,
        draft_model=command.value("-md"),
        draft=_draft(command, request, speculation),
    )


def request_of(
    command: Command,
    model: Path,
    *,
    n_ctx: int,
    n_seq_max: int,
    kv_unified: bool,
    n_ubatch: int | None = None,
) -> EngineParams:
    """One point of a command's settings, as the engine can be asked for it."""
    return launch_of(
        command, model, n_ctx=n_ctx, n_seq_max=n_seq_max, kv_unified=kv_unified, n_ubatch=n_ubatch
    ).params


# --- context ------------------------------------------------------------------------------------


def _tokens(
    command: Command, slots: int, unified: bool, fit: bool, n_ctx_train: int, build: int | None
) -> int:
    """``-c``, or what stands for it: 0 is the model's own training context."""
    asked = command.number("-c")
    if asked:
        return max(0, asked)
    each = command.number("--kv-unified-per-slot")
    if asked is None and each:
        return slots * each
    # since a build after 10435 fit asks for the whole training context for each separate slot
    if fit and not unified and (build is None or build >= AFTER_10435):
        return n_ctx_train * slots
    return 0


def _flash_attn(command: Command, type_v: str) -> Literal["auto", "on", "off"]:
    said = command.value("-fa") or "auto"
    said = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off"}.get(said, said)
    if said == "auto" and type_v not in ("f32", "f16", "bf16"):
        return "on"  # a quantised V cache needs it, and auto then means on
    return cast(Literal["auto", "on", "off"], said if said in ("on", "off") else "auto")


def _speculation(command: Command) -> tuple[str, ...]:
    """Kinds of speculation. A draft model alone is one only where there is no flag for the kind:
    elsewhere it is loaded with its context, and nothing drafts (seen on four builds since 10068).
    """
    said = command.value("--spec-type") or ""
    kinds = tuple(kind for kind in re.split(r"[,\s]+", said) if kind and kind != "none")
    if not kinds and command.has("-md") and not command.flags.knows("--spec-type"):
        return ("draft-simple",)
    return kinds


def _draft(
    command: Command, request: EngineParams, speculation: tuple[str, ...]
) -> EngineParams | None:
    """``common_base_params_to_speculative`` (common/speculative.cpp)."""
    own, mtp = command.value("-md"), "draft-mtp" in speculation
    if own is None and not mtp:
        return None
    type_v = command.value("-ctvd") or "f16"
    draft = replace(
        request,
        n_rs_seq=0,
        n_outputs_max=request.n_seq_max,
        n_outputs_max_per_seq=1,
        type_k=command.value("-ctkd") or "f16",
        type_v=type_v,
        flash_attn=_flash_attn(command, type_v),
        ctx_type="mtp" if mtp else "default",
    )
    if own is None:
        return draft
    return replace(
        draft,
        model=Path(own),
        n_gpu_layers=_layers(command, "-ngld"),
        devices=_devices(command, "-devd"),
        overrides=tuple(_overrides(command, "-otd", "-cmoed", "-ncmoed")),
        load_mtp=False,
    )


def _drafted(command: Command, speculation: tuple[str, ...]) -> int:
    """The most tokens that a slot drafts at once."""
    most = 0
    for kind in speculation:
        if kind in _DRAFTING:
            said = command.number("--spec-draft-n-max")
            most = max(most, _DEFAULT_DRAFT if said is None else said)
        elif kind in _NGRAM_LENGTHS:
            flag, default = _NGRAM_LENGTHS[kind]
            said = command.number(flag)
            most = max(most, default if said is None else said)
    return most


# --- placement ----------------------------------------------------------------------------------


def _layers(command: Command, flag: str = "-ngl") -> int:
    """``-ngl``; ``auto`` and ``all`` are every layer."""
    said = command.number(flag)
    return -1 if said is None or said < 0 else said


def _layers_given(command: Command) -> int | None:
    said = -2 if command.value("-ngl") == "all" else command.number("-ngl")
    return None if said == -1 else said


def _split_mode(command: Command) -> Literal["none", "layer", "row", "tensor"]:
    said = command.value("-sm") or "layer"
    if said not in ("none", "layer", "row", "tensor"):
        said = "layer"
    return cast(Literal["none", "layer", "row", "tensor"], said)


def _tensor_split(command: Command) -> tuple[float, ...]:
    said = command.value("-ts")
    if not said:
        return ()
    parts = re.findall(r"[-+]?(?:\d+\.?\d*|\.\d+)", said)
    return tuple(float(part) for part in parts)


def _devices(command: Command, flag: str = "-dev") -> tuple[str, ...] | None:
    said = command.value(flag)
    if not said:
        return None
    if said == "none":
        return ()
    return tuple(name.strip() for name in said.split(",") if name.strip())


def _overrides(command: Command, *names: str) -> Iterator[tuple[str, str]]:
    """Variables come before flags, as llama.cpp applies them, and flags in their order."""
    flags = {name: command.flags.get(name) for name in names or ("-ot", "-cmoe", "-ncmoe")}
    for name, flag in flags.items():
        if flag is not None and command.count(name) == 0 and (value := command.value(name)):
            yield from _override(name, value)
    for item in command.items:
        for name, flag in flags.items():
            if flag is not None and item.flag is flag:
                yield from _override(name, item.value)


def _override(name: str, value: str) -> Iterator[tuple[str, str]]:
    if name in ("-cmoe", "-cmoed"):
        if value == "on":
            yield _EXPERTS, "CPU"
    elif name in ("-ncmoe", "-ncmoed"):
        match = re.match(r"\d+", value)
        count = min(int(match[0]) if match else 0, _MAX_LAYERS)
        if count:
            layers = "|".join(map(str, range(count)))
            yield rf"blk\.(?:{layers}){_EXPERTS}", "CPU"
    else:
        for part in value.split(","):
            pattern, equals, buffer = part.partition("=")
            if equals:
                yield pattern, buffer.strip()


def _mmap(command: Command) -> bool:
    mode = command.value("-lm")
    if mode is not None and mode != "auto":
        return mode not in _NO_MMAP
    if command.switch("-dio") is True:
        return False
    return command.switch("--mmap") is not False


# --- host ---------------------------------------------------------------------------------------


def _fit_targets(command: Command) -> tuple[int, ...]:
    parts = re.split(r"[,/]+", command.value("-fitt") or "")
    sizes = [re.match(r"\d+", part) for part in parts]
    return tuple(int(size[0]) * MIB for size in sizes if size) or (DEFAULT_FIT_TARGET,)


def _cache(command: Command, mib: int) -> int | None:
    if command.flags.get("-cram") is None:
        return 0
    return None if mib < 0 else mib * MIB


def _checkpoints(command: Command, count: int | None) -> int:
    if command.flags.get("-ctxcp") is None:
        return 0
    return DEFAULT_CHECKPOINTS if count is None else max(0, count)
