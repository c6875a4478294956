"""The documents of the machine contract as frozen values.

Fields may be added, none renamed. Sizes are whole bytes, times are seconds. A value that nothing
showed is null, never a guess.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from arriero.base.words import (
    Component,
    Cost,
    Kind,
    LimitKind,
    LogOutcome,
    MemoryClass,
    Method,
    TrialOutcome,
)
from arriero.logs.model import Buffer, Effective, EngineTag, Failure, Notice


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    message: str
    hint: str


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["arriero.error/1"] = "arriero.error/1"
    error: ErrorBody


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change that helps against a failure, by the failure alone: its command is not known."""

    change: str
    """A flag with its value where one is known, or what to do in a few words."""
    cost: Cost
    why: str


class KnownFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A gotcha that a log shows the signs of."""

    id: str
    title: str
    applies: Literal["yes", "maybe"]
    line: int
    """The line that shows it, from 1."""
    workaround: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What one log says."""

    schema: Literal["arriero.explanation/1"] = "arriero.explanation/1"
    source: str
    era: str
    child: str | None
    engine: EngineTag
    outcome: LogOutcome
    failure: Failure | None
    secondary: tuple[Failure, ...]
    buffers: tuple[Buffer, ...]
    notices: tuple[Notice, ...]
    effective: Effective = Effective()
    known: tuple[KnownFailure, ...] = ()
    advice: tuple[Remedy, ...] = ()
    """Cheapest first."""
    children: tuple[Explanation, ...] = ()
    complete: bool = True
    """False when reading was interrupted: it says what had been read by then."""


class Explanations(msgspec.Struct, frozen=True, kw_only=True):
    """Several logs given to one command."""

    schema: Literal["arriero.explanations/1"] = "arriero.explanations/1"
    explanations: tuple[Explanation, ...]


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A memory limit that Arriero set for the trials. Address space is not RAM."""

    bytes: int
    kind: LimitKind


class DeviceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the engine lists it, sizes in bytes as it reports them."""

    name: str
    description: str
    total: int | None
    free: int | None


class PoolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of memory: a card, the host, or host and device together."""

    name: str
    devices: tuple[str, ...]
    total: int | None
    free: int | None
    limited_by: str
    usable: bool = True
    note: str = ""


class HolderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A process that already holds device memory."""

    pid: int
    name: str
    device: str
    bytes: int | None


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The model as its header describes it; null where there is no readable header."""

    path: str
    arch: str | None = None
    name: str | None = None
    memory_class: MemoryClass = MemoryClass.UNKNOWN
    n_layer: int | None = None
    n_recurrent_layer: int | None = None
    n_ctx_train: int | None = None
    n_vocab: int | None = None
    file_bytes: int | None = None
    problem: str = ""


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which engine ran and where it was found."""

    path: str
    found_by: str
    version: str | None
    build: int | None
    commit: str | None
    backends: tuple[str, ...] = ()


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What was true before the first trial."""

    engine: EngineRecord
    model: ModelRecord | None
    devices: tuple[DeviceRecord, ...]
    pools: tuple[PoolRecord, ...]
    holders: tuple[HolderRecord, ...]
    visibility: dict[str, str]
    """``CUDA_VISIBLE_DEVICES`` and its like, as set for the engine."""
    argv: tuple[str, ...]
    """The command as the user typed it."""
    effective: dict[str, str]
    """Flag → value that is in force: flags and ``LLAMA_ARG_*``, the last one wins."""
    limit: LimitRecord | None
    system: str
    taken_at: str
    """UTC, ISO 8601."""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was seen of each, in bytes. ``address_space`` is VmPeak, ``anonymous`` is
    RssAnon + VmSwap, ``rss`` VmHWM."""

    address_space: int | None = None
    anonymous: int | None = None
    rss: int | None = None
    cgroup: int | None = None
    device: dict[str, int] = {}


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    sent: int = 0
    ok: int = 0
    failed: int = 0


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per second, as the server reports them."""

    prompt_tps: float | None = None
    predict_tps: float | None = None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of the standard load or of a verification, with what shows that it happened."""

    name: str
    sent: int
    ok: int
    failed: int
    shown_by: str | None
    """The log line or counter that shows it; null when nothing did."""
    detail: str = ""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at one moment. ``at`` is seconds since the launch."""

    at: float
    address_space: int | None = None
    anonymous: int | None = None
    requests: int = 0
    device: dict[str, int] = {}


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of the engine and what it showed."""

    n: int
    purpose: str
    change: dict[str, tuple[Any, Any]]
    argv: tuple[str, ...]
    env: dict[str, str]
    outcome: TrialOutcome
    failure: Failure | None
    secondary: tuple[Failure, ...] = ()
    buffers: tuple[Buffer, ...]
    notices: tuple[Notice, ...] = ()
    effective: Effective
    ready_s: float | None
    load_s: float | None = None
    """When the load began: after the last threads of the server had started."""
    seconds: float
    exit_status: int | None = None
    """Exit status of the engine, negative for a signal; null if Arriero ended it."""
    peak: Peak
    headroom: int | None
    """Bytes left at the peak, of the limit or of the host's free memory, whichever is less."""
    requests: Requests
    steps: tuple[Step, ...] = ()
    skipped: tuple[str, ...] = ()
    growth_per_request: int | None = None
    """Bytes of RssAnon + VmSwap per request over the load, by a fit over its samples."""
    checkpoint_bytes: int | None = None
    """Size of one context checkpoint, as the engine logged it."""
    speed: Speed
    samples: tuple[Sample, ...] = ()
    valid: bool
    why_invalid: str | None
    log_tail: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The failure of the command as given: the first allocation that failed, not the last error."""

    kind: Kind
    component: Component | None
    device: str | None
    bytes: int | None
    trial: int | None
    """The trial that showed it; null if it was read from a log."""
    failure: Failure


class FailsWith(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind
    component: Component | None


class Boundary(msgspec.Struct, frozen=True, kw_only=True):
    """Where one variable stops working, everything in ``held`` kept.

    Null unless a trial showed it.
    """

    served: int | None
    ready: int | None
    fails: int | None
    fails_with: FailsWith | None
    held: dict[str, Any]
    trials: tuple[int, ...]
    step: int = 1
    """Smallest change that the server does not round away (256 tokens for ``-c``)."""
    band: tuple[int, int] | None = None
    """From the largest value seen working to the smallest seen failing, where repeats disagreed."""
    note: str = ""


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one component for each slot, token, micro-batch row or request."""

    component: Component
    per: Literal["slot", "token", "ubatch", "request"]
    bytes: int
    method: Method
    note: str = ""


