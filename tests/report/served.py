"""Documents of a server that stays up, as one with a small model and two slots makes them."""

from __future__ import annotations

import msgspec

from arriero.base.words import Component, Evidence, Kind, Phase, Recovery, ServerState
from arriero.logs.model import Failure
from arriero.record import (
    Event,
    Gate,
    Incident,
    IncidentRequests,
    Incidents,
    MemoryUse,
    RequestCounts,
    ServedEngine,
    ServedTokens,
    SlotUse,
    Status,
)

ARGV = ("llama-server", "-m", "/home/ana/models/gemma-3-270m.gguf", "-c", "8192", "-np", "2")
GIB = 1 << 30
MIB = 1 << 20


def status() -> Status:
    """Ready again after two incidents."""
    return Status(
        state=ServerState.READY,
        version="0.1.0",
        at="2026-12-01T12:00:00+00:00",
        up_s=4521.0,
        model="gemma-3-270m.gguf",
        engine=ServedEngine(pid=4242, build=10434, argv=ARGV, ready_s=1.31, restarts=2, up_s=700.5),
        gates=(
            Gate(
                change="-cram 0",
                why="this engine cannot give saved prompts back from Vulkan0 without an abort",
            ),
        ),
        requests=RequestCounts(
            received=1204,
            answered=1187,
            held=9,
            replayed=6,
            continued=3,
            refused=8,
            cancelled=6,
            in_flight=3,
            waiting=1,
        ),
        tokens=ServedTokens(
            prompt=88_120, reused=41_007, predicted=30_999, prompt_tps=812.4, predict_tps=61.2
        ),
        memory=(
            MemoryUse(
                pool="Vulkan0",
                planned=round(3.1 * GIB),
                most=round(3.1 * GIB),
                actual=round(3.02 * GIB),
                total=8 * GIB,
                free=round(4.1 * GIB),
            ),
            MemoryUse(
                pool="host",
                planned=900 * MIB,
                most=8 * GIB,
                actual=1400 * MIB,
                total=32 * GIB,
                free=20 * GIB,
            ),
        ),
        slots=(
            SlotUse(id=0, busy=True, tokens=3120, n_ctx=4096),
            SlotUse(id=1, busy=False, tokens=512, n_ctx=4096),
        ),
        incidents=("inci-7be1f29c", "inci-0a44d8e1"),
    )


def failure() -> Failure:
    """A pool on the device that could not grow."""
    return Failure(
        kind=Kind.RUNTIME_ALLOCATION,
        component=Component.PROMPT_CACHE,
        device="Vulkan0",
        bytes=round(1.5 * GIB),
        phase=Phase.SERVING,
        fatal=True,
        line=812,
        text="ggml_vulkan: Device memory allocation of size 1610612736 failed.",
        not_this=("the model file", "the KV cache"),
        evidence=Evidence.NAMED,
    )


def incident() -> Incident:
    """Ended by an assertion after an allocation failed; back with a smaller command."""
    return Incident(
        id="inci-7be1f29c",
        at="2026-12-01T11:48:17+00:00",
        verdict=failure(),
        signal="SIGABRT",
        build=10434,
        argv=ARGV,
        up_s=2_940.0,
        lost_context_tokens=3_632,
        reread_s=4.47,
        memory=status().memory,
        requests=IncidentRequests(in_flight=3, replayed=2, continued=1),
        down_s=2.84,
        action=Recovery.SMALLER,
        change="-cram 8192 → 0",
        why="memory was the cause, and without saved prompts it fits",
        log=(
            "slot update_slots: id  0 | task 91 | prompt processing progress, n_tokens = 2048",
            "ggml_vulkan: Device memory allocation of size 1610612736 failed.",
        ),
    )


def killed() -> Incident:
    """Killed from outside; the same command again."""
    return Incident(
        id="inci-0a44d8e1",
        at="2026-12-01T10:59:02+00:00",
        verdict=Failure(
            kind=Kind.KILLED,
            phase=Phase.SERVING,
            fatal=True,
            line=0,
            text="",
            evidence=Evidence.NAMED,
        ),
        signal="SIGKILL",
        build=10434,
        argv=ARGV,
        up_s=60.0,
        lost_context_tokens=128,
        requests=IncidentRequests(in_flight=1, replayed=1),
        down_s=1.6,
        action=Recovery.RESTART,
    )


def incidents() -> Incidents:
    """Both, as the list has them."""
    return Incidents(
        incidents=tuple(msgspec.structs.replace(one, log=()) for one in (incident(), killed()))
    )


def event() -> Event:
    """That the engine was lost."""
    return Event.incident("inci-7be1f29c", failure())
