"""Logs that lost lines: the component is the right one or null, never another.

An engine that dies loses what its logger had not yet written, and people paste the middle of a log.
What each refusal was for is known from the whole log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arriero.base.words import Component, Evidence
from arriero.logs import LogReader, read_log
from arriero.logs.model import Failure
from arriero.logs.story.cause import MEMORY

DATA = Path(__file__).parent / "data"
EXPECTED: dict[str, dict[str, Any]] = {
    f"{folder}/{name}": want
    for folder in ("captured", "public")
    for name, want in json.loads((DATA / folder / "expected.json").read_text()).items()
}


def refusals(text: str) -> list[Failure]:
    """Every failure of memory in a log, whatever it led to."""
    return [
        failure
        for reading in read_log([text.encode()])
        for failure in (reading.failure, *reading.secondary)
        if failure is not None and failure.kind in MEMORY
    ]


def principal(text: str) -> list[Failure]:
    found = [reading.failure for reading in read_log([text.encode()])]
    return [failure for failure in found if failure is not None and failure.kind in MEMORY]


WHOLE = {
    name: found
    for name in EXPECTED
    if (found := refusals((DATA / name).read_text(encoding="utf-8", errors="replace")))
}


def about_the_same(one: Failure, other: Failure) -> bool:
    sizes = [size for size in (other.bytes, other.buffer_bytes) if size is not None]
    if one.bytes is None or not sizes:
        return True
    return any(abs(one.bytes - size) <= max(1 << 14, size // 1000) for size in sizes)


def shortened(name: str) -> Iterator[tuple[str, str]]:
    """The log cut after each line from its first failed allocation on, without any one line, and
    without any two of its lines that follow each other."""
    lines = (DATA / name).read_text(encoding="utf-8", errors="replace").splitlines()
    first = max(0, min(failure.line for failure in WHOLE[name]) - 6)
    while not any(word in lines[first] for word in ("alloc", "ALLOC", "memory", "Memory")):
        first += 1
    for at in range(first, len(lines)):
        yield f"cut after {at + 1}", "\n".join(lines[: at + 1])
        yield f"without {at + 1}", "\n".join(lines[:at] + lines[at + 1 :])
        if len(lines) < 200:
            yield f"without {at + 1} and the next", "\n".join(lines[:at] + lines[at + 2 :])


def test_the_whole_logs_hold_every_buffer() -> None:
    named = {failure.component for found in WHOLE.values() for failure in found}
    assert named >= {Component.WEIGHTS, Component.KV, Component.RS, Component.COMPUTE}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", WHOLE)
def test_a_log_that_lost_lines_names_the_right_component_or_none(name: str) -> None:
    for how, text in shortened(name):
        for failure in principal(text):
            if failure.component is None:
                continue
            same = [one for one in WHOLE[name] if about_the_same(failure, one)]
            assert failure.component in {one.component for one in same or WHOLE[name]}, how


REFUSED = """\
0.00.041.904 E ggml_aligned_malloc: insufficient memory (attempted to allocate 4020.00 MB)
ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 4215275520
0.00.042.013 E alloc_tensor_range: failed to allocate CPU buffer of size 4215275520
"""
PROBE = f"""\
0.00.009.774 I common_params_fit_impl: getting device memory data for initial parameters:
{REFUSED}\
llama_init_from_model: failed to initialize the context: failed to allocate buffer for %s cache
0.00.042.705 E common_fit_params: encountered an error while trying to fit params to free memory
"""
LOADED = """\
0.00.078.568 I load_tensors:   CPU_Mapped model buffer size =   265.14 MiB
0.00.082.155 I llama_context:        CPU  output buffer size =     0.09 MiB
"""
KV = """\
0.00.088.083 I llama_kv_cache:        CPU KV buffer size =    80.00 MiB
llama_kv_cache: size =   80.00 MiB (   256 cells,  10 layers, 64/64 seqs), K (f16):   40.00 MiB
"""
RS = """\
0.00.347.083 I llama_memory_recurrent:        CPU RS buffer size =    80.00 MiB
llama_memory_recurrent: size =   80.00 MiB (   64 cells,  40 layers,  64 seqs), R (f32):    4 MiB
"""
BARE = "\n".join(REFUSED.splitlines()[:2])


@pytest.mark.parametrize(
    ("log", "component"),
    [
        (PROBE % "rs" + LOADED + KV + REFUSED, "rs"),
        (PROBE % "rs" + REFUSED, "rs"),  # the default verbosity shows no sizes
        (PROBE % "kv" + LOADED + REFUSED, "kv"),
        (PROBE % "kv" + LOADED + KV + RS + REFUSED, None),  # these are there already
        (LOADED + REFUSED, None),
        (LOADED + KV + REFUSED, None),  # another cache of KV, or recurrent state
        (LOADED + KV + BARE, None),
        ("print_info: ssm_d_state      = 128\n" + LOADED + KV + REFUSED, "rs"),
        ("print_info: ssm_d_state      = 0\n" + LOADED + REFUSED, "kv"),
        ("print_info: ssm_d_state      = 0\n" + LOADED + BARE, None),
        (LOADED + KV + RS + BARE, "compute"),
        (LOADED + KV + RS + REFUSED, None),  # not the compute buffer: those are no kept tensors
        (LOADED + RS.splitlines()[0] + "\n" + REFUSED, "rs"),  # on another device
        ("load_tensors: loading model tensors, this can take a while\n" + REFUSED, "weights"),
        ("srv    load_model: loading model 'm.gguf'\n" + REFUSED, None),
    ],
)
def test_a_refusal_without_a_name_is_named_by_what_excludes_the_others(
    log: str, component: str | None
) -> None:
    (reading,) = read_log([log.encode()])
    assert reading.failure is not None
    assert reading.failure.kind == "allocation"
    assert reading.failure.component == component
    assert reading.failure.bytes == 4215275520
    assert reading.failure.evidence is Evidence.INFERRED


def test_what_a_dry_run_printed_names_the_refusal_of_the_same_size() -> None:
    log = (
        "common_params_fit_impl: getting device memory data for initial parameters:\n"
        "llama_memory_recurrent:        CPU RS buffer size =  4020.00 MiB\n"
        "llama_kv_cache:        CPU KV buffer size =    80.00 MiB\n"
        "common_fit_params: fitting params to free memory took 0.03 seconds\n"
    )
    (reading,) = read_log([(log + LOADED + REFUSED).encode()])
    assert reading.failure is not None
    assert reading.failure.component == "rs"
    (reading,) = read_log([(log.replace("80.00", "4020.00") + LOADED + REFUSED).encode()])
    assert reading.failure is not None
    assert reading.failure.component is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(132, "environment"), (-4, "environment"), (133, "crash"), (-11, "crash"), (137, "killed")],
)
def test_an_end_that_only_the_status_shows(status: int, kind: str) -> None:
    reader = LogReader()
    reader.feed("srv    load_model: loading model 'm.gguf'")
    (reading,) = reader.readings(status)
    assert reading.failure is not None
    assert (reading.failure.kind, reading.failure.component) == (kind, None)
    assert (reading.failure.cpu is not None) is (kind == "environment")
