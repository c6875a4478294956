"""Complete, realistic documents for the tests of every room.

The figures are those of a hybrid model (40 layers, 30 of them recurrent) with 64 slots asked for in
3.5 GiB of address space, as build 10434 showed them on a CPU.
"""

from __future__ import annotations

from arriero.base.words import (
    Component,
    Cost,
    Evidence,
    Kind,
    LimitKind,
    LogOutcome,
    Method,
    Phase,
    TrialOutcome,
)
from arriero.gguf import MemoryClass
from arriero.logs.model import Buffer, Effective, EngineTag, Failure, Notice
from arriero.record import (
    Baseline,
    Boundary,
    DeviceRecord,
    Diagnosis,
    EngineRecord,
    ErrorBody,
    ErrorDocument,
    Explanation,
    Explanations,
    FailsWith,
    HolderRecord,
    KnownFailure,
    LimitRecord,
    ModelRecord,
    Peak,
    PoolRecord,
    Recommendation,
    Remedy,
    Requests,
    Run,
    RunBuffer,
    RunSettings,
    Sample,
    Slope,
    Speed,
    Step,
    Trial,
    Verdict,
    Verification,
    WorstCase,
)
from arriero.record.older import completed

MIB = 1 << 20
LIMIT = 3_758_096_384
MODEL = "/home/ana/models/hybrid-40l.gguf"
ENGINE = "/home/ana/llama.cpp/build/bin/llama-server"
ARGV = (ENGINE, "-m", MODEL, "-c", "4096", "-np", "64", "--no-warmup")


def mib(value: float) -> int:
    return round(value * MIB)


def example_failure() -> Failure:
    """The recurrent state of 64 slots, refused."""
    return Failure(
        kind=Kind.ALLOCATION,
        component=Component.RS,
        device="CPU",
        bytes=mib(4020.00),
        phase=Phase.CONTEXT,
        fatal=True,
        line=26,
        text="E llama_init_from_model: failed to initialize the context: "
        "failed to allocate buffer for rs cache",
        not_this=("the model file", "the tokenizer", "the KV cache", "the compute buffer"),
        evidence=Evidence.NAMED,
    )


def _fit_failure() -> Failure:
    return Failure(
        kind=Kind.ALLOCATION,
        component=Component.RS,
        device="CPU",
        bytes=mib(4020.00),
        phase=Phase.FIT,
        fatal=False,
        line=14,
        text="W common_fit_params: encountered an error while trying to fit params to free device "
        "memory: failed to allocate buffer for rs cache",
    )


def _graph_failure() -> Failure:
    return Failure(
        kind=Kind.ALLOCATION,
        component=Component.GRAPH,
        device="CPU",
        bytes=mib(394.82),
        phase=Phase.CONTEXT,
        fatal=True,
        line=41,
        text="ggml_aligned_malloc: insufficient memory (attempted to allocate 394.82 MB)",
        not_this=("the recurrent state", "the KV cache", "the model file"),
    )


def _bad_alloc() -> Failure:
    return Failure(
        kind=Kind.RUNTIME_ALLOCATION,
        component=None,
        device=None,
        bytes=None,
        phase=Phase.SERVING,
        fatal=False,
        line=88,
        text='E srv    operator(): got exception: {"error":{"code":500,"message":"std::bad_alloc",'
        '"type":"server_error"}}',
        not_this=("the model file", "the RS buffer", "the KV cache"),
        evidence=Evidence.NAMED,
    )


def example_buffers(slots: int, compute: float) -> tuple[Buffer, ...]:
    """What the log prints once a start with so many slots has allocated everything."""
    return (
        Buffer(component=Component.WEIGHTS, device="CPU", bytes=mib(264.72), line=19),
        Buffer(component=Component.OUTPUT, device="CPU", bytes=mib(slots * 0.001), line=24),
        Buffer(component=Component.KV, device="CPU", bytes=mib(max(20, 1.25 * slots)), line=25),
        Buffer(component=Component.RS, device="CPU", bytes=mib(62.8125 * slots), line=27),
        Buffer(component=Component.COMPUTE, device="CPU", bytes=mib(compute), line=31),
    )


