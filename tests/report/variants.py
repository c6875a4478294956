"""Documents of many shapes: what a report must lay out without breaking or lying."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from arriero.base.words import (
    Component,
    Cost,
    Evidence,
    Kind,
    LimitKind,
    LogOutcome,
    Method,
    Phase,
    Role,
    TrialOutcome,
)
from arriero.logs.model import Buffer, Effective, EngineTag, Failure
from arriero.record import (
    Boundary,
    DeviceRecord,
    Diagnosis,
    Explanation,
    FailsWith,
    LimitRecord,
    Requests,
    Slope,
    Speed,
    Trial,
    Verdict,
    Verification,
    WorstCase,
)
from arriero.record.older import completed
from tests.examples import (
    ARGV,
    ENGINE,
    MIB,
    MODEL,
    example_diagnosis,
    example_explanation,
    example_trials,
    example_verification,
    mib,
)

HOSTILE = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1>\x1b[31m\u202e|`"


T = TypeVar("T", bound=msgspec.Struct)


def with_(value: T | None, **changes: Any) -> T:
    assert value is not None
    return msgspec.structs.replace(value, **changes)


def _verdict(failure: Failure, trial: int | None = 2) -> Verdict:
    return Verdict(
        kind=failure.kind,
        component=failure.component,
        device=failure.device,
        bytes=failure.bytes,
        trial=trial,
        failure=failure,
    )


def failing(failure: Failure, **as_given: Any) -> Diagnosis:
    """Only the baseline and the command as given, which ended in ``failure``."""
    small, given, *_ = example_trials()
    given = with_(given, failure=failure, secondary=(), notices=(), **as_given)
    return completed(
        with_(
            example_diagnosis(),
            trials=(small, given),
            verdict=_verdict(failure),
            boundary={},
            slopes=(),
            recommendation=None,
            launches=2,
        )
    )


def interrupted() -> Diagnosis:
    full = example_diagnosis()
    return with_(
        full,
        trials=full.trials[:3],
        boundary={},
        recommendation=None,
        complete=False,
        launches=3,
        not_tried=("everything after trial 3: interrupted",),
    )


def interrupted_at_once() -> Diagnosis:
    return with_(
        interrupted(), trials=(), slopes=(), verdict=None, not_tried=(), launches=0, seconds=0.0
    )


def baseline_fails() -> Diagnosis:
    failure = Failure(
        kind=Kind.ALLOCATION,
        component=Component.WEIGHTS,
        device="CUDA0",
        bytes=mib(15621.0),
        phase=Phase.LOAD,
        fatal=True,
        line=9,
        text="ggml_backend_cuda_buffer_type_alloc_buffer: allocating 15621.00 MiB on device 0: "
        "cudaMalloc failed: out of memory",
        not_this=("the KV cache", "the number of slots"),
    )
    small, given, *_ = example_trials()
    broken = {"outcome": TrialOutcome.FAILED, "failure": failure, "ready_s": None, "exit_status": 1}
    return with_(
        failing(failure),
        trials=(
            with_(small, requests=Requests(), growth_per_request=None, buffers=(), **broken),
            with_(given, buffers=(), **broken),
        ),
    )


def everything_served() -> Diagnosis:
    full = example_diagnosis()
    given = with_(example_trials()[-1], n=2, purpose="as given", change={})
    return with_(
        full,
        trials=(full.trials[0], given),
        verdict=None,
        boundary={},
        recommendation=None,
        launches=2,
    )


def from_log() -> Diagnosis:
    return with_(
        example_diagnosis(),
        trials=(),
        verdict=with_(example_diagnosis().verdict, trial=None),
        boundary={},
        slopes=(),
        recommendation=None,
        launches=0,
        seconds=0.2,
    )


def no_limit() -> Diagnosis:
    full = example_diagnosis()
    return with_(
        full,
        baseline=with_(full.baseline, limit=None),
        trials=tuple(with_(trial, headroom=None) for trial in full.trials),
        recommendation=with_(
            full.recommendation,
            verified=False,
            headroom=None,
            requests=Requests(),
            worst_case=WorstCase(planned=None, limit=None, fits=None),
            skipped=("two runs at the edge: --max-time was reached",),
        ),
    )


def gpus() -> Diagnosis:
    """Two cards: the KV cache does not fit on the second one; a chunk of it is what is refused."""
    full = example_diagnosis()
    failure = Failure(
        kind=Kind.ALLOCATION,
        component=Component.KV,
        device="Vulkan1",
        bytes=mib(2048),
        buffer_bytes=mib(8192),
        phase=Phase.CONTEXT,
        fatal=True,
        line=71,
        text="ggml_vulkan: Device memory allocation of size 2147483648 failed.",
        not_this=("the model file",),
    )
    trials = []
    for n, (context, served) in enumerate(
        [(131072, None), (4096, 8), (65536, 16), (98304, None), (90112, 16)], start=1
    ):
        kv = mib(context / 16)
        fails = served is None
        trials.append(
            with_(
                full.trials[0 if not fails else 1],
                n=n,
                purpose="as given" if n == 1 else "context",
                change={} if n == 1 else {"-c": (131072, context)},
                failure=failure if fails else None,
                secondary=(),
                notices=(),
                buffers=(
                    Buffer(component=Component.WEIGHTS, device="Vulkan0", bytes=mib(8000), line=1),
                    Buffer(component=Component.WEIGHTS, device="Vulkan1", bytes=mib(7621), line=2),
                    Buffer(
                        component=Component.WEIGHTS, device="Vulkan_Host", bytes=mib(682), line=3
                    ),
                    *(
                        Buffer(component=Component.KV, device=f"Vulkan{i}", bytes=kv // 2, line=4)
                        for i in ((0,) if fails else (0, 1))
                    ),
                    Buffer(
                        component=Component.DRAFT,
                        device="Vulkan0",
                        bytes=mib(300),
                        line=6,
                        role=Role.DRAFT,
                    ),
                ),
                effective=Effective(n_ctx=context, n_ctx_seq=context, n_seq_max=1),
                requests=Requests(sent=served or 0, ok=served or 0),
                growth_per_request=None if fails else 0,
                peak=with_(
                    full.trials[0].peak,
                    device={"Vulkan0": mib(9000) + kv // 2, "Vulkan1": mib(8600) + kv // 2},
                ),
                env={"GGML_VK_VISIBLE_DEVICES": "0,1"},
            )
        )
    return with_(
        full,
        baseline=with_(
            full.baseline,
            limit=None,
            devices=(
                DeviceRecord(
                    name="Vulkan0", description="RADV (24 GB)", total=mib(24560), free=mib(24000)
                ),
                DeviceRecord(name="Vulkan1", description="RADV", total=mib(16368), free=None),
            ),
        ),
        trials=tuple(trials),
        verdict=_verdict(failure, trial=1),
        boundary={
            "-c": Boundary(
                served=90112,
                ready=90112,
                fails=98304,
                fails_with=FailsWith(kind=Kind.ALLOCATION, component=Component.KV),
                held={"-np": 1, "-ngl": 99},
                trials=(5, 4),
                step=256,
            )
        },
        slopes=(
            Slope(component=Component.KV, per="token", bytes=65536, method=Method.EXACT),
            Slope(component=Component.COMPUTE, per="ubatch", bytes=4096, method=Method.ESTIMATED),
        ),
        recommendation=with_(
            full.recommendation,
            argv=(ENGINE, "-m", MODEL, "-ngl", "99", "-c", "90112", "-np", "1"),
            env={"GGML_VK_VISIBLE_DEVICES": "0,1"},
            changes=("-c 131072 → 90112",),
            costs=(Cost.CONTEXT,),
            trial=5,
        ),
    )


def many_trials() -> Diagnosis:
    full = example_diagnosis()
    more = tuple(
        with_(
            full.trials[4],
            n=10 + i,
            purpose="caches",
            change={
                "-np": (64, 10 + i),
                "-ctk": ("f16", "q8_0"),
                "-ctv": ("f16", "q8_0"),
                "-fa": ("auto", "on"),
                "--threads-http": (None, 4 + i % 3),
            },
        )
        for i in range(60)
    )
    return with_(full, trials=full.trials + more, launches=69, seconds=7512.0)


def unicode_and_long() -> Diagnosis:
    full = example_diagnosis()
    path = "/mnt/モデル/" + "tiefes Verzeichnis/" * 12 + "qwen3.5-模型 (копия) 'q4'.gguf"
    argv = ("MALLOC_ARENA_MAX=1 2", "numactl", "--cpunodebind=0", ENGINE, "-m", path, "-c", "4096")
    long = (*argv, *(part for i in range(25) for part in (f"--option-{i}", f"value {i}")))
    return with_(
        full,
        baseline=with_(
            full.baseline, argv=long, model=with_(full.baseline.model, path=path, arch="クウェン")
        ),
        recommendation=with_(
            full.recommendation, argv=long, env={"NAME": "it's", "CUDA_VISIBLE_DEVICES": ""}
        ),
        not_tried=("量子化された KV " * 30,),
        notes=("x" * 300,),
    )


def hostile() -> Diagnosis:
    """Strangers' text in every field that can hold it."""
    full = example_diagnosis()
    failure = with_(
        full.trials[1].failure,
        kind=Kind.CRASH,
        text=HOSTILE,
        device=HOSTILE,
        not_this=(HOSTILE,),
        bytes=None,
    )
    assert full.baseline.model
    trials = tuple(
        with_(
            trial,
            why_invalid=None if trial.valid else HOSTILE,
            log_tail=(HOSTILE,),
            failure=failure if trial.failure else None,
            buffers=tuple(with_(buffer, device=HOSTILE) for buffer in trial.buffers),
            steps=tuple(with_(s, name=HOSTILE, shown_by=HOSTILE) for s in trial.steps),
            env={"NAME": HOSTILE},
            purpose=HOSTILE,
        )
        for trial in full.trials
    )
    return with_(
        full,
        trials=trials,
        verdict=_verdict(failure),
        baseline=with_(
            full.baseline,
            argv=(ENGINE, "-m", HOSTILE),
            model=with_(full.baseline.model, path=HOSTILE, arch=HOSTILE, name=HOSTILE),
            devices=(DeviceRecord(name=HOSTILE, description=HOSTILE, total=None, free=None),),
            system=HOSTILE,
            effective={"-m": HOSTILE},
            visibility={"CUDA_VISIBLE_DEVICES": HOSTILE},
        ),
        recommendation=with_(
            full.recommendation,
            argv=(ENGINE, "-m", HOSTILE),
            skipped=(HOSTILE,),
            changes=(HOSTILE,),
        ),
        boundary={HOSTILE: with_(full.boundary["-np"], held={HOSTILE: HOSTILE}, note=HOSTILE)},
        not_tried=(HOSTILE,),
        notes=(HOSTILE,),
    )


