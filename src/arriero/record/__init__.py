"""The documents of the contract: one schema for each, and how they are written and read."""

from arriero.record.baseline import (
    Baseline,
    DeviceRecord,
    EngineRecord,
    HolderRecord,
    LimitRecord,
    ModelRecord,
    PoolRecord,
)
from arriero.record.check import (
    Check,
    Checks,
    Edit,
    Finding,
    Unchecked,
)
from arriero.record.diagnosis import (
    Boundary,
    Diagnosis,
    FailsWith,
    Recommendation,
    Slope,
    Verdict,
    WorstCase,
)
from arriero.record.error import (
    ErrorBody,
    ErrorDocument,
)
from arriero.record.explanation import (
    Explanation,
    Explanations,
    KnownFailure,
    Remedy,
)
from arriero.record.files import (
    SCHEMAS,
    decode,
    encode,
    read_document,
    write_document,
    write_whole,
)
from arriero.record.gotchas import (
    GotchaEntry,
    Gotchas,
    GotchaVerdict,
    RunEvidence,
    Verdicts,
)
from arriero.record.history import NOT_KEPT, History, HistoryEntry, was_kept
from arriero.record.plan import (
    Advice,
    FrontierPoint,
    HeaderReads,
    Plan,
    PlanBuffer,
    PlanContext,
    PlanGrowth,
    PlanNote,
    PlanPool,
)
from arriero.record.run import (
    Run,
    RunBuffer,
    RunSettings,
)
from arriero.record.schema import json_schema
from arriero.record.skeleton import (
    SkeletonRecord,
    SkeletonScale,
)
from arriero.record.trial import (
    Peak,
    Requests,
    Sample,
    Speed,
    Step,
    Trial,
)
from arriero.record.verification import Verification

__all__ = [
    "NOT_KEPT",
    "SCHEMAS",
    "Advice",
    "Baseline",
    "Boundary",
    "Check",
    "Checks",
    "DeviceRecord",
    "Diagnosis",
    "Edit",
    "EngineRecord",
    "ErrorBody",
    "ErrorDocument",
    "Explanation",
    "Explanations",
    "FailsWith",
    "Finding",
    "FrontierPoint",
    "GotchaEntry",
    "GotchaVerdict",
    "Gotchas",
    "HeaderReads",
    "History",
    "HistoryEntry",
    "HolderRecord",
    "KnownFailure",
    "LimitRecord",
    "ModelRecord",
    "Peak",
    "Plan",
    "PlanBuffer",
    "PlanContext",
    "PlanGrowth",
    "PlanNote",
    "PlanPool",
    "PoolRecord",
    "Recommendation",
    "Remedy",
    "Requests",
    "Run",
    "RunBuffer",
    "RunEvidence",
    "RunSettings",
    "Sample",
    "SkeletonRecord",
    "SkeletonScale",
    "Slope",
    "Speed",
    "Step",
    "Trial",
    "Unchecked",
    "Verdict",
    "Verdicts",
    "Verification",
    "WorstCase",
    "decode",
    "encode",
    "json_schema",
    "read_document",
    "was_kept",
    "write_document",
    "write_whole",
]
