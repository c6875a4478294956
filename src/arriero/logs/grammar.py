"""What llama.cpp writes, as a table: one row for each kind of message, from early 2024 on.

Every row is a fact about the source: which function prints it and what it means there. A row is
tried on a line only if its ``key`` occurs in it; rows are in order, the first that fits counts. How
the meanings combine into a verdict is in ``story``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, auto

from arriero.base.words import Component, Kind, Phase


class Act(Enum):
    """What a line does to the story of one start."""

    REQUEST = auto()
    """An allocator refused a request; whose it was comes in a later line."""
    BUFFER = auto()
    """ggml names the buffer type and the size it could not allocate."""
    OWNER = auto()
    """Says which component the refused request was for."""
    FAILURE = auto()
    """A failure complete in itself."""
    DETAIL = auto()
    """A further line of the failure just before."""
    DEATH = auto()
    """The process died; by itself this names no cause."""
    END = auto()
    """The start ended; by itself this names no cause."""
    RETRY = auto()
    DROPPED_TO_DRAFT = auto()
    """The failure just before was in the draft model or its context."""
    SIZE = auto()
    TOTAL = auto()
    VALUE = auto()
    MILESTONE = auto()
    FIT_BEGIN = auto()
    FIT_END = auto()
    ROLE = auto()
    STATE = auto()
    """Saved state in host memory and its size."""
    NOTICE = auto()
    DEVICE = auto()
    BEGIN = auto()
    """A process begins: printed once in its life."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of message. Named groups of ``pattern`` become the facts of the event."""

    id: str
    act: Act
    key: str
    pattern: re.Pattern[str]
    kind: Kind | None = None
    component: Component | None = None
    phase: Phase | None = None
    family: str | None = None
    """Backend whose device numbers the message uses."""
    fatal: bool | None = None
    """Known from the source whatever follows; None: what follows decides."""
    inferred: bool = False
    notice: str | None = None
    value: str | None = None
    era: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A rule that fits one line."""

    rule: Rule
    match: re.Match[str]
    facts: dict[str, str] = field(default_factory=dict)


OLDEST, NEWEST = 1500, 11739
"""Builds between which these facts were gathered."""

_MIB = r"(?P<mib>\d[\d.,]*)"
_rules: list[Rule] = []


def _add(
    act: Act,
    rows: list[tuple[str, str, str]],
    **meaning: object,
) -> None:
    for name, key, pattern in rows:
        _rules.append(Rule(id=name, act=act, key=key, pattern=re.compile(pattern), **meaning))  # type: ignore[arg-type]  # checked by the dataclass's users


# --- the fit probe: dry runs before the load; its own failures are not the start's ------------------
_add(
    Act.FIT_END,
    [
        (
            "fit_error",
            "trying to fit params",
            r"encountered an error while trying to fit params to free device memory: (?P<why>.*)",
        ),
        (
            "fit_refused",
            "failed to fit params",
            r"failed to fit params to free device memory: (?P<why>.*)",
        ),
        (
            "fit_refused_short",
            "failed to fit params",
            r"failed to fit params to free device memory",
        ),
        ("fit_ok", "successfully fit params", r"successfully fit params to free device memory"),
        ("fit_took", "fitting params to free memory took", r"fitting params to free memory took"),
    ],
)
_add(
    Act.FIT_BEGIN,
    [
        ("fit_begin", "fitting params to device memory", r"fitting params to device memory"),
        ("fit_probe", "getting device memory data", r"params_fit\w*: getting device memory data"),
    ],
)
# --- memory that one message names completely -------------------------------------------------------
_add(
    Act.FAILURE,
    [
        (
            "prompt_cache_alloc",
            "for prompt cache state",
            r"failed to allocate memory for prompt cache state",
        )
    ],
    kind=Kind.RUNTIME_ALLOCATION,
    component=Component.PROMPT_CACHE,
    phase=Phase.SERVING,
    fatal=False,
)
_add(
    Act.FAILURE,
    [
        ("mmap", "mmap failed", r"mmap failed: (?:Cannot allocate memory|Out of memory)"),
        (
            "map_view",
            "MapViewOfFile failed",
            r"MapViewOfFile failed: (?:Not enough|The paging file)",
        ),
        (
            "create_mapping",
            "CreateFileMapping",
            r"CreateFileMapping\w* failed: (?:Not enough|The paging file)",
        ),
    ],
    kind=Kind.ALLOCATION,
    component=Component.WEIGHTS,
    phase=Phase.LOAD,
)
_add(
    Act.FAILURE,
    [
        ("load_bad_alloc", "bad_alloc", r"error loading model: .*bad_alloc"),
        ("gguf_bad_alloc", "bad_alloc", r"encountered bad_alloc error while reading"),
    ],
    kind=Kind.ALLOCATION,
    component=Component.WEIGHTS,
    phase=Phase.LOAD,
    inferred=True,
)
_add(
    Act.FAILURE,
    [("range_check", "_M_range_check", r"error loading model: .*vector::_M_range_check")],
    kind=Kind.ALLOCATION,
    component=Component.WEIGHTS,
    phase=Phase.LOAD,
    inferred=True,
)
_add(
    Act.FAILURE,
    [
        ("context_bad_alloc", "bad_alloc", r"failed to initialize the context: .*bad_alloc"),
        ("create_bad_alloc", "bad_alloc", r"failed to (?:create|initialize) \w*context.*bad_alloc"),
    ],
    kind=Kind.ALLOCATION,
    phase=Phase.CONTEXT,
    family="CPU",
    inferred=True,
)
_add(
    Act.FAILURE,
    [("terminate_bad_alloc", "bad_alloc", r"instance of 'std::bad_alloc'")],
    kind=Kind.RUNTIME_ALLOCATION,
    family="CPU",
    fatal=True,
    inferred=True,
)
_add(
    Act.FAILURE,
    [("bad_alloc", "bad_alloc", r"bad_alloc|bad allocation")],
    kind=Kind.RUNTIME_ALLOCATION,
    family="CPU",
)
_add(
    Act.FAILURE,
    [
        (
            "mem_buffer",
            "mem_buffer",
            r"GGML_ASSERT\((?:ctx->)?mem_buffer != NULL\) failed|GGML_ASSERT: .*mem_buffer != NULL",
        )
    ],
    kind=Kind.ALLOCATION,
    component=Component.GRAPH,
    family="CPU",
    fatal=True,
    inferred=True,
)
_add(
    Act.FAILURE,
    [
        (
            "context_pool",
            "memory pool (needed",
            r"not enough space in the context's memory pool \(needed (?P<bytes>\d+), available \d+\)",
        )
    ],
    kind=Kind.CRASH,
    component=Component.GRAPH,
    fatal=True,
)
_add(
    Act.FAILURE,
    [
        (
            "metal_pool",
            "from memory pool, size",
            r"failed to allocate buffer from memory pool, size = (?P<bytes>\d+)",
        ),
        (
            "vk_runtime_oom",
            "ErrorOutOf",
            r"vk::(?:Queue::\w+|Device::(?!allocateMemory|createBuffer|bindBufferMemory)\w+): ErrorOutOf\w+Memory",
        ),
        ("cublas_alloc", "CUBLAS_STATUS_ALLOC_FAILED", r"CUBLAS_STATUS_ALLOC_FAILED"),
        ("rocblas_alloc", "rocblas_status_memory_error", r"rocblas_status_memory_error"),
        (
            "cublas_resource",
            "resource allocation failed",
            r"(?P<api>CUDA|ROCm|MUSA|HIP) error: the resource allocation failed",
        ),
    ],
    kind=Kind.RUNTIME_ALLOCATION,
    component=Component.POOL,
)
# --- Metal: nothing is refused when allocating, the command buffer fails ----------------------------
_add(
    Act.FAILURE,
    [("metal_status", "failed with status", r"command buffer \d+ failed with status \d+")],
    kind=Kind.BACKEND,
    family="Metal",
    phase=Phase.WARMUP,
    inferred=True,
)
_add(
    Act.DETAIL,
    [
        (
            "rpc_frame",
            "rpc",
            r"ggml_backend_rpc_buffer_(?:get|set|cpy|init)_tensor|ggml_backend_rpc_\w*graph_compute|rpc_server::\w+|libggml-rpc",
        ),
        (
            "metal_oom",
            "Insufficient Memory",
            r"Insufficient Memory|kIOGPUCommandBufferCallbackErrorOutOfMemory",
        ),
        (
            "metal_cause",
            "kIOGPUCommandBufferCallbackError",
            r"kIOGPUCommandBufferCallbackError(?!OutOfMemory)\w+",
        ),
    ],
)
# --- requests that an allocator refused ---------------------------------------------------------------
_add(
    Act.REQUEST,
    [
        (
            "cuda_malloc",
            "alloc",
            rf"allocating\s+{_MIB} MiB on device (?P<index>\d+): (?:cuda|hip|musa)\w*[Mm]alloc\w* failed: (?P<why>.+)",
        ),
        (
            "cuda_malloc_cut",
            "alloc",
            rf"allocating\s+{_MIB} MiB on device (?P<index>\d+): (?:cuda|hip|musa)\w*[Mm]alloc",
        ),
    ],
    family="CUDA",
)
_add(
    Act.REQUEST,
    [
        (
            "cann_malloc",
            "aclrtMalloc",
            rf"allocating\s+{_MIB} MiB on device (?P<index>\d+): aclrtMalloc\w* failed",
        )
    ],
    family="CANN",
)
_add(
    Act.REQUEST,
    [
        (
            "vk_request",
            "emory allocation of size",
            r"[Mm]emory allocation of size (?P<bytes>\d+) failed",
        ),
        (
            "vk_limit",
            "exceeds device",
            r"exceeds device (?:memory allocation|buffer size) limit(?P<limit>)",
        ),
        (
            "vk_allocate",
            "ErrorOutOf",
            r"vk::Device::(?:allocateMemory|createBuffer|bindBufferMemory)\w*: ErrorOutOf\w+Memory",
        ),
        ("vk_throw", "MemoryError", r"instance of 'vk::OutOf(?:Device|Host)MemoryError'"),
        (
            "vk_driver",
            "Failed to allocate a buffer",
            r"(?:radv|amdgpu|anv|nvk|turnip|intel)\S*: Failed to allocate a buffer",
        ),
    ],
    family="Vulkan",
)
_add(Act.DETAIL, [("vk_driver_size", "size", r"radv/amdgpu:\s+size\s+: (?P<bytes>\d+) bytes")])
_add(
    Act.REQUEST,
    [
        (
            "aligned_malloc",
            "insufficient memory (attempted",
            rf"insufficient memory \(attempted to allocate\s+{_MIB} MB\)",
        ),
        (
            "ggml_malloc",
            "failed to allocate",
            rf"ggml_(?:malloc|calloc): failed to allocate\s+{_MIB} MB",
        ),
        (
            "cpu_buffer",
            "failed to allocate buffer of size",
            r"ggml_backend_\w+_buffer_type_alloc_buffer: failed to allocate buffer of size (?P<bytes>\d+)",
        ),
        ("hbm_buffer", "HBM buffer", r"failed to allocate HBM buffer of size (?P<bytes>\d+)"),
        ("vm_allocate", "vm_allocate failed", r"vm_allocate failed"),
        (
            "posix_memalign",
            "posix_memalign failed",
            r"posix_memalign failed(?: for size (?P<bytes>\d+))?",
        ),
    ],
    family="CPU",
)
_add(
    Act.REQUEST,
    [
        (
            "metal_buffer",
            "failed to allocate buffer, size",
            rf"failed to allocate buffer, size =\s*{_MIB} MiB",
        ),
        (
            "metal_bytes",
            "bytes (out of memory)",
            r"failed to allocate \S+ buffer of (?P<bytes>\d+) bytes \(out of memory\)",
        ),
    ],
    family="Metal",
)
_add(
    Act.REQUEST,
    [
        (
            "metal_maximum",
            "larger than buffer maximum",
            r"size (?P<bytes>\d+) is larger than buffer maximum of \d+(?P<limit>)",
        ),
    ],
    family="Metal",
)
_add(
    Act.REQUEST,
    [
        (
            "sycl_request",
            "t allocate",
            r"can'?t allocate (?P<bytes>\d+) Bytes of memory on (?P<where>device|host)",
        )
    ],
    family="SYCL",
)
_add(
    Act.REQUEST,
    [("opencl_request", "failed to allocate", rf"opencl\w*: failed to allocate {_MIB} MiB")],
    family="OpenCL",
)
_add(
    Act.REQUEST,
    [
        (
            "hexagon_request",
            "failed to allocate buffer",
            r"ggml-hex: (?P<buf>\S+) failed to allocate buffer : size (?P<bytes>\d+)",
        ),
        (
            "hexagon_vmem",
            "exceeds max_vmem",
            r"ggml-hex: (?P<buf>\S+) (?:host )?buffer size (?P<bytes>\d+) exceeds max_vmem(?P<limit>)",
        ),
    ],
    family="HTP",
)
# --- ggml names the buffer -----------------------------------------------------------------------------
_add(
    Act.BUFFER,
    [
        (
            "gallocr",
            "ggml_gallocr_reserve",
            r"ggml_gallocr_reserve\w*: failed to allocate (?P<buf>\S.*?) buffer of size (?P<bytes>\d+)",
        )
    ],
    component=Component.COMPUTE,
    phase=Phase.CONTEXT,
)
_add(
    Act.BUFFER,
    [
        (
            "tensor_range",
            "buffer of size",
            r"(?:alloc_tensor_range|ggml_backend_\w*alloc\w*|alloc_buffer_n\w*): failed to allocate (?P<buf>\S.*?) buffer of size (?P<bytes>\d+)",
        ),
        (
            "some_buffer",
            "buffer of size",
            r"failed to allocate (?P<buf>(?!buffer\b|output\b)\S{1,80}) buffer of size (?P<bytes>\d+)",
        ),
        (
            "buffer_type",
            "Failed to allocate buffer type",
            r"Failed to allocate buffer type (?P<buf>\S+)",
        ),
    ],
)
# --- who asked ---------------------------------------------------------------------------------------------
_add(
    Act.OWNER,
    [
        (
            "rs_owner",
            "rs cache",
            r"failed to allocate buffer for rs cache|failed to create ggml context for rs cache",
        ),
        ("rs_owner_old", "recurrent", r"failed to allocate buffer for (?:recurrent|ssm)"),
    ],
    component=Component.RS,
    phase=Phase.CONTEXT,
)
_add(
    Act.OWNER,
    [
        (
            "kv_owner",
            "kv cache",
            r"failed to (?:allocate (?:buffer|context)|create ggml context) for kv cache",
        ),
        (
            "kv_owner_old",
            "self-attention cache",
            r"kv_cache_init\(\) failed for self-attention cache",
        ),
        (
            "kv_owner_dsv4",
            "DSV4 compressor",
            r"failed to (?:allocate buffer|create ggml context) for DSV4 compressor state",
        ),
        ("kv_owner_memory", "initialize memory module", r"failed to initialize memory module"),
    ],
    component=Component.KV,
    phase=Phase.CONTEXT,
)
_add(
    Act.OWNER,
    [
        (
            "mmproj_owner",
            "failed to load",
            r"(?:clip_init|clip_model_load\w*|mtmd_init\w*): failed to load (?:model|CLIP model)|failed to load multimodal model|\[mtmd\] failed to get memory usage",
        ),
    ],
    component=Component.MMPROJ,
    phase=Phase.LOAD,
)
_add(
    Act.OWNER,
    [
        ("weights_owner", "unable to allocate", r"unable to allocate (?P<buf>\S.*?) buffer"),
        (
            "weights_owner_old",
            "error loading model: failed to allocate buffer",
            r"error loading model: failed to allocate buffer",
        ),
    ],
    component=Component.WEIGHTS,
    phase=Phase.LOAD,
)
_add(
    Act.OWNER,
    [
        (
            "output_owner",
            "output buffer of size",
            rf"failed to allocate output buffer of size {_MIB} MiB",
        ),
        ("output_owner_first", "initial output buffer", r"failed to reserve initial output buffer"),
        (
            "output_owner_later",
            "could not reserve space for batch",
            r"could not reserve space for batch with \d+ outputs",
        ),
    ],
    component=Component.OUTPUT,
    phase=Phase.CONTEXT,
)
_add(
    Act.OWNER,
    [
        ("compute_owner", "compute", r"failed to allocate compute(?: pp| tg)? buffers?\b"),
        (
            "compute_graph",
            "compute graph",
            r"failed to allocate compute graph for (?:K-shift|defrag)",
        ),
        ("compute_reserve", "failed to reserve graph", r"failed to reserve graph (?:for|after)"),
        ("compute_split", "failed to allocate graph", r"failed to allocate graph(?!, reserving)\b"),
    ],
    component=Component.COMPUTE,
    phase=Phase.CONTEXT,
)
_add(
    Act.OWNER,
    [("mmproj_graph", "failed to allocate compute graph", r"failed to allocate compute graph")],
    component=Component.MMPROJ,
)
_add(
    Act.OWNER,
    [
        (
            "adapter_owner",
            "failed to allocate",
            r"failed to allocate (?:buffer|context) for (?:lora adapter|control vector)",
        )
    ],
    phase=Phase.LOAD,
)
_add(
    Act.OWNER,
    [("set_usage", "GGML_ASSERT(buffer)", r"GGML_ASSERT\(buffer\) failed")],
    component=Component.MMPROJ,
    fatal=True,
    inferred=True,
)
_add(
    Act.OWNER,
    [
        (
            "tensor_fits",
            "ggml_backend_buffer_get_alloc_size",
            r"GGML_ASSERT\(\(char \*\)\s?addr \+ ggml_backend_buffer_get_alloc_size",
        )
    ],
    fatal=True,
    inferred=True,
)
# --- RPC -----------------------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        (
            "rpc_lost",
            "Remote RPC server crashed",
            r"Remote RPC server crashed or returned malformed response",
        ),
        ("rpc_assert", "ggml-rpc", r"ggml-rpc\S*: ?GGML_ASSERT|GGML_ASSERT: \S*ggml-rpc"),
        ("rpc_handshake", "RPC handshake failed", r"RPC handshake failed"),
        (
            "rpc_abort",
            "[aborts here]",
            r"(?:ggml_backend_rpc|rpc_server::)\w*(?:\(.*\))?\s+\[aborts here\]",
        ),
    ],
    kind=Kind.RPC,
    fatal=True,
)
_add(
    Act.FAILURE,
    [
        ("rpc_version", "RPC server version mismatch", r"RPC server version mismatch"),
        ("rpc_connect", "Failed to connect to", r"Failed to connect to \S+:\d+"),
        (
            "rpc_hello",
            "HELLO",
            r"Expected HELLO command, update client|HELLO request size mismatch",
        ),
        ("rpc_send", "send failed", r"(?:send|recv) failed \(?bytes_(?:sent|recv)="),
        ("rpc_unknown_command", "Unknown command", r"Unknown command: \d+"),
        ("rpc_tensor", "deserializing tensor", r"error deserializing tensors?"),
        (
            "rpc_null_buffer",
            "Tensor with null buffer",
            r"Tensor with null buffer passed to init_tensor",
        ),
        (
            "rpc_bounds",
            "out of buffer bounds",
            r"tensor (?:data )?region .*out of (?:buffer|tensor) bounds",
        ),
    ],
    kind=Kind.RPC,
)
# --- cells, state, reuse ---------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        ("no_slot", "memory slot", r"failed to find a memory slot for batch of size"),
        (
            "no_slot_old",
            "KV",
            r"(?:failed to find (?:free space in the KV cache|a? ?KV (?:cache )?slot)|could not find a KV (?:cache )?slot)",
        ),
        ("kv_full", "KV cache is full", r"KV cache is full"),
        ("context_exceeded", "ontext size has been exceeded", r"[Cc]ontext size has been exceeded"),
        (
            "request_too_long",
            "exceeds the available context size",
            r"exceeds the available context size",
        ),
        ("no_shift", "ontext shift is disabled", r"[Cc]ontext shift is disabled"),
        (
            "ubatches",
            "failed to prepare",
            r"failed to prepare (?:attention|recurrent)(?: base| swa)? ubatches",
        ),
    ],
    kind=Kind.CACHE_FULL,
    component=Component.KV,
    phase=Phase.SERVING,
    fatal=False,
)
_add(
    Act.STATE,
    [
        (
            "cache_state",
            "cache state:",
            rf"cache state: (?P<count>\d+) prompts, {_MIB} MiB \(limits: (?P<limit>\d[\d.,]*) MiB",
        ),
        ("cache_state_cut", "cache state:", rf"cache state: (?P<count>\d+) prompts, {_MIB} MiB"),
        (
            "checkpoint",
            "created context checkpoint",
            rf"created context checkpoint (?P<count>\d+) of \d+.*size = {_MIB} MiB",
        ),
    ],
    component=Component.PROMPT_CACHE,
    phase=Phase.SERVING,
)
_add(
    Act.FAILURE,
    [("reprocess", "full prompt re-processing", r"forcing full prompt re-processing")],
    kind=Kind.REPROCESSING,
    component=Component.PROMPT_CACHE,
    phase=Phase.SERVING,
    fatal=False,
)
_add(
    Act.FAILURE,
    [("state_size", "total_size == size", r"GGML_ASSERT\(total_size == size\) failed")],
    kind=Kind.CRASH,
    component=Component.PROMPT_CACHE,
    phase=Phase.SERVING,
    fatal=True,
)
_add(
    Act.FAILURE,
    [("tensor_data", "tensor->data != NULL", r"GGML_ASSERT\(tensor->data != NULL")],
    kind=Kind.CRASH,
    component=Component.PROMPT_CACHE,
    fatal=True,
)
# --- driver and kernel errors ------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        ("gpu_error", " error", r"(?P<api>CUDA|ROCm|MUSA|HIP|CANN|NCCL) error: (?P<why>.+)"),
        (
            "gpu_error_number",
            "CUDA error",
            r"(?P<api>CUDA|cuBLAS|CUBLAS) error \d+ at \S+: (?P<why>.+)",
        ),
        ("gpu_error_file", " error", r"\S+:\d+: (?P<api>CUDA|ROCm|MUSA|HIP) error$"),
        ("gpu_error_assert", "CUDA error", r"GGML_ASSERT.*!\"(?P<api>CUDA|ROCm|MUSA|HIP) error\""),
    ],
    kind=Kind.BACKEND,
    family="CUDA",
    fatal=True,
)
_add(
    Act.DETAIL,
    [
        (
            "gpu_where",
            "current device:",
            r"current device: (?P<index>-?\d+), in function (?P<function>\S+) at",
        ),
        (
            "gpu_call",
            "(",
            r"^(?P<call>cu|cuda|hip|mu|musa|cublas|rocblas|hipblas)(?P<function>[A-Z]\w+)\(",
        ),
        ("gpu_call_wrapped", "ggml_cuda_device_malloc", r"ggml_cuda_device_malloc(?P<function>)\("),
    ],
)
_add(
    Act.FAILURE,
    [
        (
            "sycl_oom",
            "OUT_OF_",
            r"(?:UR_RESULT|PI)_ERROR_OUT_OF_(?:HOST|DEVICE)_MEMORY|(?:UR_RESULT|PI)_ERROR_OUT_OF_RESOURCES|CL_OUT_OF_(?:HOST|RESOURCES)\w*|CL_MEM_OBJECT_ALLOCATION_FAILURE",
        ),
        ("sycl_dpct", "dpct_malloc", r"dpct_malloc: out of memory"),
    ],
    kind=Kind.RUNTIME_ALLOCATION,
    component=Component.POOL,
    family="SYCL",
)
_add(
    Act.FAILURE,
    [
        (
            "vk_lost",
            "evice",
            r"ErrorDeviceLost|ggml_vulkan: device lost|VK_ERROR_DEVICE_LOST|ggml_webgpu: Device lost",
        ),
        ("vk_error", "vk::", r"vk::\w+(?:::\w+)?: Error(?!OutOf)\w+"),
        ("sycl_error", "SYCL", r"SYCL error: |Native API failed|UR_RESULT_ERROR_DEVICE_LOST"),
        ("sycl_native", "Native API", r"Native API (?:failed|returns)"),
        ("hsa_error", "HSA_STATUS_ERROR", r"HSA_STATUS_ERROR\w*|Memory access fault by GPU"),
        ("gpu_fault", "Memory access fault", r"Memory access fault by GPU"),
        ("opencl_error", "ggml_opencl", r"ggml_opencl: \S+ error -?\d+"),
        (
            "sched_compute",
            "graph_compute",
            r"ggml_backend_sched_graph_compute\w* failed with error -?\d+",
        ),
        ("not_finite", "failed to compute graph", r"failed to compute graph, compute status: \d+"),
        (
            "unsupported_op",
            "unsupported op",
            r"unsupported op '?\w+|pre-allocated tensor .* cannot run the operation",
        ),
        ("backend_init", "failed to initialize", r"failed to initialize (?:the )?\S+ backend"),
    ],
    kind=Kind.BACKEND,
)
# --- refusals --------------------------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        ("arg_invalid", "invalid argument:", r"error: (?:invalid|unknown) argument: (?P<what>.*)"),
        ("arg_unknown", "unknown argument", r"error: unknown argument:? "),
        (
            "arg_handling",
            "error while handling",
            r"error while handling (?:argument|environment variable) ",
        ),
        ("arg_missing", "--model is required", r"--model is required"),
        (
            "arg_value",
            "error:",
            r"error: (?:unknown value for|invalid value for|invalid parameter for|argument with|unsupported)",
        ),
        ("arg_expected", "expected value for argument", r"expected value for argument"),
        (
            "arg_template",
            "chat template is not supported",
            r"the supplied chat template is not supported",
        ),
        ("arg_rpc", "failed to find RPC backend", r"failed to find RPC backend"),
        ("arg_device", "invalid device", r"invalid device: "),
    ],
    kind=Kind.CONFIG,
    phase=Phase.ARGUMENTS,
    fatal=True,
)
_add(
    Act.FAILURE,
    [
        (
            "v_quant_fa",
            "lash",
            r"V cache (?:quantization requires flash_attn|was requested, but this requires Flash Attention)|quantized V cache requires flash_attn|quantized V cache was requested",
        ),
        (
            "kv_block",
            "does not divide n_embd_head",
            r"[KV] cache type \S+ with block size \d+ does not divide",
        ),
        (
            "kv_types",
            "cache types",
            r"model does not support different K \(\S+\) and V \(\S+\) cache types",
        ),
        ("zero_ctx", "cannot both be zero", r"cannot both be zero"),
        (
            "tensor_split_fa",
            "SPLIT_MODE_TENSOR",
            r"SPLIT_MODE_TENSOR (?:requires|needs|not implemented for architecture)",
        ),
        ("seq_max", "n_seq_max", r"n_seq_max must be <= \d+|n_seq_max = \d+ > \d+"),
        ("ctx_seq_zero", "n_ctx_seq == 0", r"n_ctx_seq == 0"),
        ("main_gpu", "invalid value for main_gpu", r"invalid value for main_gpu"),
        (
            "draft_vocab",
            "not compatible with the target model",
            r"draft model .*is not compatible with the target model",
        ),
        (
            "draft_vocab_new",
            "draft model vocab type must match",
            r"draft model vocab type must match",
        ),
        ("template_parse", "chat template parsing error", r"chat template parsing error"),
        ("clip_main", "CLIP cannot be used as main model", r"CLIP cannot be used as main model"),
        ("no_backends", "no backends are loaded", r"no backends are loaded"),
        (
            "n_embd_mismatch",
            "mismatch between text model",
            r"mismatch between text model \(n_embd = \d+\) and",
        ),
        (
            "defrag",
            "does not support",
            r"(?:error|E) .*this (?:model|context) does not support (?:parallel|embeddings)",
        ),
    ],
    kind=Kind.CONFIG,
    phase=Phase.CONTEXT,
    fatal=True,
)
_add(
    Act.FAILURE,
    [
        ("ubatch_small", "increase the physical batch size", r"increase the physical batch size"),
    ],
    kind=Kind.CONFIG,
    phase=Phase.SERVING,
    fatal=False,
)
# --- the machine and its permissions -------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        ("port", "couldn't bind", r"couldn't bind (?:HTTP server socket|to server socket)"),
        (
            "port_start",
            "couldn't start HTTP",
            r"couldn't start HTTP listener|failed to initialize HTTP server",
        ),
        ("port_taken", "ddress already in use", r"[Aa]ddress already in use"),
        (
            "library",
            "error while loading shared libraries",
            r"error while loading shared libraries: ",
        ),
        ("library_open", "cannot open shared object", r"cannot open shared object file"),
        ("glibc", "GLIBC", r"version [`']GLIBC\w*_[\d.]+' not found"),
        ("dyld", "dyld", r"dyld\S*: Library not loaded"),
        ("exec_format", "xec format error", r"[Ee]xec format error"),
        ("not_found", "command not found", r"llama\S*: command not found"),
        ("mmap_other", "mmap failed", r"error loading model: mmap failed: "),
        (
            "permission",
            "ermission denied",
            r"failed to open .*: Permission denied|llama\S*: Permission denied",
        ),
        ("threads", "Resource temporarily unavailable", r"Resource temporarily unavailable"),
        ("files", "Too many open files", r"Too many open files"),
        ("disk", "No space left on device", r"No space left on device"),
        ("no_driver", "Vulkan", r"vk::createInstance: \w+|ErrorIncompatibleDriver"),
    ],
    kind=Kind.ENVIRONMENT,
)
# --- the file -------------------------------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        (
            "file_open",
            "failed to open",
            r"failed to open (?:GGUF file|gguf file)?.*(?:No such file|not found|cannot find)",
        ),
        ("gguf_open", "failed to open", r"gguf_init_from_file\w*: failed to open"),
        ("gguf_magic", "magic", r"invalid magic characters|failed to read magic|bad magic"),
        (
            "gguf_version",
            "GGUF",
            r"this GGUF file is version|bad GGUF version|GGUFv1 is no longer supported|this GGUF file version",
        ),
        ("gguf_tensor", "invalid ggml type", r"tensor '.*' (?:has invalid ggml type|of type \d+)"),
        (
            "gguf_read",
            "gguf_init_from_file",
            r"gguf_init_from_\w+: (?:failed to read|number of|tensor|key|duplicate|failed to seek|encountered length_error)",
        ),
        ("file_bounds", "not within the file bounds", r"data is not within (?:the )?file bounds"),
        ("file_arch", "unknown model architecture", r"unknown (?:model )?architecture"),
        (
            "file_hparams",
            "error loading model hyperparameters",
            r"error loading model hyperparameters",
        ),
        ("file_vocab", "error loading model vocabulary", r"error loading model vocabulary"),
        (
            "file_tensors",
            "tensor",
            r"error loading model: .*(?:missing tensor|wrong number of tensors|wrong shape|tensor '.*' not found|invalid data|is duplicated)",
        ),
        (
            "file_error",
            "error loading model: ",
            r"error loading model: (?!unable to allocate|failed to allocate|mmap failed|.*bad_alloc|.*_M_range_check)\S",
        ),
        ("file_load", "failed to load", r"failed to load (?:GGUF split|model) from "),
        ("hf_missing", "GGUF files found", r"no GGUF files found in repository"),
    ],
    kind=Kind.MODEL,
    phase=Phase.LOAD,
)
_add(
    Act.FAILURE,
    [("download", "download", r"(?:download failed|failed to download|error: failed to get) ")],
    kind=Kind.ENVIRONMENT,
    phase=Phase.LOAD,
)
# --- the end of the process ---------------------------------------------------------------------------------------------------
_add(
    Act.FAILURE,
    [
        (
            "oom_kill",
            "ill",
            r"Out of memory: Kill(?:ed)? process \d+|oom-kill:|invoked oom-killer|oom_reaper|killed by the OOM killer|OOMKilled(?!=false)|Memory cgroup out of memory",
        ),
        ("killed_line", "Killed", r"^(?:\S+: line \d+:\s+\d+ )?Killed\b(?!.*=)"),
        (
            "signal_kill",
            "ill",
            r"code=killed, status=9|signal: killed|[Ss]ignal 9\b|SIGKILL|exit(?:ed)?(?: with)?(?: exit)? (?:code|status)(?: of)?:? 137\b|\bexit ?code:? ?137\b|force-killing model instance",
        ),
    ],
    kind=Kind.KILLED,
    fatal=True,
)
_add(
    Act.DEATH,
    [
        ("segv", "egmentation fault", r"Segmentation fault|SIGSEGV|code=dumped, status=11"),
        (
            "segv_exit",
            "exit",
            r"exit(?:s|ed)?(?: with)?(?: exit)? (?:code|status)(?: of)?:? (?:139|-11|134|-6)\b",
        ),
        (
            "abort",
            "bort",
            r"^(?:\S+: line \d+:\s+\d+ )?Abort(?:ed|trap)?\b(?:.*core dumped)?|Abort trap|SIGABRT|code=dumped, status=6",
        ),
        ("assert", "GGML_ASSERT", r"GGML_ASSERT"),
        ("terminate", "terminate called", r"terminate called"),
        ("heap", "free()", r"free\(\): invalid|double free or corruption|corrupted size vs"),
        (
            "heap_more",
            "corrupt",
            r"double free or corruption|corrupted size|malloc\(\): |munmap_chunk",
        ),
        ("ggml_abort", "fatal error", r"\S+:\d+: fatal error$"),
        ("ggml_abort_text", "GGML_ABORT", r"GGML_ABORT"),
        ("trace", "ggml_abort", r"ggml_abort"),
        ("illegal", "llegal instruction", r"Illegal instruction|SIGILL"),
        ("bus", "Bus error", r"Bus error|SIGBUS"),
    ],
    kind=Kind.CRASH,
    fatal=True,
)
# --- consequences --------------------------------------------------------------------------------------------------------------
_add(
    Act.DROPPED_TO_DRAFT,
    [
        (
            "draft_end",
            "draft",
            r"failed to (?:load draft model|create draft (?:context|model)|initialize draft)",
        ),
        ("mtp_end", "MTP context", r"failed to create MTP context"),
        ("spec_end", "speculative", r"failed to initialize speculative decoding context"),
    ],
)
_add(
    Act.END,
    [
        (
            "end_context",
            "failed to",
            r"failed to initialize the context|failed to create.context with model",
        ),
        ("end_model", "failed to load model", r"failed to load model(?:[,:]? '|$|\b(?! from))"),
        ("end_unable", "unable to load model", r"unable to load model"),
        ("end_exit", "exiting due to", r"exiting due to (?:model loading|HTTP server) error"),
    ],
)
_add(
    Act.RETRY, [("pipeline_retry", "without pip", r"retrying without pip")], notice="pipeline_retry"
)
# --- sizes and values ------------------------------------------------------------------------------------------------------------
_add(
    Act.SIZE,
    [
        (
            "size_kv",
            "KV buffer size",
            rf"(?:^|:)\s*(?P<buf>[^:=]*?\S|\S*\[\S+\]) KV buffer size =\s*{_MIB} MiB",
        )
    ],
    component=Component.KV,
)
_add(
    Act.SIZE,
    [
        (
            "size_dsv4",
            "state buffer size",
            rf":\s*(?P<buf>\S+) DSV4 .*state buffer size =\s*{_MIB} MiB",
        )
    ],
    component=Component.KV,
)
_add(
    Act.SIZE,
    [("size_rs", "RS buffer size", rf":\s*(?P<buf>\S+) RS buffer size =\s*{_MIB} MiB")],
    component=Component.RS,
)
_add(
    Act.SIZE,
    [
        (
            "size_output",
            "output buffer size",
            rf":\s*(?P<buf>\S+)\s+output buffer size =\s*{_MIB} MiB",
        )
    ],
    component=Component.OUTPUT,
)
_add(
    Act.SIZE,
    [
        (
            "size_compute",
            "compute buffer size",
            rf"(?P<where>\w+):\s*(?P<buf>\S+) compute buffer size =\s*{_MIB} MiB",
        )
    ],
    component=Component.COMPUTE,
)
_add(
    Act.SIZE,
    [
        (
            "size_model",
            "model buffer size",
            rf":\s*(?P<buf>\S.*?) model buffer size =\s*{_MIB} MiB",
        ),
        (
            "size_model_old",
            "buffer size",
            rf"llm_load_tensors:\s*(?P<buf>\S.*?) buffer size =\s*{_MIB} MiB",
        ),
    ],
    component=Component.WEIGHTS,
)
_add(
    Act.SIZE,
    [("size_clip", "params backend buffer size", rf"params backend buffer size =\s*{_MIB} MB")],
    component=Component.MMPROJ,
)
_add(
    Act.TOTAL,
    [
        (
            "total_rs",
            "rs",
            rf"recurrent: size =\s*{_MIB} MiB \(.*?(?P<rs>\d+) seqs(?: +(?P<planes>\d+) rs_seq)?\)",
        )
    ],
    component=Component.RS,
)
_add(
    Act.TOTAL,
    [
        (
            "total_rs_planes",
            "R (f32)",
            rf"size =\s*{_MIB} MiB \(\s*(?P<cells>\d+) cells.*?(?P<rs>\d+) seqs(?: +(?P<planes>\d+) rs_seq)?\), R \(f32\)",
        )
    ],
    component=Component.RS,
)
_add(
    Act.TOTAL,
    [("total_kv", "cells", rf"kv_cache\w*: size =\s*{_MIB} MiB \(\s*(?P<cells>\d+) cells")],
    component=Component.KV,
)
_add(
    Act.VALUE,
    [
        ("v_n_ctx", "n_ctx", r"^(?:llama_\w+|main): n_ctx\s+= (?P<n_ctx>\d+)"),
        ("v_n_ctx_seq", "n_ctx_", r"n_ctx_(?:seq|per_seq)\s+= (?P<n_ctx_seq>\d+)"),
        ("v_n_seq_max", "n_seq_max", r"n_seq_max\s+= (?P<n_seq_max>\d+)"),
        ("v_n_batch", "n_batch", r"^llama_\w+: n_batch\s+= (?P<n_batch>\d+)"),
        ("v_n_ubatch", "n_ubatch", r"^llama_\w+: n_ubatch\s+= (?P<n_ubatch>\d+)"),
        ("v_kv_unified", "kv_unified", r"^llama_\w+: kv_unified\s+= (?P<kv_unified>true|false)"),
        ("v_n_rs_seq", "n_rs_seq", r"n_rs_seq\s+= (?P<n_rs_seq>\d+)"),
        ("v_flash", "flash_attn", r"^llama_\w+: flash_attn\s+= (?P<flash_attn>\w+)"),
        (
            "v_flash_auto",
            "Flash Attention",
            r"Flash Attention was auto, set to (?P<flash_attn>\w+)",
        ),
        ("v_layers", "layers to GPU", r"offloaded (?P<n_gpu_layers>\d+)/\d+ layers to GPU"),
        (
            "v_slots",
            "n_slots",
            r"n_slots = (?P<n_seq_max>\d+)(?:, n_ctx_slot = (?P<n_ctx_seq>\d+))?(?:, kv_unified = '(?P<kv_unified>true|false)')?",
        ),
        ("v_slot", "new slot", r"new slot,? n_ctx(?:_slot)? ?= ?(?P<n_ctx_seq>\d+)"),
    ],
)
# --- where in its life the server is ------------------------------------------------------------------------------------------------
_add(
    Act.MILESTONE,
    [
        (
            "at_ready",
            "model loaded",
            r"(?:main|llama_server): model loaded|^model loaded|\] model loaded",
        ),
        (
            "at_listening",
            "listening on",
            r"(?<!HTTP )server is listening on|llama_server: listening on",
        ),
        ("at_listening_old", "HTTP server listening", r"HTTP server listening"),
        ("at_idle", "all slots are idle", r"all slots are idle"),
    ],
    phase=Phase.SERVING,
    value="ready",
)
_add(
    Act.MILESTONE,
    [
        ("at_request", "slot ", r"^slot\s+(?!load_model|init)\w+:|^slot_\w+:|launch_slot"),
        ("at_image", "process_chun", r"process_chun"),
        ("at_saving", "saving prompt with length", r"saving prompt with length"),
        (
            "at_request_done",
            "request:",
            r"(?:log_server_r\w*|done_request): (?:done )?request: \w+ /",
        ),
    ],
    phase=Phase.SERVING,
)
_add(
    Act.MILESTONE,
    [("at_warmup", "warming up the model", r"warming up the model")],
    phase=Phase.WARMUP,
)
_add(
    Act.MILESTONE,
    [
        ("at_context", "constructing llama_context", r"constructing llama_context"),
        ("at_context_ctx", "n_ctx_seq (", r"n_ctx_(?:seq|per_seq) \(\d+\)"),
        ("at_reserve", "sched_reserve: reserving", r"sched_reserve: reserving"),
    ],
    phase=Phase.CONTEXT,
)
_add(
    Act.MILESTONE,
    [
        ("at_load", "load_tensors: loading model tensors", r"load_tensors: loading model tensors"),
        ("at_load_offload", "load_tensors: offload", r"load_tensors: offload"),
        ("at_load_meta", "ggml ctx size", r"load_tensors: ggml ctx size"),
        ("at_load_model", "loading model", r"(?:load_model|main|llama_server): loading model"),
    ],
    phase=Phase.LOAD,
)
_add(
    Act.MILESTONE,
    [
        ("at_shutdown", "cleaning up before exit", r"cleaning up before exit"),
        ("at_interrupt", "Received second interrupt", r"Received second interrupt"),
    ],
    phase=Phase.SHUTDOWN,
    value="exited",
)
_add(
    Act.MILESTONE,
    [
        ("at_sleep", "entering sleeping state", r"entering sleeping state"),
        ("at_wake", "exiting sleeping state", r"exiting sleeping state"),
    ],
    value="sleep",
)
_add(
    Act.ROLE,
    [
        ("role_draft", "draft", r"loading draft model|creating MTP draft context"),
    ],
    component=Component.DRAFT,
)
_add(
    Act.ROLE,
    [
        (
            "role_mmproj",
            "clip",
            r"^clip_(?:model_loader|model_load|init|ctx)\b|^load_hparams: projector|clip_model_loader:",
        ),
        ("role_mmproj_probe", "mtmd", r"mtmd_get_memory_usage|\[mtmd\]"),
        (
            "role_image",
            "processing image",
            r"processing image|image_tokens->|encoding image|image slice",
        ),
    ],
    component=Component.MMPROJ,
)
_add(
    Act.ROLE,
    [
        ("role_mmproj_end", "loaded multimodal model", r"loaded multimodal model"),
        ("role_image_end", "image processed", r"image processed|image decoded"),
    ],
)
# --- worth knowing, not a failure -------------------------------------------------------------------------------------------------------
NOTICES: dict[str, str] = {
    "sizes_hidden": "This verbosity hides buffer sizes; run again with -lv 4.",
    "size_line_absent": "The failed buffer has no size line because it failed before its size was printed.",
    "fit_refused": "The fit to free memory was refused; the start went on with the options as given.",
    "fit_failed": "A dry run of the fit failed; the start went on.",
    "pipeline_retry": "The compute buffer was asked for again without pipeline parallelism.",
    "option_dropped": "An option was dropped or changed and the start went on.",
    "pinned_memory_refused": "Pinned host memory was refused; ordinary memory is used.",
    "mlock_refused": "Memory could not be locked; it can be swapped out.",
    "fused_op_off": "A fused operation is off or split between devices; may be a sign of short memory.",
    "device_unavailable": "A backend found no usable device.",
    "rpc_worker_dropped": "A worker was not used.",
    "rs_planes": "The recurrent state is multiplied by rollback planes of speculative decoding.",
    "slots_auto": "The number of slots was chosen by the server.",
    "context_capped": "The context of a slot was changed by the server.",
    "prompt_too_big": "A prompt state was larger than the prompt cache and was not saved.",
    "checkpoints": "Context checkpoints are on: host memory outside --cache-ram.",
    "near_limit": "The device reports more memory in use than it recommends.",
    "restarted": "The log holds several starts; the last one that ended is reported.",
    "reversed": "The log was read from its end: newest line first.",
    "wrapped": "Wrapped lines were joined.",
    "capped": "There was more of this kind than is kept.",
}
"""Every notice id and what it means."""

_add(
    Act.NOTICE,
    [
        ("option_swa", "it will be disabled", r"is not supported by .*it will be disabled"),
        ("option_requires", "disabling", r"requires \S+, disabling|disabling KV cache shifting"),
        (
            "option_spec",
            "speculative decoding not supported",
            r"speculative decoding not supported by this context",
        ),
        ("option_forced", "forcing", r"forcing off"),
        ("option_gpu", "option will be ignored", r"option will be ignored"),
        (
            "option_gpu_new",
            "no usable GPU found",
            r"no usable GPU found, --gpu-layers option will be ignored",
        ),
        ("option_batch", "to avoid assertion failure", r"setting n_batch = n_ubatch"),
    ],
    notice="option_dropped",
)
_add(
    Act.NOTICE,
    [
        (
            "n_slots_auto",
            "n_parallel",
            r"n_parallel is set to auto|setting n_parallel = \d+ and kv_unified",
        )
    ],
    notice="slots_auto",
)
_add(
    Act.NOTICE,
    [
        ("n_capped", "- capping", r"exceeds the training context of the model .*- ?capping"),
        ("n_rounded", "rounding down to", r"n_ctx is not divisible by n_seq_max"),
    ],
    notice="context_capped",
)
_add(
    Act.NOTICE,
    [("n_pinned", "pinned memory", r"failed to (?:allocate|register) .*pinned memory")],
    notice="pinned_memory_refused",
)
_add(
    Act.NOTICE,
    [("n_mlock", "mlock", r"failed to mlock|failed to VirtualLock")],
    notice="mlock_refused",
)
_add(
    Act.NOTICE,
    [("n_fused", "is assigned to device", r"layer \d+ is assigned to device \S+ but")],
    notice="fused_op_off",
)
_add(
    Act.NOTICE,
    [
        (
            "n_device",
            "failed to initialize",
            r"ggml_\w+_init: failed to initialize (?:CUDA|ROCm|MUSA|HIP)",
        )
    ],
    notice="device_unavailable",
)
_add(
    Act.NOTICE,
    [
        (
            "n_prompt_big",
            "exceeds cache size limit",
            r"prompt state size .* exceeds cache size limit",
        )
    ],
    notice="prompt_too_big",
)
_add(
    Act.NOTICE,
    [("n_checkpoints", "context checkpoints enabled", r"context checkpoints enabled, max = \d+")],
    notice="checkpoints",
)
_add(
    Act.NOTICE,
    [
        (
            "n_working_set",
            "recommended max working set",
            r"greater than the recommended max working set size",
        )
    ],
    notice="near_limit",
)
# --- names -----------------------------------------------------------------------------------------------------------------------------------
_add(
    Act.BEGIN,
    [
        (
            "tag_build",
            "build",
            r"(?:^|main: |\s)build(?::| =) (?P<build>\d+) \((?P<commit>[0-9a-f]{6,40})\)",
        ),
        (
            "tag_version",
            "version",
            r"version: (?P<version>\S+) \(build (?P<build>\d+), commit (?P<commit>[0-9a-f]{6,40})\)",
        ),
        ("tag_version_plain", "version", r"version: (?P<build>\d+) \((?P<commit>[0-9a-f]{6,40})\)"),
        ("tag_info", "build_info", r"build_info: b?(?P<build>\d+)-(?P<commit>[0-9a-f]{6,40})"),
        (
            "tag_json",
            "build info",
            r"build info.*build=(?P<build>\d+).*commit=\"?(?P<commit>[0-9a-f]{6,40})",
        ),
        ("tag_llama_server", "build", r"llama-server\S* \(?(?:version )?b(?P<build>\d{4,6})\b"),
    ],
)
_add(
    Act.BEGIN,
    [
        ("begin_verbosity", "verbosity = ", r"verbosity = (?P<verbosity>\d+) \(adjust"),
        ("begin_system", "system_info:", r"system_info: n_threads"),
    ],
)
_add(
    Act.DEVICE,
    [
        (
            "device_list",
            "MiB",
            r"^-\s*(?P<name>\w[\w\[\].:-]*)\s*:\s.*\(\d+ MiB, \d+ MiB free\)|^\s*(?P<name2>(?:CUDA|ROCm|MUSA|Vulkan|SYCL|CANN|MTL|RPC|HTP|OpenCL)\w*): .*\(\d+ MiB, \d+ MiB free\)",
        ),
        ("device_using", "using device", r"using device (?P<name>\S+) \("),
        ("device_vulkan", "Vulkan", r"^(?P<name>Vulkan\d+): "),
        ("device_table", "|", r"\|\s+- (?P<name>[A-Za-z]\w*\d*(?:\[\S+\])?) \("),
        ("device_offload", "offloaded to", r"layer\s+\d+ assigned to device (?P<name>\w+)"),
    ],
)
_add(
    Act.NOTICE,
    [("rpc_worker", "RPC server", r"Starting RPC server|Accepted client connection")],
    value="rpc",
)

RULES: tuple[Rule, ...] = tuple(_rules)

ERAS: tuple[tuple[str, int, int], ...] = (
    ("llm_load_tensors", OLDEST, 4519),
    ("llama_new_context_with_model", OLDEST, 4519),
    ("llm_load_print_meta", OLDEST, 4519),
    ("llama_kv_cache_init", OLDEST, 5199),
    ("unable to allocate backend buffer", OLDEST, 4150),
    ("llama_kv_cache_unified", 5200, 6899),
    ("n_ctx_per_seq", 4150, 6899),
    ("n_ctx_seq", 6800, NEWEST),
    ("llama_params_fit", 7400, 9089),
    ("llama_memory_breakdown_print", 6700, 9089),
    ("common_memory_breakdown_print", 9040, NEWEST),
    ("common_fit_params", 9040, NEWEST),
    ("common_params_fit_impl", 9040, NEWEST),
    ("ggml_gallocr_reserve_n:", OLDEST, 7399),
    ("ggml_gallocr_reserve_n_impl", 7200, NEWEST),
    ("sched_reserve:", 8000, NEWEST),
    ("resolve_fused_ops", 10200, NEWEST),
    ("llama_server:", 9600, NEWEST),
    ("cmn ", 10200, NEWEST),
    ("rs_seq", 9130, NEWEST),
    ("ggml_backend_buft_alloc_buffer_n_default", 10435, NEWEST),
    ("alloc_tensor_range", OLDEST, 11433),
)
"""(words, first build, last build): between which builds these words are in a log."""

STAMP_ERA = (9150, NEWEST)
"""Builds that put their own clock in front of each line unless told not to."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One line that shows that something happened while serving."""

    id: str
    key: str


