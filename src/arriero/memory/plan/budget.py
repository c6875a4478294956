"""The budget: one line per component and device, with its method, and whether pools hold it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, Literal

import msgspec

from arriero.base.sizes import human
from arriero.base.words import Component, Method
from arriero.engine.oracle import (
    DryRun,
    EngineParams,
    ProjectorBuffer,
    ProjectorParams,
    ProjectorRun,
    Unanswered,
)
from arriero.gguf import Header
from arriero.launch.builds import AFTER_10435
from arriero.launch.context import PAD, pad
from arriero.machine.pools import SOFTWARE
from arriero.memory.architectures import Memory
from arriero.memory.caches import (
    CacheTensor,
    Effective,
    builds_around,
    cache_tensors,
    effective,
    is_doubtful,
    output_bytes,
    refusal,
    total,
)
from arriero.memory.calibration import corrected, run_settings
from arriero.memory.compute import (
    Bound,
    ComputeBound,
    Site,
    widest_activation,
    workspace_bound,
)
from arriero.memory.cuda import cuda_terms
from arriero.memory.dry_runs import Answers
from arriero.memory.fit import Placement, Setup, Used, fitted, said_of_fit
from arriero.memory.host import (
    CHECKPOINTS_OF_A_TURN,
    checkpoint_bytes,
    graph_bound,
    saved_prompt_bytes,
)
from arriero.memory.hparams import Hparams, UnknownArchitectureError, lacks, read_hparams
from arriero.memory.placement import (
    CPU,
    MAPPED,
    REPACKED,
    Quirks,
    WeightBuffer,
    chosen_devices,
    cuts_rows,
    host_buffer,
    layer_devices,
    quirks_of,
    repacked_types,
    weights,
)
from arriero.memory.plan.inputs import Basis, Wanted
from arriero.memory.pools import (
    HOST,
    all_fit,
    all_start,
    any_outgrows,
    device_of,
    integrated,
    is_on_host,
    planned_pools,
    pool_of,
)
from arriero.memory.projector import (
    device_of_projector,
    projector_lines,
    share_of_fit,
)
from arriero.record import (
    ModelRecord,
    Plan,
    PlanBuffer,
    PlanContext,
    PlanGrowth,
    PlanNote,
    PlanPool,
)


def budget(basis: Basis, wanted: Wanted, answers: Answers | None) -> Plan:
    """What a command will take and whether the pools hold it.

    Args:
        answers: What the engine says of sizes; null where formulas alone decide. Where it has no
            answer, a note says why.

    Raises:
        ModelError: The header is one that llama.cpp would refuse.
        UsageError: The command names a device that is not there, or a pattern that is none.
    """
    return _Planning(basis, wanted, answers).plan()


_FIT_CEILING: Final = 2_000_000
"""Tensors times layers; a model of 235B has 1,128 times 94, and its fit takes 0.1 s."""
_NO_DEVICE: Final = re.compile(r"this engine has no (?:device|buffer type) (\S+)")
_UNKNOWN_TO_ENGINE: Final = "unknown model architecture"
"""What llama.cpp says of an architecture that a build lacks (src/llama-model.cpp)."""
_USUAL_PROMPT: Final = 4096
"""Tokens of a saved prompt that growth is told in, where a slot holds as many."""
_SPREAD: Final = frozenset({Component.WEIGHTS, Component.KV, Component.RS})
Place = tuple[Component, str]
_NoteId = Literal["refused", "unknown", "drift", "between_builds", "dry_run", "placement", "fit"]


class _Planning:
    def __init__(self, basis: Basis, wanted: Wanted, answers: Answers | None) -> None:
        self._basis, self._wanted, self._asked = basis, wanted, answers
        self._header, self._about, self._settings = basis.header, basis.about, wanted.launch
        self._pools, self._build, self._foreign = basis.pools, basis.build, basis.foreign
        self._calibrations = basis.calibrations
        settings, pools, build = self._settings, self._pools, self._build
        self._rules = build
        """The build whose rules are taken: null, the newest, for what it does not know."""
        self._answers: dict[EngineParams, DryRun | None] = {}
        self._mute = False
        """The engine did not answer once: it is not asked again."""
        self._lacks: bool | None = False
        """Whether this build does not know the architecture; null where nobody can say."""
        self._draft, self._mmproj, self._projector = basis.draft, basis.mmproj, wanted.projector
        self._notes: list[PlanNote] = []
        self._sized: dict[int, tuple[Sequence[CacheTensor], ComputeBound]] = {}
        self._guessed = False
        """Layers go by free memory, which only the engine sees when it starts."""
        self._listed = [name for pool in pools for name in pool.devices if name != HOST]
        self._devices = chosen_devices(settings.params, self._listed, integrated(pools))
        self._request = replace(
            settings.params,
            devices=self._devices or (),
            overrides=tuple(
                (pattern, device_of(buffer, pools)) for pattern, buffer in settings.overrides
            ),
        )
        self._host_buffer = host_buffer(self._devices) or CPU

    def plan(self) -> Plan:
        hparams = self._hparams()
        buffers: list[PlanBuffer] = []
        refused = self._refusal(hparams)
        dry = None
        if not refused:
            self._fit(hparams)
            dry = self._ask(self._request)
            self._say_what_it_lacks(dry)
        if refused:
            self._note("refused", f"the engine will refuse these settings: {refused}")
        elif hparams is None:
            buffers = [*self._unknown_weights(), *self._measured(dry)]
        else:
            buffers = list(self._lines(hparams, dry))
        buffers += self._attachments()
        buffers = self._corrected(buffers)
        buffers[0:0] = cuda_terms(buffers, self._pools)
        buffers.sort(key=lambda b: b.component is Component.POOL)
        growth = () if hparams is None or refused else tuple(self._growth(hparams, buffers))
        reserved = self._wanted.reserved
        pools = planned_pools(self._pools, buffers, self._margins(), reserved, growth)
        pools = self._overfull(pools, buffers)
        refusing = bool(refused) or self._lacks is True
        return Plan(
            model=self._model_record(),
            context=self._context(hparams, dry),
            buffers=tuple(buffers),
            pools=pools,
            fits=self._verdict(pools, refused=refusing),
            starts=False if refusing else all_start(pools),
            outgrows=any_outgrows(pools),
            notes=tuple(self._notes),
            build=self._build,
        )

    def _refusal(self, h: Hparams | None) -> str | None:
        """Why the engine would not start with these settings; null if nothing speaks against it."""
        whole = [name for name in self._devices if not cuts_rows(name, self._build)]
        if self._request.split_mode == "row" and whole and self._request.n_gpu_layers:
            return f"{whole[0]} does not cut tensors by rows (-sm row)"
        return refusal(h, self._request, self._build) if h is not None else None

    def _corrected(self, buffers: list[PlanBuffer]) -> list[PlanBuffer]:
        if not self._calibrations:
            return buffers
        request = replace(self._request, devices=self._settings.params.devices)
        settings = replace(self._settings, params=request)
        own = run_settings(self._about, settings, self._pools)
        lines, notes = corrected(buffers, self._calibrations, own)
        self._notes += notes
        return list(lines)

    def _margins(self) -> dict[str, int]:
        """What fit would keep free on each device."""
        return {name: self._settings.fit_target(i) for i, name in enumerate(self._devices)}

    def _note(self, kind: _NoteId, text: str) -> None:
        note = PlanNote(id=kind, text=text)
        if note not in self._notes:
            self._notes.append(note)

    def _verdict(self, pools: Sequence[PlanPool], *, refused: bool) -> bool | None:
        if refused:
            return False
        fits = all_fit(pools)
        return None if fits and self._lacks is None else fits

    def _overfull(
        self, pools: tuple[PlanPool, ...], buffers: Sequence[PlanBuffer]
    ) -> tuple[PlanPool, ...]:
        """Where nobody can say how layers are spread: too much for all devices is too much for
        those that look too full."""
        spread = {pool.name: 0 for pool in pools if {*pool.devices} & {*self._devices}}
        free = [pool.free for pool in pools if pool.name in spread]
        if not self._guessed or None in free:
            return pools
        for b in buffers:
            pool = pool_of(b.device, pools)
            if pool is not None and pool.name in spread and b.component in _SPREAD:
                spread[pool.name] += b.bytes or 0
        if sum(spread.values()) <= sum(size or 0 for size in free):
            return pools
        return tuple(
            msgspec.structs.replace(pool, surely=spread[pool.name], starts=False, fits=False)
            if pool.usable and spread.get(pool.name, 0) > (pool.free or 0)
            else pool
            for pool in pools
        )

    def _growth(self, h: Hparams, buffers: Sequence[PlanBuffer]) -> Iterator[PlanGrowth]:
        """What adds to the lines that grow, and the flag that caps each."""
        eff = effective(h, self._request, self._rules)
        tokens = min(_USUAL_PROMPT, eff.context.n_ctx_seq)
        tensors = cache_tensors(h, self._request, self._rules)
        each = checkpoint_bytes(h, self._request, tensors, self._rules)
        for b in buffers:
            if b.component is Component.PROMPT_CACHE:
                size = saved_prompt_bytes(h, self._request, tensors, tokens, self._rules)
                what = f"saved prompt of {tokens} tokens"
                yield _growing(b, size, what, "-cram")
            elif b.component is Component.CHECKPOINTS:
                turn = each * min(CHECKPOINTS_OF_A_TURN, max(1, self._settings.checkpoints))
                yield _growing(b, turn, "turn of a chat", "-ctxcp")
            elif b.component is Component.POOL and b.grows:
                yield _growing(b, None, "longer prompt than any before", "-ub")

    # what is known

    def _hparams(self) -> Hparams | None:
        self._lacks = lacks(self._header, self._build)
        if self._lacks:
            self._rules = None
        try:
            return read_hparams(self._header, self._rules)
        except UnknownArchitectureError as error:
            self._note("unknown", error.message)
            return None

    def _ask(self, request: EngineParams, *, essential: bool = True) -> DryRun | None:
        """The engine's answer; where an essential question has none, it is not asked again."""
        if self._asked is None or self._mute:
            return None
        if request in self._answers:
            return self._answers[request]
        answer = self._asked.sizes(request)
        if not isinstance(answer, Unanswered):
            self._answers[request] = answer
            return answer
        if not essential:
            self._answers[request] = None
            self._note("dry_run", f"no dry run of the draft model: {answer.reason}")
            return None
        self._mute = True
        foreign = _NO_DEVICE.search(answer.reason)
        if _UNKNOWN_TO_ENGINE in answer.reason:
            self._lacks = True
        elif foreign:
            name = foreign[1]
            why = "is a worker" if name.startswith("RPC") else "is not in this engine"
            self._note("dry_run", f"{name} {why}: no dry run, sizes are by formulas")
        else:
            self._note("dry_run", f"the engine gives no answer by a dry run: {answer.reason}")
        return None

    def _say_what_it_lacks(self, dry: DryRun | None) -> None:
        """An engine that answers knows the architecture, whatever its build is said to know."""
        if dry is not None:
            self._lacks = False
        build = "this engine" if self._build is None else f"b{self._build}"
        about, known = self._about.arch, lacks(self._header, None) is False
        if self._lacks:
            text = f"{build} does not know {about}: it will refuse this model"
            self._note("refused", text + "; sizes are by the rules of newer builds" * known)
        elif self._lacks is None and known:
            self._note("between_builds", f"whether {build} knows {about} is not known here")

    def _fit(self, h: Hparams | None) -> None:
        """The context and placement that the engine's fit would take, and what to say of it."""
        settings = self._settings
        if not settings.fit or h is None:
            return
        if self._request.split_mode == "tensor":
            self._note("fit", "--fit gives up: it knows no -sm tensor; the start goes on as asked")
            return
        if len(self._header.tensors) * h.n_layer_all > _FIT_CEILING:
            self._note("fit", "what --fit does is not looked at: the header is too large")
            return
        setup = self._fit_setup(h)
        found = None
        if setup is not None:
            found = fitted(setup, lambda tokens, placed: self._used(h, tokens, placed))
        if setup is None or found is None:
            self._note("fit", "what --fit does is not known: the free memory it goes by is not")
            return
        self._request = replace(self._request, n_ctx=found.n_ctx)
        if found.placement is not None:
            self._request = _as_placed(self._request, found.placement)
        text = said_of_fit(setup, found, context_given=settings.context_given)
        if text:
            self._note("fit", text)

    def _fit_setup(self, h: Hparams) -> Setup | None:
        settings = self._settings
        per_slot = not self._request.kv_unified and (
            self._build is None or self._build >= AFTER_10435
        )
        slots = self._request.n_seq_max if per_slot else 1
        most = self._request.n_ctx or h.n_ctx_train * slots
        free = [self._listed_free(device) for device in self._devices] or [self._host_total()]
        known = tuple(size for size in free if size is not None)
        if len(known) < len(free):
            return None
        return Setup(
            devices=self._devices,
            free=known,
            targets=self._fit_targets(len(free)),
            most=most,
            least=most if settings.context_given else min(most, settings.fit_ctx * slots),
            step=PAD * slots,
            n_layer=h.n_layer_all if self._request.load_mtp else h.n_layer,
            has_experts=self._number_of(h, "expert_count") > 0,
            fixed=settings.fixed_for_fit(len(self._devices)),
        )

    def _fit_targets(self, count: int) -> tuple[int, ...]:
        """Builds up to 10435 keep free what drafts as well, at the command's own context."""
        targets = [self._settings.fit_target(i) for i in range(count)]
        if self._build is not None and self._build < AFTER_10435:
            extra = self._drafting_on_devices(self._settings.params.n_ctx)
            for i, device in enumerate(self._devices):
                targets[i] += extra.get(device, 0)
        if self._projector is not None:
            run = self._projected or self._bare_projector(self._projector)
            share = share_of_fit(self._projector, run, self._listed)
            targets = [target + share.get(i, 0) for i, target in enumerate(targets)]
        return tuple(targets)

    def _drafting_on_devices(self, n_ctx: int) -> dict[str, int]:
        request = self._draft_request(n_ctx)
        return (self._drafted(request) if request is not None else None) or {}

    def _number_of(self, h: Hparams, key: str) -> int:
        value = self._header.metadata.get(f"{h.arch}.{key}")
        return value if isinstance(value, int) else 0

    def _used(self, h: Hparams, tokens: int, placed: Placement | None) -> Used | None:
        """Weights, context and compute as the engine's fit adds them up: no output buffer."""
        request = replace(self._request, n_ctx=tokens)
        if placed is not None:
            request = _as_placed(request, placed)
        dry = self._ask(request)
        if dry is not None:
            models = [(b.device, b.model) for b in dry.buffers]
            rest = [(b.device, b.context + b.compute) for b in dry.buffers]
        else:
            settings = replace(self._settings, params=request, mmap=False)
            layers = self._layers(h, request)
            shares = weights(self._header, h, settings, layers, self._devices)
            models = [(b.device, b.bytes) for b in shares if b.device != REPACKED]
            tensors, bound = self._context_sizes(h, request)
            caches = self._placed(tensors, layers)
            rest = [(device, size) for (_, device), size in caches.items()]
            rest += [(d, b.most) for d, b in bound.of(self._site(layers, request)).items()]
        if self._build is None or self._build >= AFTER_10435:
            rest += self._drafting_on_devices(tokens).items()
        if not self._devices:
            host = [n for name, n in models + rest if name != REPACKED and is_on_host(name)]
            return Used((sum(host),))
        on_devices = [n for name, n in models if name in self._devices]
        return Used(
            tuple(
                sum(n for name, n in models + rest if name == device) for device in self._devices
            ),
            sum(on_devices),
        )

    def _context_sizes(
        self, h: Hparams, request: EngineParams
    ) -> tuple[Sequence[CacheTensor], ComputeBound]:
        """Cache tensors and what bounds compute: wherever fit puts layers, up to 512 times."""
        if request.n_ctx not in self._sized:
            tensors = cache_tensors(h, request, self._rules)
            bound = self._compute_bound(self._header, h, request, tensors)
            self._sized[request.n_ctx] = (tensors, bound)
        return self._sized[request.n_ctx]

    def _site(self, layers: Sequence[str], request: EngineParams) -> Site:
        """Where layers, the weights of some of them, and the output layer are computed."""
        devices = tuple(device for device in dict.fromkeys(layers) if device != CPU)
        moved = any(buffer.startswith(CPU) for _, buffer in request.overrides)
        return Site(
            devices=devices or (request.devices or ())[: int(request.op_offload)],
            output=layers[-1] if layers[-1] != CPU else "",
            on_host=CPU in layers[:-1] or not request.offload_kqv,
            experts_on_host=moved and bool(devices),
            software=any(
                SOFTWARE.search(one.description)
                for pool in self._pools
                for one in pool.listed
                if one.name in self._devices
            ),
        )

    def _compute_bound(
        self,
        header: Header,
        h: Hparams,
        request: EngineParams,
        tensors: Sequence[CacheTensor],
    ) -> ComputeBound:
        devices, old = request.devices or (), self._build is not None and self._build < AFTER_10435
        pipeline = (
            len(devices) > 1
            and not 0 <= request.n_gpu_layers <= h.n_layer_all
            and request.split_mode == "layer"
            and request.offload_kqv
            and not request.overrides
            # workers take part in it since a build after 10435
            and not (old and any(name.startswith("RPC") for name in devices))
        )
        eff = effective(h, request, self._rules)
        build = None if self._foreign else self._build
        return ComputeBound(header, h, request, eff, tensors, pipeline=pipeline, build=build)

    def _listed_free(self, device: str) -> int | None:
        """What the engine's own fit reads from the driver, whatever else limits the pool."""
        pool = next((p for p in self._pools if device in p.devices), None)
        if pool is None:
            return None
        return next((one.free for one in pool.listed if one.name == device), pool.free)

    def _host_total(self) -> int | None:
        """The engine compares with all RAM, free or not, where it has no device."""
        pool = next((p for p in self._pools if HOST in p.devices), None)
        return None if pool is None else pool.physical or pool.total

    def _model_record(self) -> ModelRecord:
        about = self._about
        return ModelRecord(
            path=str(self._request.model),
            arch=about.arch,
            name=about.name,
            memory_class=about.memory_class,
            n_layer=about.n_layer,
            n_recurrent_layer=about.n_recurrent_layer,
            n_ctx_train=about.n_ctx_train,
            n_vocab=about.n_vocab,
            file_bytes=about.file_bytes,
        )

    def _context(self, hparams: Hparams | None, dry: DryRun | None) -> PlanContext | None:
        asked = self._wanted.n_ctx_asked
        unified = self._request.kv_unified
        if dry is not None:
            return PlanContext(
                n_ctx=dry.n_ctx,
                n_ctx_seq=dry.n_ctx_seq,
                n_seq_max=dry.n_seq_max,
                kv_unified=unified,
                n_rs_seq=dry.n_rs_seq,
                n_ubatch=dry.n_ubatch,
                asked=asked,
            )
        if hparams is None:
            return None
        eff = effective(hparams, self._request, self._rules)
        return PlanContext(
            n_ctx=eff.context.n_ctx,
            n_ctx_seq=eff.context.n_ctx_seq,
            n_seq_max=eff.context.n_seq_max,
            kv_unified=unified,
            n_rs_seq=eff.n_rs_seq,
            n_ubatch=eff.n_ubatch,
            asked=asked,
        )

    # lines

    def _lines(self, h: Hparams, dry: DryRun | None) -> Iterator[PlanBuffer]:
        layers = self._layers(h, self._request)
        if self._goes_by_free_memory():
            self._guessed = True
            self._note(
                "placement",
                "without -ts layers go by the free memory that drivers report at the start",
            )
        tensors = cache_tensors(h, self._request, self._rules)
        eff = effective(h, self._request, self._rules)
        yield from self._weights(h, layers, dry)
        yield from self._caches(tensors, layers, dry)
        yield from self._compute(h, eff, layers, dry)
        yield from self._output(h, layers, dry)
        yield from self._host(h, eff, tensors, dry)
        for device in dict.fromkeys(layers):
            if device != CPU:
                yield from self._workspace(h, eff, device)

    def _layers(self, h: Hparams, request: EngineParams) -> tuple[str, ...]:
        split = request.tensor_split
        if not any(split) and len(self._devices) > 1:
            split = tuple(float(self._listed_free(device) or 0) for device in self._devices)
        return layer_devices(h.n_layer_all, request.n_gpu_layers, self._devices, split)

    def _goes_by_free_memory(self) -> bool:
        return len(self._devices) > 1 and not any(self._request.tensor_split)

    def _weights(
        self, h: Hparams, layers: Sequence[str], dry: DryRun | None
    ) -> Iterator[PlanBuffer]:
        component = Component.WEIGHTS
        if not self._header.tensors:
            yield _unknown(component, MAPPED, "the file has no tensors")
            return
        told = {b.device: b.model for b in dry.buffers if b.model} if dry is not None else None
        quirks, settings = None, replace(self._settings, params=self._request)
        if told is not None and self._devices:
            quirks = quirks_of(self._header, h, settings, layers, self._devices, told)
        wrong = told is not None and bool(self._devices) and quirks is None
        types = None
        if told is not None and (copied := told.get(REPACKED)):
            types = repacked_types(self._header, h, settings, layers, self._devices, copied)
        if types is not None:
            quirks = replace(quirks or Quirks(), repacked=types)
        planned = weights(self._header, h, settings, layers, self._devices, quirks)
        mode = self._request.split_mode
        if mode in ("row", "tensor") and self._devices:
            self._note("placement", f"-sm {mode} was never compared: sizes are as by layers")
            planned = tuple(replace(buffer, exact=False) for buffer in planned)
        known = types is not None
        for buffer in planned if known else self._told_of_repacking(planned, told):
            measured = None
            if wrong and told is not None:
                measured = None if is_on_host(buffer.device) else told.get(buffer.device, 0)
            if measured is not None:
                if not self._guessed:
                    self._drift(component, buffer.device, buffer.bytes, measured)
                yield _line(component, buffer.device, measured, Method.MEASURED)
            elif buffer.exact and not wrong and (told is not None or not self._guessed):
                yield _line(component, buffer.device, buffer.bytes, Method.EXACT)
            else:
                estimated = Method.ESTIMATED
                yield _line(component, buffer.device, buffer.bytes, estimated, upper_bound=True)

    def _told_of_repacking(
        self, planned: Sequence[WeightBuffer], told: Mapping[str, int] | None
    ) -> Iterator[WeightBuffer]:
        """What this CPU keeps in a layout of its own is known to its engine alone."""
        copied = told.get(REPACKED, 0) if told is not None else None
        for buffer in planned:
            if buffer.device == REPACKED:
                if copied is None:
                    yield buffer
            elif buffer.device in (MAPPED, CPU) and copied and told is not None:
                # copied tensors leave the plain buffer, which may shrink at its ends
                plain = buffer.device == CPU
                yield WeightBuffer(
                    buffer.device, told.get(CPU, 0) if plain else buffer.bytes, plain
                )
            else:
                yield buffer
        if copied:
            yield WeightBuffer(REPACKED, copied)

    def _caches(
        self, tensors: Sequence[CacheTensor], layers: Sequence[str], dry: DryRun | None
    ) -> Iterator[PlanBuffer]:
        doubtful = is_doubtful(self._header, self._request, self._rules)
        if doubtful:
            self._note(
                "between_builds",
                f"a rule for this model changed near build {self._build}; its exact build is not "
                "known here",
            )
            tensors = max(
                (
                    cache_tensors(read_hparams(self._header, seen), self._request, seen)
                    for seen in builds_around(self._rules)
                ),
                key=total,
            )
        formula = self._placed(tensors, layers)
        told = {}
        if dry is not None:
            for b in dry.buffers:
                told[Component.KV, b.device] = b.kv
                told[Component.RS, b.device] = b.rs
        yield from self._merged(formula, told if dry is not None else None, doubtful=doubtful)

    def _placed(self, tensors: Sequence[CacheTensor], layers: Sequence[str]) -> dict[Place, int]:
        sizes: dict[Place, int] = {}
        for tensor in tensors:
            device = layers[tensor.layer] if self._request.offload_kqv else CPU
            place = (tensor.component, device)
            sizes[place] = sizes.get(place, 0) + tensor.padded()
        return sizes

    def _merged(
        self, formula: Mapping[Place, int], told: Mapping[Place, int] | None, *, doubtful: bool
    ) -> Iterator[PlanBuffer]:
        """Formula and engine side by side; where they differ the engine wins and a note says so."""
        for place in dict.fromkeys([*formula, *(told or ())]):
            component, device = place
            computed = formula.get(place, 0)
            if told is None:
                method = Method.ESTIMATED if doubtful or self._guessed else Method.EXACT
                if computed:
                    yield _line(component, device, computed, method, upper_bound=doubtful)
                continue
            measured = told.get(place, 0)
            if measured != computed and not self._agree_in_all(component, formula, told):
                self._drift(component, device, computed, measured)
            if measured:
                method = Method.EXACT if measured == computed else Method.MEASURED
                yield _line(component, device, measured, method)

    def _agree_in_all(
        self, component: Component, formula: Mapping[Place, int], told: Mapping[Place, int]
    ) -> bool:
        """Whether formula and engine differ by nothing but where layers went."""
        sums = [sum(n for (c, _), n in side.items() if c is component) for side in (formula, told)]
        return self._guessed and sums[0] == sums[1]

    def _drift(self, component: Component, device: str, computed: int, told: int | None) -> None:
        self._note(
            "drift",
            f"{component} on {device}: the engine says {told} bytes, the formula {computed}",
        )

    def _compute(
        self, h: Hparams, eff: Effective, layers: Sequence[str], dry: DryRun | None
    ) -> Iterator[PlanBuffer]:
        component = Component.COMPUTE
        if dry is not None:
            doubt = self._compute_doubt(h)
            for b in dry.buffers:
                if b.compute and doubt:
                    yield _line(
                        component,
                        b.device,
                        b.compute,
                        Method.ESTIMATED,
                        upper_bound=True,
                        reason=doubt,
                    )
                elif b.compute:
                    yield _line(component, b.device, b.compute, Method.MEASURED)
            return
        tensors = cache_tensors(h, self._request, self._rules)
        bound = self._compute_bound(self._header, h, self._request, tensors)
        for device, size in bound.of(self._site(layers, self._request)).items():
            yield _bounded(component, self._host_buffer if device == CPU else device, size)

    def _compute_doubt(self, h: Hparams) -> str:
        """Why a dry run's compute may not be what a start takes; empty if nothing speaks for it."""
        if self._devices and not self._request.offload_kqv and any(h.is_recurrent):
            # build 10434, hybrid on Vulkan: 42.00 MiB by the engine's own dry run, 3.82 then
            return "with -nkvo an engine's dry run and its start differ for recurrent layers"
        return ""

    def _output(
        self, h: Hparams, layers: Sequence[str], dry: DryRun | None
    ) -> Iterator[PlanBuffer]:
        device = host_buffer([layers[-1]]) or CPU
        told = None
        if dry is not None:
            told = {(Component.OUTPUT, b.device): b.output for b in dry.buffers}
        size = output_bytes(h, self._request)
        yield from self._merged({(Component.OUTPUT, device): size}, told, doubtful=False)

    def _host(
        self, h: Hparams, eff: Effective, tensors: Sequence[CacheTensor], dry: DryRun | None
    ) -> Iterator[PlanBuffer]:
        if dry is not None:
            grown = dry.address_space_delta
            yield _line(Component.GRAPH, CPU, grown, Method.MEASURED, upper_bound=True)
        else:
            bound = graph_bound(h, eff, tensors, len(self._header.tensors))
            yield _line(Component.GRAPH, CPU, bound, Method.ESTIMATED, upper_bound=True)
        if h.memory is Memory.NONE:
            return
        settings, slots = self._settings, eff.context.n_seq_max
        if settings.cache_ram is None:
            reason = "-cram -1 limits it to n_ctx tokens only"
            yield _growing_line(Component.PROMPT_CACHE, CPU, None, Method.UNKNOWN, reason)
        elif settings.cache_ram:
            limit = settings.cache_ram
            yield _growing_line(Component.PROMPT_CACHE, CPU, limit, Method.EXACT)
        each = checkpoint_bytes(h, self._request, tensors, self._rules)
        kept = settings.checkpoints + (1 if settings.speculation else 0)
        if each and kept:
            method = Method.ESTIMATED if h.memory is Memory.DSV4 else Method.EXACT
            size = each * kept * slots
            turn = min(CHECKPOINTS_OF_A_TURN, kept)
            reason = f"a turn of a chat adds up to {turn} of {human(each)}"
            yield _growing_line(Component.CHECKPOINTS, CPU, size, method, reason)

    def _workspace(self, h: Hparams, eff: Effective, device: str) -> Iterator[PlanBuffer]:
        """What a backend takes for itself while it computes, in no buffer of llama.cpp's."""
        size = workspace_bound(device, h, eff, widest_activation(self._header, h))
        if size:
            reason = "scratch of matrix products"
            yield _growing_line(Component.POOL, device, size, Method.ESTIMATED, reason)
        elif size is None and not self._computes_on_cpu(device):
            margin = human(self._margins().get(device, 0))
            what = "what its backend keeps is not known"
            if not device.startswith("RPC"):
                what = "grows with the longest prompt"
            reason = f"{what}; margin {margin}"
            yield _growing_line(Component.POOL, device, None, Method.UNKNOWN, reason)

    def _computes_on_cpu(self, device: str) -> bool:
        """A worker on a CPU reports all of its memory as free."""
        listed = next((one for p in self._pools for one in p.listed if one.name == device), None)
        return listed is not None and device.startswith("RPC") and listed.free == listed.total

    def _attachments(self) -> Iterator[PlanBuffer]:
        """Other models that the command loads beside the main one."""
        yield from self._drafting()
        if self._projector is not None:
            place = self._place_of_projector(self._projector)
            kept = self._margins().get(place)
            margin = human(kept) if kept else ""
            yield from projector_lines(
                self._projector, self._mmproj, self._projected, place, margin
            )

    def _place_of_projector(self, request: ProjectorParams) -> str:
        return device_of_projector(request, self._listed, integrated(self._pools))

    def _bare_projector(self, request: ProjectorParams) -> ProjectorRun:
        """Its weights alone, where no engine tells the rest."""
        self._note("fit", "--fit keeps free what a projector computes with too: not known here")
        size = sum(t.bytes for t in self._mmproj.tensors) if self._mmproj is not None else 0
        buffer = ProjectorBuffer(self._place_of_projector(request), size, size, 0)
        return ProjectorRun((buffer,), flash_attn=False)

    @cached_property
    def _projected(self) -> ProjectorRun | None:
        """The engine's account of the projector, if it has the device that is planned for."""
        request = self._projector
        if request is None or self._asked is None or self._mmproj is None:
            return None
        place = self._place_of_projector(request)
        if place.startswith("RPC"):
            return None
        run = self._asked.projector(request)
        if isinstance(run, Unanswered):
            self._note("dry_run", f"no dry run of the projector: {run.reason}")
            return None
        return run if any(b.device == place and b.model for b in run.buffers) else None

    def _drafting(self) -> Iterator[PlanBuffer]:
        """The model or context that drafts."""
        request = self._draft_request(self._request.n_ctx)
        if request is None:
            return
        sizes = self._drafted(request)
        if sizes is None:
            device = self._devices[0] if self._devices else CPU
            yield _unknown(Component.DRAFT, device, "the draft model's header was not read")
            return
        measured = self._answers.get(request) is not None
        for device, size in sizes.items():
            if size and measured:
                yield _line(Component.DRAFT, device, size, Method.MEASURED)
            elif size:
                yield _line(Component.DRAFT, device, size, Method.ESTIMATED, upper_bound=True)

    def _draft_request(self, n_ctx: int) -> EngineParams | None:
        """Builds after 10435 let it follow the main context and devices, whatever fit makes them;
        before, it has the command's own context, or its model's."""
        draft, main = self._settings.draft, self._settings.params
        if draft is None:
            return None
        follows = self._build is None or self._build >= AFTER_10435
        named = main.devices if follows and draft.devices is None else draft.devices
        own = chosen_devices(replace(draft, devices=named), self._listed, integrated(self._pools))
        return replace(
            draft,
            n_ctx=n_ctx if follows else main.n_ctx,
            devices=own,
            embeddings=draft.embeddings and not follows,
            tensor_split=self._request.tensor_split,
        )

    def _drafted(self, request: EngineParams) -> dict[str, int] | None:
        """Bytes by device of whatever drafts; null where neither header nor engine tells."""
        own = self._settings.draft_model is not None
        header = self._draft if own else self._header
        h = self._draft_hparams(header, own=own)
        dry = self._ask(request, essential=not own)
        sizes: dict[str, int] = {}

        def add(device: str, size: int) -> None:
            sizes[device] = sizes.get(device, 0) + size

        for b in dry.buffers if dry is not None else ():
            on_host = header is not None and h is not None and is_on_host(b.device)
            add(b.device, b.context + b.compute + b.output + b.model * (own and not on_host))
        if header is None or h is None:
            return sizes if dry is not None else None
        devices = request.devices or ()
        split = request.tensor_split
        layers = layer_devices(h.n_layer_all, request.n_gpu_layers, devices, split)
        settings = replace(self._settings, params=request)
        for buffer in weights(header, h, settings, layers, devices) if own else ():
            if dry is None or is_on_host(buffer.device):
                add(buffer.device, buffer.bytes)
        if dry is None:
            tensors = cache_tensors(h, request, self._rules)
            for (_, device), size in self._placed(tensors, layers).items():
                add(device, size)
            bound = self._compute_bound(header, h, request, tensors)
            for device, compute in bound.of(self._site(layers, request)).items():
                add(self._host_buffer if device == CPU else device, compute.most)
        return sizes

    def _draft_hparams(self, header: Header | None, *, own: bool) -> Hparams | None:
        if header is None:
            return None
        try:
            h = read_hparams(header, self._build if own else self._rules)
        except UnknownArchitectureError as error:
            self._note("unknown", f"the draft model: {error.message}")
            return None
        if not own and not h.n_layer_nextn:
            self._note("unknown", "the model has no NextN layers to draft with")
        return h

    # without hyperparameters

    def _unknown_weights(self) -> Iterator[PlanBuffer]:
        size = sum(pad(t.bytes) for t in self._header.tensors)
        if not size:
            yield _unknown(Component.WEIGHTS, MAPPED, "the file has no tensors")
        elif self._devices:
            reason = f"{size} bytes in all; where they go is not known for this architecture"
            yield _unknown(Component.WEIGHTS, self._devices[0], reason)
        else:
            device = MAPPED if self._settings.mmap else CPU
            yield _line(Component.WEIGHTS, device, size, Method.ESTIMATED, upper_bound=True)

    def _measured(self, dry: DryRun | None) -> Iterator[PlanBuffer]:
        """Everything from the engine; unknown where there is none."""
        parts = (Component.KV, Component.RS, Component.COMPUTE, Component.OUTPUT)
        if dry is None:
            for component in parts:
                yield _unknown(component, CPU, "unknown architecture")
            return
        for b in dry.buffers:
            for component, size in zip(parts, (b.kv, b.rs, b.compute, b.output), strict=True):
                if size:
                    yield _line(component, b.device, size, Method.MEASURED)
        grown = dry.address_space_delta
        yield _line(Component.GRAPH, CPU, grown, Method.MEASURED, upper_bound=True)
        if self._settings.cache_ram:
            limit = self._settings.cache_ram
            yield _growing_line(Component.PROMPT_CACHE, CPU, limit, Method.EXACT)
        reason = "unknown architecture"
        yield _growing_line(Component.CHECKPOINTS, CPU, None, Method.UNKNOWN, reason)


