"""A failure in the making: what the lines about it say, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from arriero.base.sizes import MIB
from arriero.base.words import Component, Kind, Phase, Role
from arriero.logs.grammar import Event, Rule, To
from arriero.logs.lines import Line

NEAR, GROUP, FAR = 12, 40, 200
"""Lines within which allocator messages belong together; within which their owner follows; within
which a death is a consequence."""
RUNTIME: Final = (Phase.WARMUP, Phase.SERVING)
MILD: Final = (Kind.REPROCESSING, Kind.STATE_GROWTH, Kind.CACHE_FULL)
MEMORY: Final = (Kind.ALLOCATION, Kind.BUFFER_LIMIT, Kind.RUNTIME_ALLOCATION)


def bytes_of_mib(mib: str) -> int:
    """Bytes of a figure printed in MiB, with a decimal point or a decimal comma."""
    whole, _, fraction = mib.rstrip(".,").replace(" ", "").replace(",", ".").rpartition(".")
    return round(float(f"{whole.replace('.', '')}.{fraction}" if whole else fraction) * MIB)


def size_in(event: Event) -> tuple[int | None, bool]:
    """The size a message names, and whether it was printed in bytes."""
    if "bytes" in event.facts:
        return int(event.facts["bytes"].replace(" ", "")), True
    if "mib" in event.facts:
        return bytes_of_mib(event.facts["mib"]), False
    return None, False


@dataclass
class Cause:
    """One failure in the making. ``line`` and ``text`` are of the line that names it best."""

    kind: Kind
    rule: Rule
    """Of the line that first told of it, or of one that told more."""
    line: int
    text: str
    last: int
    """Number of the last line that added to it."""
    component: Component | None = None
    family: str | None = None
    index: int | None = None
    device: str | None = None
    size: int | None = None
    exact: bool = False
    """Whether ``size`` was printed in bytes."""
    whole: int | None = None
    phase: Phase | None = None
    role: Role = Role.MAIN
    fatal: bool | None = None
    presumed: bool | None = None
    inferred: bool = False
    probe: bool = False
    """Whether it is in a dry run of the fit."""
    usual: bool = False
    """Whether it is in a dry run for all that is known: most are."""
    normal: bool = False
    """Whether every dry run of this kind is refused so."""
    owned: bool = False
    """Whether a line said whose it was, even if in words that are none of the components."""
    of_tensors: bool = False
    """Whether it is a buffer of tensors that are kept: weights or a cache, nothing computed."""
    retried: bool = False
    went_on: bool = False
    """Whether a later line comes only when the start, or the process, went on."""

    @property
    def unowned(self) -> bool:
        """Whether it is not yet known whose request was refused."""
        return self.kind in MEMORY and self.component is None

    def about(self, size: int | None) -> bool:
        """Whether a message about ``size`` bytes can be about the same request."""
        if size is None or self.size is None:
            return True
        return abs(size - self.size) <= max(MIB // 64, self.size // 1000)

    def add_size(self, size: int | None, exact: bool) -> None:
        """Take ``size`` if there is none yet, or if it is more exact."""
        if size is not None and (self.size is None or (exact and not self.exact)):
            self.size, self.exact = size, exact

    def more(self, line: Line) -> None:
        """Take ``line`` as a further one of this failure: what came between was printed late."""
        self.last, self.went_on = line.number, False

    def name(self, line: Line) -> None:
        """Let ``line`` be the one that is shown."""
        self.line, self.text = line.number, line.text

    def place(self, where: To | None) -> None:
        """Take from a line of a backtrace where the process was."""
        if where is To.FIT:
            self.phase = Phase.FIT
        elif where is To.REMOTE:
            self.kind = Kind.RPC if self.kind is Kind.CRASH else self.kind
        elif self.kind is Kind.CRASH or (self.unowned and self.kind is Kind.RUNTIME_ALLOCATION):
            self.component, self.phase = Component.PROMPT_CACHE, Phase.SERVING