def _effective(slots: int) -> Effective:
    n_ctx_seq = max(256, 4096 // slots)
    return Effective(
        n_ctx=n_ctx_seq * slots,
        n_ctx_seq=n_ctx_seq,
        n_seq_max=slots,
        n_batch=2048,
        n_ubatch=512,
        kv_unified=False,
        n_rs_seq=0,
        n_gpu_layers=-1,
        flash_attn="auto",
    )


def _argv(slots: int, *extra: str) -> tuple[str, ...]:
    return (
        ENGINE,
        *("-m", MODEL, "-c", "4096", "-np", str(slots), "--no-warmup"),
        *extra,
        *("--host", "127.0.0.1", "--port", "43117", "-lv", "4"),
    )


def _steps(sent: int, ok: int) -> tuple[Step, ...]:
    first = sent // 2
    return (
        Step(
            name="different prompts in turn",
            sent=first,
            ok=first,
            failed=0,
            shown_by="slot launch_slot_: id  0 | task 0 | processing task, is_child = 0",
        ),
        Step(
            name="all slots at once",
            sent=sent - first,
            ok=ok - first,
            failed=sent - ok,
            shown_by="slot launch_slot_: id  3 | task 41 | processing task" if ok == sent else None,
            detail="" if ok == sent else "HTTP 500: std::bad_alloc",
        ),
    )


def _samples(growth: float, requests: int, start: float) -> tuple[Sample, ...]:
    return tuple(
        Sample(
            at=round(4.0 + 0.7 * i, 1),
            address_space=mib(start + growth * i),
            anonymous=mib(start - 790 + growth * i),
            requests=i,
        )
        for i in range(requests + 1)
    )


_CACHES_OFF = ("-cram", "0", "-ctxcp", "0")


def example_trials() -> tuple[Trial, ...]:
    """Nine launches: baseline, as given, the search, one that is invalid, and the proof."""
    env = {"MALLOC_ARENA_MAX": "1"}
    return (
        Trial(
            n=1,
            purpose="baseline",
            change={"-np": (64, 1)},
            argv=_argv(1),
            env=env,
            outcome=TrialOutcome.SERVED,
            failure=None,
            buffers=example_buffers(1, 54.1),
            effective=_effective(1),
            ready_s=3.2,
            seconds=11.4,
            peak=Peak(address_space=mib(2012), anonymous=mib(1126), rss=mib(1398)),
            headroom=LIMIT - mib(2012),
            requests=Requests(sent=8, ok=8, failed=0),
            steps=_steps(8, 8),
            growth_per_request=mib(62.8),
            speed=Speed(prompt_tps=412.5, predict_tps=38.2),
            samples=_samples(62.8, 8, 1509),
            valid=True,
            why_invalid=None,
            notices=(
                Notice(
                    id="prompt_cache_enabled",
                    line=52,
                    text="srv load_model: prompt cache is enabled, size limit: 8192 MiB",
                ),
            ),
        ),
        Trial(
            n=2,
            purpose="as given",
            change={},
            argv=_argv(64),
            env=env,
            outcome=TrialOutcome.FAILED,
            failure=example_failure(),
            secondary=(_fit_failure(),),
            buffers=example_buffers(64, 0)[:3],
            notices=(
                Notice(
                    id="size_line_absent",
                    line=26,
                    text="no RS size line: it failed before printing one",
                ),
            ),
            effective=_effective(64),
            ready_s=None,
            seconds=2.6,
            exit_status=1,
            peak=Peak(address_space=mib(1490), anonymous=mib(402), rss=mib(560)),
            headroom=LIMIT - mib(1490),
            requests=Requests(),
            speed=Speed(),
            valid=True,
            why_invalid=None,
            log_tail=(
                "E alloc_tensor_range: failed to allocate CPU buffer of size 4215275520",
                f"E srv    load_model: failed to create_context with model '{MODEL}'",
                "E srv  llama_server: exiting due to model loading error",
            ),
        ),
        Trial(
            n=3,
            purpose="slots",
            change={"-np": (64, 44)},
            argv=_argv(44),
            env=env,
            outcome=TrialOutcome.FAILED,
            failure=_graph_failure(),
            buffers=example_buffers(44, 0)[:4],
            effective=_effective(44),
            ready_s=None,
            seconds=4.1,
            exit_status=-6,
            peak=Peak(address_space=mib(3581), anonymous=mib(2907), rss=mib(3101)),
            headroom=LIMIT - mib(3581),
            requests=Requests(),
            speed=Speed(),
            valid=True,
            why_invalid=None,
            log_tail=(
                "ggml_aligned_malloc: insufficient memory (attempted to allocate 394.82 MB)",
                "/build/ggml/src/ggml.c:1615: GGML_ASSERT(ctx->mem_buffer != NULL) failed",
            ),
        ),
        Trial(
            n=4,
            purpose="slots",
            change={"-np": (64, 20)},
            argv=_argv(20),
            env=env,
            outcome=TrialOutcome.READY,
            failure=_bad_alloc(),
            buffers=example_buffers(20, 126.7),
            effective=_effective(20),
            ready_s=4.4,
            seconds=9.0,
            peak=Peak(address_space=mib(3579), anonymous=mib(2611), rss=mib(2804)),
            headroom=LIMIT - mib(3579),
            requests=Requests(sent=4, ok=2, failed=2),
            steps=_steps(4, 2),
            growth_per_request=mib(62.8),
            speed=Speed(prompt_tps=301.0, predict_tps=12.7),
            samples=_samples(62.8, 4, 3300),
            valid=True,
            why_invalid=None,
        ),
        Trial(
            n=5,
            purpose="caches",
            change={"-np": (64, 20), "-cram": (8192, 0), "-ctxcp": (32, 0)},
            argv=_argv(20, *_CACHES_OFF),
            env=env,
            outcome=TrialOutcome.SERVED,
            failure=None,
            buffers=example_buffers(20, 126.7),
            effective=_effective(20),
            ready_s=4.3,
            seconds=21.8,
            peak=Peak(address_space=mib(3412), anonymous=mib(1560), rss=mib(1822)),
            headroom=LIMIT - mib(3412),
            requests=Requests(sent=64, ok=64, failed=0),
            steps=_steps(64, 64),
            growth_per_request=0,
            speed=Speed(prompt_tps=298.4, predict_tps=12.9),
            samples=_samples(0, 8, 3412),
            valid=True,
            why_invalid=None,
        ),
        Trial(
            n=6,
            purpose="slots",
            change={"-np": (64, 32), "-cram": (8192, 0), "-ctxcp": (32, 0)},
            argv=_argv(32, *_CACHES_OFF),
            env=env,
            outcome=TrialOutcome.FAILED,
            failure=None,
            buffers=(),
            effective=Effective(),
            ready_s=None,
            seconds=5.5,
            exit_status=-9,
            peak=Peak(),
            headroom=None,
            requests=Requests(),
            speed=Speed(),
            valid=False,
            why_invalid="process 4242 (python3) took 812.00 MiB of CUDA0 during the trial",
        ),
        Trial(
            n=7,
            purpose="slots",
            change={"-np": (64, 32), "-cram": (8192, 0), "-ctxcp": (32, 0)},
            argv=_argv(32, *_CACHES_OFF),
            env=env,
            outcome=TrialOutcome.READY,
            failure=_bad_alloc(),
            buffers=example_buffers(32, 174.3),
            effective=_effective(32),
            ready_s=5.1,
            seconds=10.7,
            peak=Peak(address_space=mib(3583), anonymous=mib(2301), rss=mib(2544)),
            headroom=mib(1),
            requests=Requests(sent=8, ok=5, failed=3),
            steps=_steps(8, 5),
            growth_per_request=0,
            speed=Speed(prompt_tps=211.0, predict_tps=7.1),
            valid=True,
            why_invalid=None,
        ),
        Trial(
            n=8,
            purpose="slots",
            change={"-np": (64, 33), "-cram": (8192, 0), "-ctxcp": (32, 0)},
            argv=_argv(33, *_CACHES_OFF),
            env=env,
            outcome=TrialOutcome.FAILED,
            failure=_graph_failure(),
            buffers=example_buffers(33, 0)[:4],
            effective=_effective(33),
            ready_s=None,
            seconds=4.0,
            exit_status=-6,
            peak=Peak(address_space=mib(3580), anonymous=mib(2290), rss=mib(2402)),
            headroom=mib(4),
            requests=Requests(),
            speed=Speed(),
            valid=True,
            why_invalid=None,
        ),
        Trial(
            n=9,
            purpose="verification",
            change={"-np": (64, 16), "-cram": (8192, 0), "-ctxcp": (32, 0)},
            argv=_argv(16, *_CACHES_OFF),
            env=env,
            outcome=TrialOutcome.SERVED,
            failure=None,
            buffers=example_buffers(16, 110.9),
            effective=_effective(16),
            ready_s=4.0,
            seconds=24.5,
            peak=Peak(address_space=LIMIT - mib(268), anonymous=mib(1304), rss=mib(1570)),
            headroom=mib(268),
            requests=Requests(sent=64, ok=64, failed=0),
            steps=_steps(64, 64),
            growth_per_request=1024,
            speed=Speed(prompt_tps=322.9, predict_tps=15.0),
            samples=_samples(0, 8, 3316),
            valid=True,
            why_invalid=None,
        ),
    )


def example_baseline() -> Baseline:
    """A CPU box with one idle card that is hidden from the engine."""
    return Baseline(
        engine=EngineRecord(
            path=ENGINE,
            found_by="the command itself",
            version="version: 0.1.0-dev (build 10434, commit 7e4c0a9)",
            build=10434,
            commit="7e4c0a9",
            backends=("CPU", "RPC"),
        ),
        model=ModelRecord(
            path=MODEL,
            arch="qwen35",
            name="hybrid 40l",
            memory_class=MemoryClass.HYBRID,
            n_layer=40,
            n_recurrent_layer=30,
            n_ctx_train=32768,
            n_vocab=1024,
            file_bytes=277_581_824,
        ),
        devices=(
            DeviceRecord(name="CPU", description="CPU", total=33_520_877_568, free=29_527_900_160),
        ),
        pools=(
            PoolRecord(
                name="host",
                devices=("CPU",),
                total=33_520_877_568,
                free=29_527_900_160,
                limited_by="address space 3.50 GiB (--limit)",
            ),
            PoolRecord(
                name="CUDA0",
                devices=("CUDA0",),
                total=25_298_141_184,
                free=24_910_000_128,
                limited_by="the card",
                usable=False,
                note="hidden by CUDA_VISIBLE_DEVICES",
            ),
        ),
        holders=(HolderRecord(pid=4242, name="python3", device="CUDA0", bytes=388_141_056),),
        visibility={"CUDA_VISIBLE_DEVICES": ""},
        argv=ARGV,
        effective={"-m": MODEL, "-c": "4096", "-np": "64", "--no-warmup": "true"},
        limit=LimitRecord(bytes=LIMIT, kind=LimitKind.ADDRESS_SPACE),
        system="Linux 6.1.0 x86_64, glibc 2.36, 8 CPUs",
        taken_at="2026-09-20T02:11:07Z",
    )


def example_diagnosis() -> Diagnosis:
    """The ladder of slots: RS as given, graph metadata below it, served lower still."""
    trials = example_trials()
    held = {"-c": 4096, "-cram": 0, "-ctxcp": 0, "MALLOC_ARENA_MAX": "1"}
    proof = trials[-1]
    return completed(
        Diagnosis(
            id="diag-3f2a9c",
            baseline=example_baseline(),
            trials=trials,
            verdict=Verdict(
                kind=Kind.ALLOCATION,
                component=Component.RS,
                device="CPU",
                bytes=mib(4020.00),
                trial=2,
                failure=example_failure(),
            ),
            boundary={
                "-np": Boundary(
                    served=20,
                    ready=32,
                    fails=33,
                    fails_with=FailsWith(kind=Kind.ALLOCATION, component=Component.GRAPH),
                    held=held,
                    trials=(5, 7, 8),
                    band=(32, 33),
                    note="with the caches as given, 20 slots fail while serving (trial 4)",
                ),
                "-c": Boundary(
                    served=4096,
                    ready=4096,
                    fails=None,
                    fails_with=None,
                    held={"-np": 16, "-cram": 0, "-ctxcp": 0},
                    trials=(9,),
                    step=256,
                    note="no failing value was tried",
                ),
            },
            slopes=(
                Slope(
                    component=Component.RS, per="slot", bytes=mib(62.8125), method=Method.MEASURED
                ),
                Slope(
                    component=Component.KV,
                    per="slot",
                    bytes=mib(1.25),
                    method=Method.MEASURED,
                    note="above 16 slots, by padding",
                ),
                Slope(
                    component=Component.COMPUTE, per="slot", bytes=mib(3.98), method=Method.MEASURED
                ),
                Slope(
                    component=Component.CHECKPOINTS,
                    per="request",
                    bytes=mib(62.8),
                    method=Method.MEASURED,
                    note="up to 32 a slot, outside --cache-ram",
                ),
            ),
            recommendation=Recommendation(
                argv=(ENGINE, "-m", MODEL, "-c", "4096", "-np", "16", "--no-warmup", *_CACHES_OFF),
                env={},
                changes=("-np 64 → 16", "-cram 0", "-ctxcp 0"),
                costs=(Cost.PROMPT_REUSE, Cost.CONCURRENCY),
                verified=True,
                skipped=(),
                worst_case=WorstCase(planned=LIMIT - mib(268), limit=LIMIT, fits=True),
                trial=9,
                requests=proof.requests,
                headroom=proof.headroom,
                steps=proof.steps,
            ),
            not_tried=("-ub (speed)", "quantised KV (quality; does not shrink RS)"),
            notes=("This limit counts thread arenas; address space is not RAM.",),
            complete=True,
            launches=9,
            seconds=93.6,
        )
    )


def example_explanation() -> Explanation:
    """The log of the command as given."""
    return Explanation(
        source="/home/ana/logs/server.log",
        era="b10200-b10434",
        child=None,
        engine=EngineTag(
            build=10434,
            commit="7e4c0a9",
            version="version: 0.1.0-dev (build 10434, commit 7e4c0a9)",
        ),
        outcome=LogOutcome.FAILED,
        failure=example_failure(),
        secondary=(_fit_failure(),),
        buffers=example_buffers(64, 0)[:3],
        notices=(
            Notice(
                id="size_line_absent",
                line=26,
                text="no RS size line: it failed before printing one",
            ),
        ),
        effective=_effective(64),
        known=(
            KnownFailure(
                id="rs-alloc-slots",
                title="Recurrent state is allocated once per slot, whatever the context",
                applies="yes",
                line=26,
                workaround="Fewer slots: `-np 1`.\n\nA second paragraph is for `gotchas show`.",
            ),
        ),
        advice=(Remedy(change="-np 1", cost=Cost.CONCURRENCY, why="recurrent state is per slot"),),
    )


def example_router_explanation() -> Explanation:
    """A log of a router with two children: one healthy, one that failed."""
    failed = example_explanation()
    return Explanation(
        source="-",
        era="b10200-b10434",
        child=None,
        engine=EngineTag(),
        outcome=LogOutcome.UNKNOWN,
        failure=None,
        secondary=(),
        buffers=(),
        notices=(),
        children=(
            Explanation(
                source="-",
                era="b10200-b10434",
                child="34605",
                engine=failed.engine,
                outcome=LogOutcome.STARTED,
                failure=None,
                secondary=(),
                buffers=example_buffers(16, 110.9),
                notices=(),
                effective=_effective(16),
            ),
            Explanation(
                source="-",
                era="b10200-b10434",
                child="41303",
                engine=failed.engine,
                outcome=LogOutcome.FAILED,
                failure=failed.failure,
                secondary=failed.secondary,
                buffers=failed.buffers,
                notices=failed.notices,
                effective=failed.effective,
            ),
        ),
    )


def example_explanations() -> Explanations:
    """Two logs given to one command."""
    return Explanations(explanations=(example_explanation(), example_router_explanation()))


def example_verification() -> Verification:
    """The recommended command under the full load; one step could not be done."""
    trial = example_trials()[-1]
    return completed(
        Verification(
            id="veri-81b0d4",
            target="http://127.0.0.1:43117",
            verified=False,
            steps=trial.steps,
            skipped=("restore from the prompt cache: it is off (-cram 0)",),
            requests=trial.requests,
            failure=None,
            peak=trial.peak,
            headroom=trial.headroom,
            growth_per_request=trial.growth_per_request,
            speed=trial.speed,
            trial=trial,
            baseline=example_baseline(),
            notes=(),
            seconds=24.5,
        )
    )


def example_error() -> ErrorDocument:
    """A model that is not there."""
    return ErrorDocument(
        error=ErrorBody(
            id="not-found",
            message=f"no model at {MODEL}",
            hint="check the path after -m",
        )
    )


def example_run() -> Run:
    """What the recommended command took, beside formulas and the engine's dry run."""
    trial, baseline = example_trials()[-1], example_baseline()
    sizes = ((Component.KV, Method.EXACT), (Component.RS, Method.EXACT))
    taken = {b.component: b.bytes for b in trial.buffers}
    return Run(
        id="run-5c340bd0",
        taken_at=baseline.taken_at,
        model="3358bc12ff7a3c02cebb0054e988df2f",
        arch="qwen35",
        engine=baseline.engine,
        devices=baseline.devices,
        settings=RunSettings(
            n_ctx=4096,
            n_ctx_seq=256,
            n_seq_max=16,
            kv_unified=False,
            n_batch=2048,
            n_ubatch=512,
            n_rs_seq=0,
            n_outputs_max=16,
            flash_attn="auto",
            type_k="f16",
            type_v="f16",
            layers=("CPU*41",),
        ),
        outcome=trial.outcome,
        buffers=(
            *(
                RunBuffer(
                    component=component,
                    device="CPU",
                    taken=taken[component],
                    rounding=5243,
                    planned=taken[component],
                    method=method,
                    asked=taken[component],
                )
                for component, method in sizes
            ),
            RunBuffer(
                component=Component.COMPUTE,
                device="CPU",
                taken=taken[Component.COMPUTE],
                rounding=5243,
                planned=mib(320),
                method=Method.ESTIMATED,
                asked=taken[Component.COMPUTE],
            ),
        ),
        peak=trial.peak,
    )
