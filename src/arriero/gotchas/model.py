"""What a gotcha is made of: its head, what its rule finds, how it is reproduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from arriero.base.words import Component, Kind, Phase, TrialOutcome
from arriero.gguf import Shape
from arriero.launch.edits import Settings
from arriero.record import Edit

if TYPE_CHECKING:
    from arriero.gguf.projector import Projector
    from arriero.gotchas.facts import Facts


class Class(StrEnum):
    """Whose doing it is."""

    FRAMEWORK = "framework"
    """llama.cpp's own code, whatever the backend."""
    BACKEND = "backend"
    CONFIGURATION = "configuration"
    HARDWARE = "hardware"


class Severity(StrEnum):
    """What happens to who meets it."""

    ERROR = "error"
    """The start fails, or the server dies."""
    WARNING = "warning"
    """It runs, and does something else than the command says or fails later."""
    INFO = "info"


class Applies(StrEnum):
    YES = "yes"
    MAYBE = "maybe"
    """Something that would decide it is not known; ``missing`` says what."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where it comes from: at least one report upstream, or a build it was first seen on here."""

    issues: tuple[str, ...] = ()
    """Issues and pull requests, as ``owner/name#number``."""
    builds: str = ""
    """Builds of the reports, in the reporters' own words; never what was verified."""
    hardware: str = ""
    command: str = ""
    """The flags that matter, as reported."""


@dataclass(frozen=True, kw_only=True)
class Affects:
    """What it is limited to; empty is not limited. Build ranges come from verdicts."""

    backends: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sign:
    """What a log says where the gotcha may have struck. Everything that is given must hold.

    It is looked for in the failure, and with ``notice`` in the notices of that id. ``text`` is a
    regular expression for the engine's own line; one that has it is looked for in failures that
    are secondary too. ``least`` are the bytes of the failure at least, ``device`` what the name of
    its device begins with, ``builds`` the first and the last build that can have it: a log that
    does not name its build may be of any.
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
    """Only a failure at an instruction that the CPU does not have."""
    sure: bool = False
    """Whether nothing else leaves such a line."""


@dataclass(frozen=True, kw_only=True)
class Gotcha:
    """The head of one gotcha. Title and text are the docstring of its file, its id the file's name.

    Status, confidence and the builds it holds for are not here: they come from verdicts.
    """

    kind: Class
    severity: Severity
    updated: str
    """Day of the last change to text or rule, ISO 8601."""
    concepts: tuple[str, ...]
    provenance: Provenance
    affects: Affects = Affects()
    log: tuple[str, ...] = ()
    """Words of the log lines by which it is known."""
    signs: tuple[Sign, ...] = ()
    """How ``explain`` knows it in a log; any one of them will do."""
    reporters: int = 0
    """Different people who reported it; one person with three issues is one."""
    related: tuple[str, ...] = ()
    """Ids of others."""


def edits_of(settings: Settings) -> tuple[Edit, ...]:
    """Settings as what a finding proposes."""
    return tuple(Edit(flag=flag, value=value) for flag, value in settings.items())


@dataclass(frozen=True, kw_only=True)
class Found:
    """A rule's finding: this gotcha strikes this command.

    ``because`` is the evidence in one line: the flag, the key of the header, the device's figure.
    ``flag`` is where to point in a file, or ``line``. ``severity`` replaces the gotcha's own where
    the same gotcha is milder in this case; a ``maybe`` is never an error.
    """

    because: str
    applies: Applies = Applies.YES
    missing: tuple[str, ...] = ()
    edit: tuple[Edit, ...] = ()
    flag: str | None = None
    line: int | None = None
    severity: Severity | None = None


class MissingError(Exception):
    """A rule cannot tell without this. Raised by :class:`Facts`; ``check`` says what is missing."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


Detect = Callable[["Facts"], Iterator[Found]]

# --- reproduction ---------------------------------------------------------------------------------

STEADY: Final = {"MALLOC_ARENA_MAX": "1"}
"""Makes address space repeatable: no 64 MiB arena for each thread that wakes up."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One ``ggml-rpc-server`` on the loopback.

    With ``room`` its address space is limited: to what it takes when the control is served, and so
    many bytes more. A ``skewed`` one is of another build, whose version of the protocol the engine
    refuses.
    """

    env: Mapping[str, str] = field(default_factory=lambda: STEADY)
    room: int | None = None
    skewed: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineRun:
    """One start of the engine with the skeleton model and the standard load.

    ``flags`` come after ``llama-server -m MODEL``, parted by spaces; ``{workers}`` stands for the
    endpoints of ``workers``, ``{model}`` for MODEL, ``{mmproj}`` for the projector's file. Device
    variables hide every device unless ``env`` shows one. ``limit`` is address space in bytes;
    ``above`` instead of it takes what the same run with those flags in their place needs to become
    ready, and ``limit`` more than that.
    """

    flags: str
    env: Mapping[str, str] = field(default_factory=lambda: STEADY)
    limit: int | None = None
    above: str | None = None
    workers: tuple[Worker, ...] = ()
    requests: int = 0
    """Requests at least; the standard load sends about ten by itself."""
    shared: int = 0
    """Tokens that all prompts begin with."""
    behind: str = ""
    """Words before ``llama-server``, parted by spaces."""
    other_engine: bool = False
    """On the second engine (``--worker-engine``) instead of the one that is verified."""
    image: int = 0
    """Pixels a side of an image that is sent in a chat before everything else; 0 sends none."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a run must show. Everything that is given must hold."""

    outcome: TrialOutcome | None = None
    kind: Kind | None = None
    component: Component | None = None
    exit_status: int | None = None
    """Negative for a signal."""
    log: str | None = None
    """A regular expression that a line of the log matches, or ``ended with SIGSEGV``: an engine may
    die without a line."""
    effective: Mapping[str, int | bool] = field(default_factory=dict)
    """Values the engine says it runs with, such as ``n_ctx_seq``."""


class Needs(StrEnum):
    """A part that not every machine has."""

    VULKAN = "vulkan"
    """A Vulkan device 0; a software driver will do."""
    RPC_SERVER = "rpc-server"
    """``ggml-rpc-server`` beside the engine."""
    OTHER_BUILD = "other-build"
    """A second installation of llama.cpp, with a ``ggml-rpc-server`` that the engine refuses."""
    OTHER_CPU = "other-cpu"
    """An emulator of another CPU, an engine that was not compiled for it, and one that was."""
    ADDRESS_SPACE = "address-space"
    """A system that limits address space."""


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
    """Flags that the engine is meant not to know."""
    control_serves: bool = True
    """False where the workaround leads to a clear refusal instead of a served load."""
