"""The dry run: what the installed engine itself would allocate for a model and its settings.

A child process loads the engine's own library, which builds models and contexts without allocating
their memory; its account of every buffer type is exact to the byte. Whatever the engine can say is
not computed here. The child costs about 100 MiB and 0.1 s however large the plan is: it contains
neither weights nor caches nor recurrent state.
"""

from __future__ import annotations

import json
import platform
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final, cast

import msgspec

from arriero.base.errors import ArrieroError
from arriero.gguf import Header, read_header, skeleton
from arriero.launch.params import EngineParams as EngineParams
from arriero.launch.params import ProjectorParams as ProjectorParams
from arriero.process import scratch_directory, start, temporary_directory

_BATCH: Final = 24
"""Requests for one child; they must fit in one argument of at most 128 KiB."""
_BATCH_BYTES: Final = 100_000
_LAST_WORDS: Final = 3
_CHILD: Final = str(Path(__file__).with_name("oracle_child"))
"""A package that Python runs by its folder: without arriero, and without writing ``.pyc`` files."""


@dataclass(frozen=True)
class DryBuffer:
    """Bytes in one buffer type. ``device`` is the type's name in the engine's log.

    ``context`` is KV cache and recurrent state together; ``rs`` is the recurrent part. The engine's
    breakdown does not include ``output``. ``model`` on the host is the sum of the tensors; a mapped
    file appears as ``CPU_Mapped`` instead and counts from its first to its last byte.
    """

    device: str
    model: int
    context: int
    compute: int
    rs: int
    output: int

    @property
    def kv(self) -> int:
        """All attention caches."""
        return self.context - self.rs


@dataclass(frozen=True)
class DryRun:
    """The engine's answer: effective values and buffers.

    Exact to the byte on one device and the host; with several devices in a pipeline the last one's
    compute can come out 2 MiB too large.

    ``address_space_delta`` is what the child's address space grew by while it made the context, in
    bytes. No buffer is in it: it is the host memory that no size line shows (scheduler context,
    graph metadata, KV cell bookkeeping), of which only a part becomes resident. A server of build
    10434 takes that much to within half a MiB. ``log`` has the engine's own size lines; model and
    KV ``buffer size`` are 0.00 there because nothing is allocated.
    """

    buffers: tuple[DryBuffer, ...]
    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    n_rs_seq: int
    address_space_delta: int
    log: tuple[str, ...]

    @property
    def kv(self) -> int:
        return sum(b.kv for b in self.buffers)

    @property
    def rs(self) -> int:
        return sum(b.rs for b in self.buffers)

    @property
    def compute(self) -> int:
        return sum(b.compute for b in self.buffers)

    @property
    def output(self) -> int:
        return sum(b.output for b in self.buffers)


@dataclass(frozen=True)
class ProjectorBuffer:
    """What one buffer type holds for a projector, in bytes.

    ``model`` is its weights, padding included; ``tensors`` is without, as the engine's own
    ``--fit`` counts. ``compute`` is for the image of the server's warm-up: a larger one, or several
    that are encoded together, take more.
    """

    device: str
    model: int
    tensors: int
    compute: int


@dataclass(frozen=True)
class ProjectorRun:
    """The engine's answer about a projector. Exact for the start on a local device.

    ``flash_attn`` is whether it computes with flash attention.
    """

    buffers: tuple[ProjectorBuffer, ...]
    flash_attn: bool


@dataclass(frozen=True)
class Unanswered:
    """The engine gave no answer, or none that can be trusted; ``reason`` says why."""

    reason: str


class _Reply(msgspec.Struct, frozen=True):
    index: int
    answer: DryRun | None = None
    projector: ProjectorRun | None = None
    reason: str = ""


