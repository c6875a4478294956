"""The words of the machine contract. Each enum's values are the strings that appear in JSON."""

from __future__ import annotations

from enum import StrEnum


class Component(StrEnum):
    """A part of the server that takes memory."""

    WEIGHTS = "weights"
    KV = "kv"
    """All attention caches, those of sliding windows, indexers and compressors included."""
    RS = "rs"
    """Recurrent state of a recurrent or hybrid model."""
    COMPUTE = "compute"
    GRAPH = "graph"
    """Host memory for graph metadata; no size line of llama.cpp shows it."""
    OUTPUT = "output"
    PROMPT_CACHE = "prompt_cache"
    CHECKPOINTS = "checkpoints"
    MMPROJ = "mmproj"
    DRAFT = "draft"
    POOL = "pool"
    """A backend's own pool or workspace."""


class MemoryClass(StrEnum):
    """What a context of the model keeps between tokens."""

    ATTENTION = "attention"
    """A KV cache of any kind: plain, sliding window, MLA, indexed, compressed."""
    RECURRENT = "recurrent"
    """Recurrent state only: no KV cache."""
    HYBRID = "hybrid"
    """A KV cache and recurrent state."""
    NONE = "none"
    """Nothing: an embedding or diffusion model."""
    UNKNOWN = "unknown"
    """An architecture this version does not know."""


class Kind(StrEnum):
    """What kind of failure it was. If two apply, the more specific one counts."""

    ALLOCATION = "allocation"
    BUFFER_LIMIT = "buffer_limit"
    RUNTIME_ALLOCATION = "runtime_allocation"
    CACHE_FULL = "cache_full"
    STATE_GROWTH = "state_growth"
    REPROCESSING = "reprocessing"
    RPC = "rpc"
    BACKEND = "backend"
    CONFIG = "config"
    MODEL = "model"
    ENVIRONMENT = "environment"
    KILLED = "killed"
    HANG = "hang"
    CRASH = "crash"


class Phase(StrEnum):
    """Where in its life the server was."""

    ARGUMENTS = "arguments"
    FIT = "fit"
    LOAD = "load"
    CONTEXT = "context"
    WARMUP = "warmup"
    SERVING = "serving"
    SHUTDOWN = "shutdown"


class Method(StrEnum):
    """Where a number comes from. Every number that is shown carries one."""

    MEASURED = "measured"
    """This engine printed or reported it."""
    EXACT = "exact"
    """A formula proved against the engine."""
    CALIBRATED = "calibrated"
    """Fitted to this engine's own runs."""
    ESTIMATED = "estimated"
    """A bound."""
    UNKNOWN = "unknown"


class Evidence(StrEnum):
    """Whether the log names the cause or the cause had to be inferred."""

    NAMED = "named"
    INFERRED = "inferred"


class Role(StrEnum):
    """Whose buffer it is."""

    MAIN = "main"
    DRAFT = "draft"
    MMPROJ = "mmproj"


class LogOutcome(StrEnum):
    """How a log ends, as far as the log shows."""

    FAILED = "failed"
    STARTED = "started"
    EXITED = "exited"
    UNKNOWN = "unknown"


class TrialOutcome(StrEnum):
    """How a trial ended. Ready is not served."""

    SERVED = "served"
    READY = "ready"
    FAILED = "failed"


class LimitKind(StrEnum):
    """What a memory limit counts."""

    ADDRESS_SPACE = "address-space"
    """``RLIMIT_AS``: virtual memory, thread arenas and mapped files included. Not RAM."""
    CGROUP = "cgroup"
    """A memory cgroup: RAM, page cache included; the kernel kills instead of refusing."""


class Cost(StrEnum):
    """What a change costs the user, cheapest first (the order of declaration is the ranking)."""

    FREE = "free"
    PROMPT_REUSE = "prompt reuse"
    SPEED = "speed"
    CONCURRENCY = "concurrency"
    CONTEXT = "context"
    QUALITY = "quality"

    @property
    def rank(self) -> int:
        """0 for the cheapest."""
        return list(Cost).index(self)


class ServerState(StrEnum):
    """Of a server that stays up."""

    STARTING = "starting"
    READY = "ready"
    """Its engine has answered a completion."""
    RECOVERING = "recovering"
    """The engine was lost; requests are held until it is back."""
    DRAINING = "draining"
    """It ends when what it has is answered; nothing new is taken."""
    FAILED = "failed"
    """Given up."""


class Recovery(StrEnum):
    """What was done when an engine was lost."""

    RESTART = "restart"
    """The same command again."""
    SMALLER = "smaller"
    """The next smaller command that fits."""
    WITHOUT_WORKER = "without_worker"
    """The command without the worker that is gone."""
    GIVE_UP = "give_up"


class ReportFormat(StrEnum):
    """How a record is laid out for others to read."""

    MARKDOWN = "markdown"
    HTML = "html"
    UPSTREAM = "upstream"
    """The text of an issue at llama.cpp."""