class WorstCase(msgspec.Struct, frozen=True, kw_only=True):
    """All checkpoints taken and the prompt cache full, against the limit."""

    planned: int | None
    limit: int | None
    fits: bool | None


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    env: dict[str, str]
    changes: tuple[str, ...]
    costs: tuple[Cost, ...]
    verified: bool
    skipped: tuple[str, ...]
    worst_case: WorstCase
    trial: int | None = None
    requests: Requests = Requests()
    headroom: int | None = None
    steps: tuple[Step, ...] = ()


NOT_KEPT: Final = "no record was kept"
"""How the note begins that says so: then there is nothing to report from."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A controlled record of what was tried and what it showed."""

    schema: Literal["arriero.diagnosis/1"] = "arriero.diagnosis/1"
    id: str
    baseline: Baseline
    trials: tuple[Trial, ...]
    verdict: Verdict | None
    boundary: dict[str, Boundary]
    slopes: tuple[Slope, ...]
    recommendation: Recommendation | None
    not_tried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool
    """False when it was interrupted or ran out of time: what is there is valid all the same."""
    interrupted: bool = False
    launches: int
    seconds: float


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A load on a server, and whether it got through it."""

    schema: Literal["arriero.verification/1"] = "arriero.verification/1"
    id: str
    target: str
    verified: bool
    steps: tuple[Step, ...]
    skipped: tuple[str, ...]
    requests: Requests
    failure: Failure | None
    peak: Peak
    headroom: int | None
    growth_per_request: int | None
    speed: Speed
    trial: Trial | None = None
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()
    complete: bool = True
    """False when it was interrupted."""
    seconds: float


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the history."""

    id: str
    schema: str
    created_at: str
    summary: str
    complete: bool


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Records of earlier runs, newest first."""

    schema: Literal["arriero.history/1"] = "arriero.history/1"
    entries: tuple[HistoryEntry, ...]


class SkeletonScale(msgspec.Struct, frozen=True, kw_only=True):
    """Something there is less of than in the source."""

    what: Literal["layers", "experts", "vocabulary", "weights"]
    """Layers without NextN layers, experts of a layer, tokens, bytes of all tensors."""
    original: int
    written: int


class SkeletonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was written, sizes in bytes."""

    schema: Literal["arriero.skeleton/1"] = "arriero.skeleton/1"
    path: str
    arch: str
    weights: str
    file_bytes: int
    disk_bytes: int | None
    """What it takes on disk; null where the system does not say."""
    paths: tuple[str, ...] = ()
    """Every file of a split set, the first of them ``path``."""
    source: str | None = None
    """The model that the header comes from; null where it was made from nothing."""
    kept: tuple[str, ...] = ()
    """Keys of the header that are as they were; so are all tensors, unless shrunk."""
    replaced: tuple[str, ...] = ()
    """Keys that say something neutral instead; a vocabulary keeps its size."""
    dropped: tuple[str, ...] = ()
    """Keys that no memory depends on."""
    shrunk: tuple[SkeletonScale, ...] = ()
    same_memory: tuple[str, ...] = ()
    """What the engine takes as much memory for as with the source."""