SIGNS: tuple[Sign, ...] = (
    Sign("prompt_saved", "saving prompt with length"),
    Sign("prompt_cache_state", "cache state:"),
    Sign("prompt_restored", "found better prompt"),
    Sign("checkpoint_created", "created context checkpoint"),
    Sign("checkpoint_restored", "restored context checkpoint"),
    Sign("checkpoint_erased", "erasing old context checkpoint"),
    Sign("reprocessed", "forcing full prompt re-processing"),
    Sign("task_started", "processing task"),
    Sign("slot_released", "stop processing: n_tokens"),
    Sign("idle", "all slots are idle"),
    Sign("image", "processing image"),
    Sign("sleeping", "entering sleeping state"),
    Sign("woken", "exiting sleeping state"),
)
"""What ``LogReader.marks`` counts."""


def events(text: str) -> list[Event]:
    """The rules that fit ``text``: the first one, and after an owner also what it ends."""
    found: list[Event] = []
    for rule in RULES:
        if rule.key not in text:
            continue
        if found and rule.act not in (Act.END, Act.DROPPED_TO_DRAFT):
            continue
        match = rule.pattern.search(text)
        if match is None:
            continue
        found.append(
            Event(rule, match, {k: v for k, v in match.groupdict().items() if v is not None})
        )
        if rule.act in (Act.END, Act.DROPPED_TO_DRAFT):
            break
        if rule.act not in (Act.OWNER, Act.FAILURE):
            break
    return found
