"""Sentences for what a log line says beyond the kind of its failure."""

from __future__ import annotations

import pytest

from arriero.logs import read_log
from arriero.report.view.failures import failure_short, what_failed


def sentence(line: str) -> str:
    (reading,) = read_log([line.encode()])
    assert reading.failure is not None
    return what_failed(reading.failure)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            (
                "srv send_error: error: request (24743 tokens) exceeds the available context size"
                " (24064 tokens), try increasing it"
            ),
            "a request of 24743 tokens was refused: a slot takes 24064",
        ),
        (
            "srv send_error: error: the request exceeds the available context size",
            "a request longer than the context of its slot was refused",
        ),
        ("decode: failed to find a memory slot for batch of size 512", "no free cells left"),
        (
            "llama.service: Main process exited, code=exited, status=203/EXEC",
            "systemd could not execute the program",
        ),
        (
            "llama.service: Main process exited, code=exited, status=245/BPF",
            "systemd failed at its step BPF, before the program ran",
        ),
        ("No compatible code objects found for: gfx1152, value", "has no code for gfx1152"),
        ("CUDA error: no kernel image is available", "has no code for this card"),
        ("NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen", "stopped or reset the GPU"),
        ("level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)", "lost the dev"),
        ("/src/ggml-cuda/fattn.cu:110: fatal error", "flash attention has no kernel"),
        ("/src/mtmd/clip.cpp:3120: Unknown projector type", "multimodal code"),
        (
            "common_download: invalid http status code received: 401",
            "the download was refused (401)",
        ),
        ("common_download: invalid http status code received: 404", "was not found (404)"),
        ("srv load_model: failed to create MTP context", "the log does not say why"),
        ("main: failed to create context with model 'm.gguf'", "the log does not say why"),
        ("alloc_tensor_range: failed to allocate CPU buffer of size 4096", "unknown component"),
    ],
)
def test_a_line_is_said_in_words(line: str, words: str) -> None:
    assert words in sentence(line)


def test_a_request_that_is_too_long_used_up_no_cells() -> None:
    line = "error: request (9 tokens) exceeds the available context size (8 tokens)"
    (reading,) = read_log([line.encode()])
    failure = reading.failure
    assert failure is not None
    assert failure_short(failure.kind, failure.component, failure.text) == "request too long"
    assert failure_short(failure.kind, failure.component) == "KV cells used up"


def test_what_a_log_names_is_printable() -> None:
    assert "\x1b" not in sentence("systemd: Failed at step \x1b[31mEXEC spawning x: No such file")