# plan


class PlanContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context as the server will make it: tokens in all, tokens of one slot, slots."""

    n_ctx: int
    n_ctx_seq: int
    n_seq_max: int
    kv_unified: bool
    n_rs_seq: int
    """Planes of recurrent state that drafted tokens can be rolled back to."""
    n_ubatch: int | None = None
    asked: int | None = None
    """Tokens that the command asks for; null if it leaves them to the model or to ``--fit``."""


class PlanBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """One component on one device."""

    component: Component
    device: str
    """Device or buffer type as the engine names it; ``CPU``, ``CPU_Mapped`` and ``*_Host`` are the
    host's."""
    bytes: int | None
    method: Method
    upper_bound: bool = False
    residual: int | None = None
    """Calibrated: what real runs took beyond the figure before, in bytes."""
    reason: str = ""
    """Why it is not better known, or who measured it."""
    at_least: int | None = None
    """Of a bound: bytes that it takes in any case; null where nothing is known from below."""
    grows: bool = False
    """Whether it is filled by what is served, not taken at the start."""


class PlanGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Something that takes more memory the longer a server runs."""

    component: Component
    device: str
    most: int | None
    """Bytes at its full extent, or what has been measured of it; null where nothing limits it."""
    each: int | None
    """Bytes of one ``per``; null where that is not known."""
    per: str
    """What adds to it: a saved prompt, a turn of a chat."""
    enough: int | None = None
    """How many of ``per`` fill what the start leaves of the pool, nothing else growing; null where
    its full extent does not."""
    flag: str = ""
    """The flag that caps it; empty where none does."""


class PlanPool(msgspec.Struct, frozen=True, kw_only=True):
    """One pool of memory and what is planned in it."""

    name: str
    devices: tuple[str, ...]
    total: int | None
    free: int | None
    limited_by: str
    planned: int
    """Everything with a figure, growth while serving included."""
    at_start: int
    """The most at the start: without what grows while serving (prompt cache, checkpoints, pools of
    backends)."""
    margin: int
    headroom: int | None
    """What is left of ``free``, the margin not taken off; null where free is not known."""
    fits: bool | None
    """True if it starts, does not outgrow the pool and leaves the margin; false if it does not
    start; else null."""
    starts: bool | None = None
    """Whether the pool holds what is taken at the start; null where only a bound is too much."""
    outgrows: bool | None = None
    """Whether what grows while serving can take more than the start leaves."""
    surely: int = 0
    """What is taken at the start in any case: exact and measured sizes, and bounds from below."""
    growth: tuple[PlanGrowth, ...] = ()
    usable: bool = True
    note: str = ""
    knob: str = ""
    """The setting that limits it; empty where nothing but its size does."""
    move_with: str = ""
    """The command that moves the knob."""


class PlanNote(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know about the figures."""

    id: Literal[
        "refused", "unknown", "drift", "between_builds", "dry_run", "placement", "fit",
        "engine", "pool", "calibration", "header", "record",
    ]  # fmt: skip
    text: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One change, what it costs and the bytes it saves."""

    change: str
    cost: Cost
    saves: int
    """Bytes in the pool that lacks most, or in all pools where none does."""
    argv: tuple[str, ...]
    pool: str = ""
    """The pool that it is for."""
    headroom: int | None = None
    """What this change leaves in that pool, the margin not taken off."""
    fits: bool | None = None
    """Whether every pool holds the command with this change."""
    recommended: bool = False


class FrontierPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The largest context that fits with a number of slots."""

    n_seq_max: int
    kv_unified: bool
    n_ctx: int | None
    """Tokens in all; null where even the smallest context does not fit."""
    n_ctx_seq: int | None
    """Tokens of one slot."""
    limited_by: str | None
    """The pool that the next larger context overflows; null where the model's training context is
    the end of it."""
    headroom: int | None = None
    """What is left in that pool at this point, the margin not taken off."""
    capped: tuple[str, ...] = ()
    """Flags that cap host caches at this point, whose defaults leave no room for any context."""