@dataclass
class _Ear:
    """The output of the child: its replies, and its last other lines in case it dies."""

    replies: dict[int, DryRun | ProjectorRun | Unanswered] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        with suppress(msgspec.MsgspecError):
            reply = msgspec.json.decode(line, type=_Reply)
            found = reply.answer or reply.projector
            self.replies[reply.index] = found or Unanswered(reply.reason)
            self.words = []
            return
        if line.strip():
            self.words = [*self.words[1 - _LAST_WORDS :], line.strip()[:200]]


def dry_run(
    library_dir: Path,
    requests: Sequence[EngineParams],
    *,
    environ: Mapping[str, str],
    timeout: float,
) -> tuple[DryRun | Unanswered, ...]:
    """Ask the engine whose program is in ``library_dir``; one result per request, in order.

    ``libllama.so`` is looked for there and in ``../lib``. Requests that share their model settings
    share one load when they stand next to each other. ``environ`` should be the engine's: device
    visibility and limits of drivers count. RPC workers are not contacted, so that a command with
    ``--rpc`` has no answer here. ``timeout`` is for all of them together, in seconds; what was
    answered before it is kept. Nothing is raised: what cannot be told is `Unanswered`. A long
    vocabulary is left out of what the engine reads: only its length matters.
    """
    library = _library(library_dir, "libllama.so")
    if isinstance(library, Unanswered):
        return (library,) * len(requests)
    deadline = time.monotonic() + timeout
    with _without_vocabularies(requests) as lighter:
        asked = [replace(r, model=lighter.get(r.model, r.model)) for r in requests]
        results = _answers(library, asked, environ, deadline)
    # what the engine makes nothing of without its vocabulary, it may with it
    again = [
        index
        for index, result in enumerate(results)
        if isinstance(result, Unanswered) and requests[index].model in lighter
    ]
    whole = _answers(library, [requests[index] for index in again], environ, deadline)
    for index, result in zip(again, whole, strict=True):
        results[index] = result
    return tuple(results)


@contextmanager
def _without_vocabularies(requests: Sequence[EngineParams]) -> Iterator[Mapping[Path, Path]]:
    """Headers to use instead of models whose vocabulary would take most of an engine's time."""
    models = {request.model for request in requests}
    light = {model: header for model in models if (header := _light_header(model)) is not None}
    if not light:
        yield {}
        return
    with ExitStack() as stack:
        written: dict[Path, Path] = {}
        with suppress(ArrieroError, OSError):
            home = stack.enter_context(scratch_directory(temporary_directory()))
            for number, (model, header) in enumerate(light.items()):
                written[model] = skeleton.write_header(header, home / f"{number}.gguf")[0]
        yield written


def _light_header(model: Path) -> Header | None:
    try:
        about = model.stat()
        return _light_header_of(model, about.st_mtime_ns, about.st_size)
    except (ArrieroError, OSError):
        return None


@lru_cache(maxsize=4)
def _light_header_of(model: Path, _changed: int, _size: int) -> Header | None:
    return skeleton.without_vocabulary(read_header(model))


def _answers(
    library: Path, requests: Sequence[EngineParams], environ: Mapping[str, str], deadline: float
) -> list[DryRun | Unanswered]:
    """One result per request, from as many children as it takes."""
    results: list[DryRun | Unanswered] = []
    fruitless = 0
    while len(results) < len(requests):
        batch = _batch(requests[len(results) : len(results) + _BATCH])
        answered, reason = _ask(library, batch, environ, deadline - time.monotonic())
        results += answered
        if len(answered) == len(batch):
            fruitless = 0
            continue
        # The one it died on has its reason; the others get a child of their own, unless dying is
        # all that children do here.
        fruitless = 0 if answered else fruitless + 1
        over = fruitless > 1 or time.monotonic() >= deadline
        results += [Unanswered(reason)] * (len(requests) - len(results) if over else 1)
    return results