def _failure(kind: Kind, text: str, **more: Any) -> Failure:
    return Failure(**{"kind": kind, "text": text, "fatal": True, "line": 40, **more})


def _whole(doc: Diagnosis) -> Diagnosis:
    """With whose memory the devices of each trial are, whatever it was made from."""
    return completed(with_(doc, trials=tuple(with_(one, on_host=()) for one in doc.trials)))


def diagnoses() -> dict[str, Diagnosis]:
    """By name: every shape of a diagnosis that a report has to carry."""
    full = example_diagnosis()
    every = {
        "example": full,
        "interrupted": interrupted(),
        "interrupted at once": interrupted_at_once(),
        "baseline fails": baseline_fails(),
        "everything served": everything_served(),
        "ready only": with_(
            everything_served(),
            trials=(
                with_(
                    everything_served().trials[1],
                    outcome=TrialOutcome.READY,
                    requests=Requests(),
                    growth_per_request=None,
                ),
            ),
        ),
        "from log": from_log(),
        "no limit": no_limit(),
        "cgroup": with_(
            full,
            baseline=with_(
                full.baseline, limit=LimitRecord(bytes=3 << 30, kind=LimitKind.CGROUP), model=None
            ),
            notes=(),
        ),
        "gpus": gpus(),
        "many trials": many_trials(),
        "unicode": unicode_and_long(),
        "hostile": hostile(),
        "killed": failing(
            _failure(Kind.KILLED, "", phase=Phase.LOAD, line=0, evidence=Evidence.INFERRED),
            exit_status=-9,
        ),
        "hang": failing(_failure(Kind.HANG, "load_tensors: loading", phase=Phase.LOAD)),
        "refused option": failing(
            _failure(
                Kind.CONFIG,
                "llama_init_from_model: quantized V cache requires flash_attn to be enabled",
                phase=Phase.CONTEXT,
            )
        ),
        "buffer limit": failing(
            _failure(
                Kind.BUFFER_LIMIT,
                "Requested buffer size exceeds device memory allocation limit",
                component=Component.COMPUTE,
                device="Vulkan0",
                bytes=5 << 30,
                phase=Phase.CONTEXT,
            )
        ),
        "crash while serving": failing(
            _failure(
                Kind.CRASH,
                'GGML_ASSERT(tensor->data != NULL && "tensor not allocated") failed',
                phase=Phase.SERVING,
                evidence=Evidence.INFERRED,
            ),
            outcome=TrialOutcome.READY,
            ready_s=3.0,
            exit_status=-6,
            requests=Requests(sent=2, ok=1, failed=1),
        ),
    }
    return {name: _whole(doc) for name, doc in every.items()}


