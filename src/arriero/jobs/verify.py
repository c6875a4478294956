"""``arriero verify``: does a server get through its load, and what does that leave free?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from arriero.base import limits
from arriero.base.errors import NotFoundError, RecordError, UsageError
from arriero.base.paths import StrPath, texts
from arriero.base.redact import Redactor
from arriero.base.words import Phase, TrialOutcome
from arriero.jobs._baseline import Ground, survey
from arriero.jobs._bench import bench_of
from arriero.jobs._engine import failure_of, misfit_of
from arriero.jobs._runs import Recorder
from arriero.jobs._server import reason_of, server_at, without_login
from arriero.launch import Serving
from arriero.logs.model import Failure
from arriero.machine.cpu import INSTEAD
from arriero.process import Limit, scratch_directory, sweep, temporary_directory
from arriero.record import NOT_KEPT, Peak, Requests, Speed, Trial, Verification
from arriero.report.progress import Progress, Silent
from arriero.store import Store, new_id
from arriero.trial import LoadResult, Patience, TrialSpec, Workload, run_load, run_trial
from arriero.trial.client import Client, slots_in
from arriero.trial.replies import Reply, kind_of

_INTERRUPTED: Final = ("the load: it was interrupted",)
_PROPS_S: Final = 10.0
"""Seconds that a server may take to say what it is."""


@dataclass(frozen=True)
class VerifyOptions:
    """What ``arriero verify`` can be told; ``api_key`` is for a server given by its address."""

    engine: StrPath | None = None
    limit: Limit | None = None
    requests: int = 64
    api_key: str | None = None
    patience: Patience = field(default_factory=Patience)

    @property
    def workload(self) -> Workload:
        return Workload(
            min_requests=self.requests,
            long_prompt_s=30.0,
            timeout_s=self.patience.request_s,
        )


def verify(
    words: Sequence[StrPath],
    options: VerifyOptions | None = None,
    *,
    store: Store | None = None,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
) -> Verification:
    """Start a command, load it, end it, keep the record.

    Raises:
        ArrieroError: The command, the engine or the model cannot be used.
    """
    options, store = options or VerifyOptions(), store or Store()
    started = time.monotonic()
    sweep(temporary_directory())
    ground = survey(
        texts(words), engine=options.engine, limit=options.limit, environ=environ, verb="verify"
    )

    def kept(**shown: Any) -> Verification:
        target = " ".join(ground.command.safe_argv())
        found = _with(target, started, baseline=ground.baseline, **shown)
        return _kept(found, store, ground.redactor)

    unfit = misfit_of(ground.engine, ground.command)
    if unfit is not None and unfit.sure:
        skipped = ("the start and the load: this engine cannot run on this CPU",)
        return kept(failure=failure_of(unfit), skipped=skipped, notes=(INSTEAD,))
    recorder = Recorder(store, ground)
    try:
        trial = _run(ground, options, recorder, progress or Silent())
    except KeyboardInterrupt:
        return kept(skipped=_INTERRUPTED, complete=False)
    recorder.ran(ground.command, trial)
    recorder.close()
    notes = (f"the engine was compiled for {unfit.told}",) if unfit else ()
    return kept(notes=notes, **_shown_by(trial))


def _shown_by(trial: Trial) -> dict[str, Any]:
    """The fields of a verification that its trial fills."""
    return {
        "verified": trial.outcome is TrialOutcome.SERVED and all(s.shown_by for s in trial.steps),
        "steps": trial.steps,
        "skipped": trial.skipped,
        "requests": trial.requests,
        "failure": trial.failure,
        "peak": trial.peak,
        "headroom": trial.headroom,
        "growth_per_request": trial.growth_per_request,
        "speed": trial.speed,
        "trial": trial,
    }


def _run(ground: Ground, options: VerifyOptions, recorder: Recorder, watch: Progress) -> Trial:
    """The one trial of a verification."""
    spec = TrialSpec(
        n=1,
        purpose="verification",
        command=ground.command,
        change={},
        workload=options.workload,
    )
    with scratch_directory(temporary_directory()) as scratch:
        bench = bench_of(
            ground,
            scratch,
            limit=options.limit,
            patience=options.patience,
            found=recorder.found,
        )
        watch.begin(1)
        watch.step("starting and loading the server", f"{options.requests} requests or more")
        try:
            return run_trial(spec, bench)
        finally:
            watch.end()


def verify_url(
    url: str, options: VerifyOptions | None = None, *, store: Store | None = None
) -> Verification:
    """Load a server that already runs. Its memory cannot be seen from outside; its answers can.

    Raises:
        UsageError: Not an address of HTTP.
        NotFoundError: Nothing answers there, or it is not a llama-server that is ready.
    """
    options, store = options or VerifyOptions(), store or Store()
    started = time.monotonic()
    server = server_at(url, options.api_key)
    url = without_login(url)
    redactor = Redactor(secrets={options.api_key} if options.api_key else set())
    try:
        result = asyncio.run(_load(server, options))
    except KeyboardInterrupt:
        stopped = _with(url, started, skipped=_INTERRUPTED, complete=False)
        return _kept(stopped, store, redactor)
    failure = _failure(result.broken) if result.broken is not None else None
    found = _with(
        url,
        started,
        verified=failure is None and all(step.shown_by for step in result.steps),
        steps=tuple(result.steps),
        skipped=(*result.skipped, "memory: the server was not started by arriero"),
        requests=result.requests,
        failure=failure,
        speed=result.speed,
    )
    return _kept(found, store, redactor)


def _failure(broken: Reply) -> Failure:
    """What a request that broke says of a server whose log is not seen."""
    fatal = broken.status is None
    return Failure(
        kind=kind_of(broken), phase=Phase.SERVING, fatal=fatal, line=0, text=broken.error
    )


def _with(target: str, started: float, **shown: Any) -> Verification:
    """A verification that shows this and nothing else."""
    nothing = Verification(
        id=new_id("veri"),
        target=target,
        verified=False,
        steps=(),
        skipped=(),
        requests=Requests(),
        failure=None,
        peak=Peak(),
        headroom=None,
        growth_per_request=None,
        speed=Speed(),
        seconds=round(time.monotonic() - started, 2),
    )
    return msgspec.structs.replace(nothing, **shown)


def _kept(verification: Verification, store: Store, redactor: Redactor) -> Verification:
    """The verification without secrets, saved if that can be done: a full disk must not cost the
    answer."""
    verification = redactor.scrub(verification)
    try:
        store.save(verification, redactor)
    except RecordError as error:
        note = f"{NOT_KEPT}: {error.message}"
        return msgspec.structs.replace(verification, notes=(*verification.notes, note))
    return verification


async def _load(server: Serving, options: VerifyOptions) -> LoadResult:
    n_slots, n_ctx_slot = await _slots(server)

    async def answered(_: int) -> None:
        return None

    result = LoadResult()
    await run_load(
        server,
        # a server that has seen these prompts would answer from its cache
        replace(options.workload, seed=time.time_ns()),
        result,
        n_slots=n_slots,
        n_ctx_slot=n_ctx_slot,
        n_ubatch=512,
        signs=dict,
        prompt_cache=None,
        alive=lambda: True,
        answered=answered,
    )
    return result


async def _slots(server: Serving) -> tuple[int, int]:
    """Slots and context of each, of what answers there.

    Raises:
        UsageError: It cannot be asked so.
        NotFoundError: It is no llama-server that is ready.
    """
    import aiohttp

    try:
        async with Client(server, _PROPS_S) as client:
            status, props = await client.call("GET", "/props")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise NotFoundError(
            f"nothing answers at {server.url('')}: {reason_of(error, _PROPS_S)}",
            hint="check that the server is running and that the address is right",
            id="no-server",
        ) from None
    _refuse(server, status, props)
    try:
        n_slots, n_ctx_slot = slots_in(props)
        if not (1 <= n_slots <= limits.SLOTS and 1 <= n_ctx_slot <= limits.SLOT_CONTEXT):
            raise ValueError
    except ValueError:
        raise NotFoundError(
            f"what answers at {server.url('')} is not a llama-server", id="not-llama-server"
        ) from None
    return n_slots, n_ctx_slot


def _refuse(server: Serving, status: int, props: Any) -> None:
    """Raise for an answer that says why there is no load to put on this server."""
    if 300 <= status < 400:
        raise UsageError(
            f"{server.url('')} answers with a redirect ({status})",
            hint="give the address that it leads to",
            id="redirect",
        )
    if status == 401:
        asks = "refuses this API key" if server.api_keys else "asks for an API key"
        raise UsageError(f"the server {asks}", hint="give it with --api-key")
    if status == 503:
        raise NotFoundError("the server is still loading its model", hint="try again", id="loading")
    if isinstance(props, dict) and props.get("role") == "router":
        raise UsageError(
            f"a router answers at {server.url('')}: each of its models is a server of its own",
            hint="give the address of one: its port stands in brackets in the router's log",
            id="router",
        )