class HeaderReads(msgspec.Struct, frozen=True, kw_only=True):
    """What reading a remote header took."""

    requests: int
    bytes: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a command will take, before it is started."""

    schema: Literal["arriero.plan/1"] = "arriero.plan/1"
    id: str = ""
    model: ModelRecord
    argv: tuple[str, ...] = ()
    """The command that is planned, without secrets."""
    context: PlanContext | None
    """Null where the header does not tell enough."""
    buffers: tuple[PlanBuffer, ...]
    pools: tuple[PlanPool, ...]
    fits: bool | None
    """True only with the margin kept in every pool and nothing unknown in any."""
    starts: bool | None = None
    """Whether every pool holds what is taken at the start."""
    outgrows: bool | None = None
    """Whether what grows while serving can take more than some pool has."""
    advice: tuple[Advice, ...] = ()
    """Cheapest first."""
    frontier: tuple[FrontierPoint, ...] = ()
    """With ``--frontier``, by number of slots."""
    notes: tuple[PlanNote, ...] = ()
    build: int | None = None
    """The llama.cpp build that was asked or whose rules were taken; null for the newest known."""
    engine: EngineRecord | None = None
    """The installation that was asked; null where there is none."""
    header: HeaderReads | None = None
    """For a model that is not on this machine."""
    failure: Failure | None = None
    """What ends every start of this engine here, whatever fits: it was compiled for another CPU."""
    complete: bool = True
    """False when it was interrupted: advice or frontier are missing."""


# what runs took


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the buffers of a context depend on besides model, build and devices, as in force."""

    n_ctx: int
    n_ctx_seq: int
    n_seq_max: int
    kv_unified: bool
    n_batch: int
    n_ubatch: int
    n_rs_seq: int
    n_outputs_max: int | None
    flash_attn: str
    type_k: str
    type_v: str
    layers: tuple[str, ...]
    """Where layers are, the output layer last: ``("CPU*4", "CUDA0*29")``."""
    flags: tuple[str, ...] = ()
    """Everything else that is not as it is by default, and placement of single tensors."""


class RunBuffer(msgspec.Struct, frozen=True, kw_only=True):
    """One component on one device: what a run took beside what was said before, in bytes."""

    component: Component
    device: str
    taken: int | None
    """By the engine's own size lines, or by its refusal; null where it got no further."""
    rounding: int = 0
    """How far ``taken`` can be off: size lines have two digits of a MiB."""
    planned: int | None
    """Without asking the engine; null if nothing was planned there."""
    method: Method | None
    """How ``planned`` was known."""
    asked: int | None = None
    """What the engine's dry run said; null if it was not asked or had no answer."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one real run took. Later plans are corrected by it."""

    schema: Literal["arriero.run/1"] = "arriero.run/1"
    id: str
    taken_at: str
    """UTC, ISO 8601."""
    model: str
    """Fingerprint of everything in the header that decides sizes: no name, no path."""
    arch: str
    engine: EngineRecord
    devices: tuple[DeviceRecord, ...]
    settings: RunSettings
    outcome: TrialOutcome
    buffers: tuple[RunBuffer, ...]
    peak: Peak


# check and gotchas


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One change to a command.

    ``value`` is what the flag gets (``on`` or ``off`` for a switch), null to take the flag away.
    With ``rename`` the flag keeps its values and gets that name. With ``env`` it is a variable.
    With ``insert`` the value goes between the flag and the word that follows it now.
    """

    flag: str
    value: str | None = None
    rename: str | None = None
    env: bool = False
    insert: bool = False

    def __str__(self) -> str:
        if self.rename is not None:
            return f"{self.flag} → {self.rename}"
        if self.value is None:
            return f"without {self.flag}"
        return f"{self.flag}{'=' if self.env else ' '}{self.value}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What will go wrong with a command, or go differently than it says."""

    id: str
    title: str
    severity: Literal["error", "warning", "info"]
    status: Literal["draft", "reproduced", "refuted"]
    """Of the gotcha, by verdicts: on this build where there is one, else on any."""
    applies: Literal["yes", "maybe"]
    because: str
    """The evidence: flag, key of the header, figure of a device."""
    workaround: str = ""
    """What to do, in the gotcha's own words."""
    missing: tuple[str, ...] = ()
    """What is not known and would decide it."""
    edit: tuple[Edit, ...] | None = None
    fixed_argv: tuple[str, ...] | None = None
    """The command with this finding's edit alone."""
    where: str | None = None
    """``file:line``."""
    builds: tuple[int, ...] = ()
    """Builds that it was reproduced on."""
    confidence: Literal["high", "medium", "low"] = "low"