def projector_run(
    library_dir: Path,
    request: ProjectorParams,
    *,
    environ: Mapping[str, str],
    timeout: float,
) -> ProjectorRun | Unanswered:
    """Ask the engine what a projector takes when its server is ready, as :func:`dry_run` does.

    The engine's own question to itself, which its ``--fit`` goes by: nothing is read but the
    header, and no weights exist.
    """
    library = _library(library_dir, "libmtmd.so")
    if isinstance(library, Unanswered):
        return library
    values = asdict(request) | {"path": str(request.path.absolute())}
    ear, reason = _hear({"library": str(library), "projector": values}, library, environ, timeout)
    found = ear.replies.get(0)
    return found if isinstance(found, ProjectorRun | Unanswered) else Unanswered(reason)


def _batch(requests: Sequence[EngineParams]) -> Sequence[EngineParams]:
    """As many as one argument holds, at least one: overrides can be long."""
    size = 0
    for index, request in enumerate(requests):
        size += len(json.dumps(_plain(request)))
        if index and size > _BATCH_BYTES:
            return requests[:index]
    return requests


def _library(directory: Path, name: str) -> Path | Unanswered:
    if platform.system() != "Linux":
        return Unanswered("dry runs work only on Linux")
    for place in (directory, directory.parent / "lib"):
        for found in (place / name, *sorted(place.glob(f"{name}.*"))):
            if found.is_file():
                return found.absolute()
    return Unanswered(f"there is no {name} in {directory} or beside it: the engine is static")


def _ask(
    library: Path, requests: Sequence[EngineParams], environ: Mapping[str, str], seconds: float
) -> tuple[list[DryRun | Unanswered], str]:
    """The answers of one child up to where it died, and why it died (empty if it did not)."""
    spec = {"library": str(library), "requests": [_plain(r) for r in requests]}
    ear, reason = _hear(spec, library, environ, seconds)
    answered: list[DryRun | Unanswered] = []
    for index in range(len(requests)):
        if index not in ear.replies:
            return answered, reason
        answered.append(cast(DryRun | Unanswered, ear.replies[index]))
    return answered, ""


def _hear(
    spec: Mapping[str, object], library: Path, environ: Mapping[str, str], seconds: float
) -> tuple[_Ear, str]:
    """The output of one child, and why it ended if a reply is missing."""
    argv = child_command(spec)
    env = {
        **environ,
        "LD_LIBRARY_PATH": f"{library.parent}:{environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        # A debugger attached to a dying child takes longer than all the rest.
        "GGML_NO_BACKTRACE": "1",
        # Large blocks go back to the system when freed, so that every context starts alike.
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
    }
    ear = _Ear()
    ended = None
    try:
        with start(argv, env=env, on_line=ear.hear) as child:
            ended = child.wait(max(seconds, 0))
        reason = "it did not answer in time" if ended is None else _death(ended.status, ear)
    except (ArrieroError, OSError) as error:
        reason = f"the dry run did not start: {error}"
    return ear, reason


def child_command(spec: Mapping[str, object]) -> list[str]:
    """What starts the child with a request."""
    return [sys.executable, "-I", "-S", "-B", _CHILD, json.dumps(spec)]


def _plain(request: EngineParams) -> dict[str, object]:
    values = asdict(request) | {"model": str(request.model.absolute())}
    outputs = min(request.n_batch, request.n_seq_max * (1 + request.n_rs_seq))
    if request.embeddings:
        outputs = request.n_batch
    if request.n_outputs_max is None:
        values["n_outputs_max"] = outputs
    if request.n_outputs_max_per_seq is None:
        values["n_outputs_max_per_seq"] = 1 + request.n_rs_seq
    return values


def _death(status: int, ear: _Ear) -> str:
    how = f"status {status}"
    if status < 0:
        try:
            how = signal.Signals(-status).name
        except ValueError:
            how = f"signal {-status}"
    said = " / ".join(ear.words)
    return f"the engine's library ended the dry run with {how}" + (f": {said}" if said else "")