def explanations() -> dict[str, Explanation]:
    full = example_explanation()
    healthy = with_(full, failure=None, secondary=(), outcome=LogOutcome.STARTED)
    return {
        "example": full,
        "started": healthy,
        "unknown": with_(
            healthy, outcome=LogOutcome.UNKNOWN, engine=EngineTag(), era="unknown", buffers=()
        ),
        "exited": with_(healthy, outcome=LogOutcome.EXITED, source="-"),
        "failed without cause": with_(healthy, outcome=LogOutcome.FAILED, buffers=()),
        "hostile": with_(
            full,
            source=HOSTILE,
            era=HOSTILE,
            engine=EngineTag(version=HOSTILE, commit=HOSTILE),
            failure=with_(full.failure, text=HOSTILE * 20, device=HOSTILE),
        ),
        "router": with_(
            healthy,
            buffers=(),
            children=(with_(full, child="34605"), with_(healthy, child="41303")),
        ),
        "every kind": with_(
            full,
            secondary=tuple(
                _failure(kind, kind.value, component=part, phase=phase)
                for kind, part, phase in zip(
                    Kind, [*Component, None, None, None], [*Phase, *Phase], strict=False
                )
            ),
        ),
    }


def verifications() -> dict[str, Verification]:
    full = example_verification()
    every = {
        "example": full,
        "verified": with_(full, verified=True, skipped=()),
        "url": with_(full, trial=None, baseline=None, headroom=None, growth_per_request=None),
        "no evidence": with_(
            full, steps=tuple(with_(step, shown_by=None) for step in full.steps), skipped=()
        ),
        "failed": with_(
            full,
            failure=example_trials()[3].failure,
            requests=Requests(sent=9, ok=4, failed=5),
            speed=Speed(),
            notes=("the server stopped answering after request 4",),
        ),
        "no steps": with_(full, steps=(), requests=Requests(), notes=(HOSTILE,), target=HOSTILE),
    }
    return {name: completed(doc) for name, doc in every.items()}


__all__ = [
    "ARGV",
    "HOSTILE",
    "MIB",
    "Trial",
    "diagnoses",
    "explanations",
    "verifications",
    "with_",
]