class Unchecked(msgspec.Struct, frozen=True, kw_only=True):
    """A gotcha that could not be told to strike or not."""

    id: str
    title: str
    missing: str


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What is known to break about one command, before it is started."""

    schema: Literal["arriero.check/1"] = "arriero.check/1"
    argv: tuple[str, ...]
    findings: tuple[Finding, ...]
    fixed_argv: tuple[str, ...] | None = None
    """With every edit applied, checked again until nothing changed; null where there is none."""
    spelled: tuple[str, ...] = ()
    """``fixed_argv``, or ``argv``, as a line of the file it comes from: every word that no edit
    touches is as it is written there, quotes and variables included. Without a file, for a shell.
    """
    spelled_otherwise: tuple[str, ...] = ()
    """Where ``spelled`` is not what the file has though no edit is the reason, one line each."""
    later: tuple[Finding, ...] = ()
    """What ``fixed_argv`` mends too and only the command with earlier edits meets."""
    where: str | None = None
    """``file:line`` of the command."""
    build: int | None = None
    """The build whose rules were taken; null for the newest known."""
    engine: EngineRecord | None = None
    unchecked: tuple[Unchecked, ...] = ()
    notes: tuple[str, ...] = ()


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """A file with several commands."""

    schema: Literal["arriero.checks/1"] = "arriero.checks/1"
    checks: tuple[Check, ...]


class RunEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a reproduction showed."""

    flags: str
    env: dict[str, str]
    limit: int | None = None
    """Address space in bytes."""
    worker_limits: tuple[int | None, ...] = ()
    """The same of each worker."""
    outcome: TrialOutcome
    exit_status: int | None = None
    kind: Kind | None = None
    component: Component | None = None
    text: str = ""
    """The line of the log that shows it."""
    requests: Requests = Requests()
    shows: bool
    """Whether it shows the signature."""


class GotchaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a reproduction showed on one build. Only ``arriero gotchas verify`` writes one."""

    gotcha: str
    reproduction: str
    build: int | None
    verdict: Literal["reproduced", "not reproduced", "could not run"]
    reason: str = ""
    """Why it is not reproduced, or could not run."""
    run: RunEvidence | None = None
    control: RunEvidence | None = None
    machine: str
    """System, processor and the devices that took part."""
    at: str
    """Day, ISO 8601."""
    seconds: float


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of one run of ``gotchas verify``, or all on one gotcha."""

    schema: Literal["arriero.verdicts/1"] = "arriero.verdicts/1"
    build: int | None
    """The build of all of them; null where there are several."""
    verdicts: tuple[GotchaVerdict, ...]
    without: tuple[str, ...] = ()
    """Gotchas that were asked for and have no reproduction."""
    complete: bool = True
    """False when ``gotchas verify`` was interrupted: it holds what was known by then."""


class GotchaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One gotcha with what verdicts say about it."""

    schema: Literal["arriero.gotcha/1"] = "arriero.gotcha/1"
    id: str
    title: str
    bundle: str
    kind: str
    severity: Literal["error", "warning", "info"]
    status: Literal["draft", "reproduced", "not reproduced", "refuted"]
    confidence: Literal["high", "medium", "low"]
    builds: tuple[int, ...]
    """Builds that it was reproduced on."""
    not_builds: tuple[int, ...]
    """Builds that its reproductions ran on without showing it."""
    updated: str
    concepts: tuple[str, ...]
    affects: dict[str, tuple[str, ...]]
    log: tuple[str, ...]
    reporters: int
    provenance: dict[str, Any]
    related: tuple[str, ...]
    reproductions: tuple[str, ...]
    sections: dict[str, str]
    """Heading → text, in their fixed order."""
    verdicts: tuple[GotchaVerdict, ...] = ()


class Gotchas(msgspec.Struct, frozen=True, kw_only=True):
    """All gotchas."""

    schema: Literal["arriero.gotchas/1"] = "arriero.gotchas/1"
    gotchas: tuple[GotchaEntry, ...]
