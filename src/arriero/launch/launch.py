"""A command as llama.cpp's C API gets it: the server's arithmetic between flags and parameters.

What each flag means is in the module of its subject (``slots``, ``context``, ``placement``, ...);
here it is put together, once for each command. Nothing to the right reads these flags.

Sources: ``tools/server/server.cpp``, ``common/arg.cpp``, ``common/common.cpp`` and
``common/speculative.cpp`` of builds 10435 and 11434.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arriero.command import Command
from arriero.launch import attention, caches, drafting, placement
from arriero.launch.batch import Batch, batch_of, is_embedding
from arriero.launch.context import asked_context, tokens_of
from arriero.launch.fit import DEFAULT_FIT_TARGET, fit_context, fit_targets, fits
from arriero.launch.loading import loading_of
from arriero.launch.params import EngineParams, ProjectorParams
from arriero.launch.projector import projector_of
from arriero.launch.slots import Slots, slots_of


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What decides the memory of one server.

    ``params`` can be answered by the formulas and by the engine alike.
    """

    params: EngineParams
    slots: Slots
    batch: Batch
    context_given: bool
    """Whether the command sets the context; otherwise the model does and ``--fit`` may shrink."""
    context_asked: int | None
    """``-c`` as the command has it: 0 is the model's own, null where it is left out."""
    fit: bool
    fit_targets: tuple[int, ...]
    """Bytes that fit keeps free on each device; one figure is for all of them."""
    fit_ctx: int
    """The least context that fit takes, per slot where slots are separate."""
    layers_given: int | None
    """``-ngl`` as llama.cpp numbers it, null where it is left to the engine; -2 is ``all``."""
    layers_open: bool
    """Whether ``-ngl`` is left to the engine; a variable that nobody has filled in is not."""
    expert_layers: int | None
    """``-ncmoe``: so many first layers keep their experts on the host; null where ``-cmoe`` or
    ``-ot`` decide."""
    workers: tuple[str, ...]
    """Endpoints of the RPC workers, each once."""
    mmap: bool
    """Whether the weights are pages of the file."""
    mlock: bool
    cache_ram: int | None
    """Limit of the prompt cache in bytes; null where nothing limits it."""
    checkpoints: int
    """The most context checkpoints that a slot keeps."""
    speculation: tuple[str, ...]
    draft_model: str | None
    draft_source: str | None
    """The file or the repository of a model that drafts, as typed."""
    draft: EngineParams | None
    """The context that drafts, of a model of its own or of this model's NextN layers. Its context
    is the command's, and its devices are null unless the command names them for it."""
    projector: ProjectorParams | None
    http_threads: int | None
    """``--threads-http``; null where the server goes by its slots and the CPU."""
    warmup: bool

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
    model: Path | None = None,
    *,
    n_ctx_train: int = 0,
    build: int | None = None,
) -> Launch:
    """What the server makes of a command.

    Args:
        model: The file to put into the parameters, where it is not the one that the command names.
        n_ctx_train: The model's training context; a command without ``-c`` may ask for several.
        build: For defaults that changed.
    """
    slots, asked = slots_of(command), asked_context(command)
    may_fit, kinds = fits(command), drafting.speculation(command)
    tokens = tokens_of(asked, slots, fit=may_fit, n_ctx_train=n_ctx_train, build=build)
    loading = loading_of(command)
    model = model or Path(command.model_path() or "")
    params = _params(command, model, slots, tokens, kinds)
    return Launch(
        params=params,
        slots=slots,
        batch=batch_of(command),
        context_given=asked.given,
        context_asked=asked.tokens,
        fit=may_fit,
        fit_targets=fit_targets(command),
        fit_ctx=fit_context(command),
        layers_given=placement.layers_given(command),
        layers_open=placement.layers_open(command),
        expert_layers=placement.expert_layers(command),
        workers=placement.workers(command),
        mmap=loading.mapped,
        mlock=loading.locked,
        cache_ram=caches.prompt_cache(command),
        checkpoints=caches.checkpoints(command),
        speculation=kinds,
        draft_model=drafting.draft_model(command),
        draft_source=drafting.draft_source(command),
        draft=drafting.draft(command, params, kinds),
        projector=projector_of(command, build),
        http_threads=command.number("--threads-http"),
        warmup=command.switch("--warmup") is not False,
    )


def _params(
    command: Command, model: Path, slots: Slots, tokens: int, kinds: tuple[str, ...]
) -> EngineParams:
    batch, embedding = batch_of(command), is_embedding(command)
    # an embedding server reads a prompt in one piece: its batch is its micro-batch
    n_batch = min(batch.tokens, batch.ubatch) if embedding else batch.tokens
    drafted = drafting.drafted(command, kinds)
    type_v = attention.cache_type(command, "-ctv")
    return EngineParams(
        model=model,
        n_ctx=tokens,
        n_batch=n_batch,
        n_ubatch=batch.ubatch,
        n_seq_max=slots.count,
        kv_unified=slots.unified,
        n_rs_seq=drafted if drafting.rolls_back(kinds) else 0,
        n_outputs_max=n_batch if embedding else max(1, min(n_batch, slots.count * (1 + drafted))),
        n_outputs_max_per_seq=1 if embedding else max(1, min(n_batch, 1 + drafted)),
        type_k=attention.cache_type(command, "-ctk"),
        type_v=type_v,
        flash_attn=attention.flash_attn(command, type_v),
        swa_full=attention.swa_full(command),
        offload_kqv=command.switch("--kv-offload") is not False,
        op_offload=command.switch("--op-offload") is not False,
        embeddings=embedding,
        n_gpu_layers=placement.layers(command),
        split_mode=placement.split_mode(command),
        main_gpu=command.number("-mg") or 0,
        tensor_split=placement.tensor_split(command),
        devices=placement.devices(command),
        use_extra_bufts=command.switch("--repack") is not False,
        no_host=command.switch("--no-host") is True,
        load_mtp="draft-mtp" in kinds,
        overrides=placement.overrides(command),
    )
