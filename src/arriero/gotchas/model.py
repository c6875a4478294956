"""The parts of a gotcha: its head, what its rule finds, how it is reproduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from arriero.base.words import Component, Kind, Phase, TrialOutcome
from arriero.gguf import Shape
from arriero.gotchas.facts import Facts
from arriero.launch.edits import Settings
from arriero.record import Edit

if TYPE_CHECKING:
    from arriero.gguf.projector import Projector


class Class(StrEnum):
    """What causes it."""

    FRAMEWORK = "framework"
    """llama.cpp's own code, independent of the backend."""
    BACKEND = "backend"
    CONFIGURATION = "configuration"
    HARDWARE = "hardware"


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """The start fails, or the server dies."""
    WARNING = "warning"
    """The server runs, but does not do what the command says, or fails later."""
    INFO = "info"


class Applies(StrEnum):
    YES = "yes"
    MAYBE = "maybe"
    """A fact that would decide it is unknown; ``missing`` names it."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where it is known from: an upstream report, or a build on which it was first seen."""

    issues: tuple[str, ...] = ()
    """Issues and pull requests, as ``owner/name#number``."""
    builds: str = ""
    """Builds of the reports, in the reporters' own words; not the verified builds."""
    hardware: str = ""
    command: str = ""
    """The flags that matter, as reported."""


@dataclass(frozen=True, kw_only=True)
class Affects:
    """What it is limited to; empty means no limit. Build ranges come from verdicts."""

    backends: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What a log shows when the gotcha may have struck. All given fields must match.

    A sign is matched against the log's failure or, with ``notice``, against the notices of that id.
    ``text`` is a regular expression for the engine's own line; with it, secondary failures are
    matched too. ``least`` is the smallest size of the failed allocation in bytes, ``device`` the
    beginning of the device's name, and ``builds`` the first and last possible build; a log without
    a build matches any.
    """

    text: str | None = None
    kinds: tuple[Kind, ...] = ()
    components: tuple[Component, ...] = ()
    phases: tuple[Phase, ...] = ()
    device: str | None = None
    least: int = 0
    notice: str | None = None
    builds: tuple[int, int] | None = None
    cpu: bool = False
    """Match only a failure at an instruction that the CPU does not have."""
    sure: bool = False
    """Whether nothing else causes such a line."""


@dataclass(frozen=True, kw_only=True)
class Gotcha:
    """The head of one gotcha. Its title and text are the docstring of its file, its id is the
    file's name. Status, confidence and affected builds are not here: they come from verdicts.
    """

    kind: Class
    severity: Severity
    updated: str
    """Day of the last change to text or rule, ISO 8601."""
    concepts: tuple[str, ...]
    provenance: Provenance
    affects: Affects = Affects()
    log: tuple[str, ...] = ()
    """Texts of the log lines that are typical of it."""
    signs: tuple[Sign, ...] = ()
    """How ``explain`` recognises it in a log; one match is enough."""
    reporters: int = 0
    """Number of people who reported it; one person with three issues counts once."""
    related: tuple[str, ...] = ()
    """Ids of related gotchas."""


def edits_of(settings: Settings) -> tuple[Edit, ...]:
    """Settings as what a finding proposes."""
    return tuple(Edit(flag=flag, value=value) for flag, value in settings.items())


@dataclass(frozen=True, kw_only=True)
class Found:
    """A rule's finding: this gotcha strikes this command.

    ``because`` is the evidence in one line: the flag, the key of the header, the device's memory.
    ``flag`` or ``line`` says where to point in a file. ``severity`` replaces the gotcha's own if
    this case is milder; a ``maybe`` is never an error.
    """

    because: str
    applies: Applies = Applies.YES
    missing: tuple[str, ...] = ()
    edit: tuple[Edit, ...] = ()
    flag: str | None = None
    line: int | None = None
    severity: Severity | None = None


Detect = Callable[[Facts], Iterator[Found]]

# --- reproduction ---------------------------------------------------------------------------------

STEADY: Final = {"MALLOC_ARENA_MAX": "1"}
"""Makes address space repeatable: threads that wake up do not reserve 64 MiB arenas."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One ``ggml-rpc-server`` on the loopback.

    With ``room`` its address space is limited to what it needs to serve the control plus so many
    bytes. A ``skewed`` worker is of another build, whose protocol version the engine refuses.
    """

    env: Mapping[str, str] = field(default_factory=lambda: STEADY)
    room: int | None = None
    skewed: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineRun:
    """One start of the engine with the skeleton model and the standard load.

    ``flags`` come after ``llama-server -m MODEL``, separated by spaces. ``{workers}`` stands for
    the endpoints of ``workers``, ``{model}`` for MODEL, ``{mmproj}`` for the projector's file. All
    devices are hidden unless ``env`` shows one. ``limit`` is the address space in bytes. With
    ``above``, ``limit`` is added to what a run with the flags ``above`` needs to become ready.
    """

    flags: str
    env: Mapping[str, str] = field(default_factory=lambda: STEADY)
    limit: int | None = None
    above: str | None = None
    workers: tuple[Worker, ...] = ()
    requests: int = 0
    """Least number of requests; the standard load sends about ten by itself."""
    shared: int = 0
    """Number of tokens with which all prompts begin."""
    behind: str = ""
    """Words before ``llama-server``, separated by spaces."""
    other_engine: bool = False
    """Whether to run the second engine (``--worker-engine``) instead of the verified one."""
    image: int = 0
    """Side in pixels of an image that is sent in a chat before all other requests; 0 sends none."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a run must show. All given fields must match."""

    outcome: TrialOutcome | None = None
    kind: Kind | None = None
    component: Component | None = None
    exit_status: int | None = None
    """Negative for a signal."""
    log: str | None = None
    """A regular expression for a line of the log, or for ``ended with SIGSEGV`` (an engine may die
    without a line)."""
    effective: Mapping[str, int | bool] = field(default_factory=dict)
    """Values with which the engine says that it runs, such as ``n_ctx_seq``."""


class Needs(StrEnum):
    """Something that a reproduction needs and not every machine has."""

    VULKAN = "vulkan"
    """A Vulkan device 0; a software driver is enough."""
    RPC_SERVER = "rpc-server"
    """``ggml-rpc-server`` beside the engine."""
    OTHER_BUILD = "other-build"
    """A second llama.cpp of another build, whose ``ggml-rpc-server`` the engine refuses."""
    OTHER_CPU = "other-cpu"
    """An emulator of another CPU, an engine that was not compiled for it, and one that was."""
    ADDRESS_SPACE = "address-space"
    """A system that can limit address space."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """How to see it: ``run`` must show ``shows``; ``control``, with the workaround, must not."""

    name: str
    model: Shape
    run: EngineRun
    control: EngineRun
    shows: Signature
    needs: tuple[Needs, ...] = ()
    weights: Literal["random", "zeros"] = "random"
    projector: Projector | None = None
    unknown: tuple[str, ...] = ()
    """Flags that the engine must not know."""
    control_serves: bool = True
    """False if the workaround leads to a clear refusal instead of a served load."""