def _as_placed(request: EngineParams, placed: Placement) -> EngineParams:
    return replace(
        request,
        n_gpu_layers=placed.n_gpu_layers,
        tensor_split=placed.tensor_split,
        overrides=placed.overrides,
    )


def _line(
    component: Component,
    device: str,
    size: int | None,
    method: Method,
    *,
    upper_bound: bool = False,
    reason: str = "",
) -> PlanBuffer:
    return PlanBuffer(
        component=component,
        device=device,
        bytes=size,
        method=method,
        upper_bound=upper_bound,
        reason=reason,
    )


def _growing_line(
    component: Component, device: str, size: int | None, method: Method, reason: str = ""
) -> PlanBuffer:
    """What serving fills, up to so much."""
    return PlanBuffer(
        component=component,
        device=device,
        bytes=size,
        method=method,
        upper_bound=size is not None,
        reason=reason,
        grows=True,
    )


def _growing(buffer: PlanBuffer, each: int | None, per: str, flag: str) -> PlanGrowth:
    return PlanGrowth(
        component=buffer.component,
        device=buffer.device,
        most=buffer.bytes,
        each=each,
        per=per,
        flag=flag,
    )


def _bounded(component: Component, device: str, size: Bound) -> PlanBuffer:
    return PlanBuffer(
        component=component,
        device=device,
        bytes=size.most,
        method=Method.ESTIMATED,
        upper_bound=True,
        at_least=size.least or None,
    )


def _unknown(component: Component, device: str, reason: str) -> PlanBuffer:
    return _line(component, device, None, Method.UNKNOWN, reason=reason)
