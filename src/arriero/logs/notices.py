"""Ids of notices, and what each of them means in words."""

from __future__ import annotations

from typing import Final

NOTICES: Final[dict[str, str]] = {
    "sizes_hidden": "This verbosity hides buffer sizes: run again with -lv 4.",
    "size_line_absent": "The buffer that failed has no size line: it failed before one is printed.",
    "fit_refused": "--fit found no way to fit the model; the start went on with options as given.",
    "fit_failed": "A dry run of --fit failed; the start went on.",
    "pipeline_retry": "The server tried the compute buffer again without pipeline parallelism.",
    "option_dropped": "The server dropped or changed an option and went on.",
    "pinned_memory_refused": "The driver refused pinned host memory; ordinary memory is used.",
    "mlock_refused": "The system refused to lock memory, so the model can be swapped out.",
    "fused_op_off": "A layer and a fused operation are on different devices: memory may be short.",
    "device_unavailable": "A backend found no usable device.",
    "rs_planes": "Speculative decoding multiplies the recurrent state by its rollback planes.",
    "slots_auto": "The server chose the number of slots.",
    "context_changed": "The server changed the context of a slot.",
    "attempt_repeated": "The program that started the engine tried again with a smaller load.",
    "restart_loop": "A supervisor starts the server again and again.",
    "prompt_too_big": "A prompt's state was larger than the prompt cache and was not saved.",
    "checkpoints": "Context checkpoints are on: they take host memory outside of --cache-ram.",
    "memory_query_failed": "The device did not say how much of its memory is free.",
    "meta_backend": "One backend stands for all devices: its sizes belong to no single device.",
    "cuda_graphs": "The server kept recorded CUDA graphs until it ended.",
    "near_limit": "The device reports more memory in use than it recommends.",
    "restarted": "The log contains several starts; this is the last one that ended.",
    "reversed": "The log has its newest line first; it was read from its end.",
    "wrapped": "The log has wrapped lines; they were joined.",
    "capped": "The log has more of this kind than Arriero keeps.",
}
"""Id → one sentence."""
