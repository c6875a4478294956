"""What a command will take, before it is started."""

from __future__ import annotations

from typing import Literal

import msgspec

from arriero.base.words import Component, Cost, Method
from arriero.logs.model import Failure
from arriero.record.baseline import EngineRecord, ModelRecord


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
    slots_given: bool = True
    """Whether the command says how many slots; otherwise the server chose."""
    checkpoints: int | None = None
    """The most context checkpoints that a slot keeps; null where that is not known."""


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
    pool: str = ""
    """Name of the pool that holds it; empty where no known pool does."""


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

    @property
    def is_short(self) -> bool:
        """Whether the most that is planned leaves less than the margin: something is to change."""
        return self.usable and self.headroom is not None and self.headroom < self.margin


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
