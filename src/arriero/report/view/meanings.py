"""What the words of one log line mean, where the kind of failure alone says too little."""

from __future__ import annotations

import re
from typing import Final

from arriero.report.view.text import printable

_SYSTEMD: Final = {
    "CHDIR": "could not change to its working directory",
    "EXEC": "could not execute the program: look at its path, its permissions and its interpreter",
    "LIMITS": "could not set its resource limits",
    "USER": "does not know the user it shall run as",
    "GROUP": "does not know the group it shall run as",
    "NAMESPACE": "could not set up what the program may see: a path of the unit does not exist",
    "CAPABILITIES": "could not set its capabilities",
    "SECCOMP": "could not apply its filter of system calls",
    "STDOUT": "could not open where its output goes",
    "STDERR": "could not open where its errors go",
    "CPUAFFINITY": "could not bind it to the CPUs that the unit names",
    "NUMA_POLICY": "could not apply its NUMA policy",
    "CGROUP": "could not put it into its control group",
    "MEMORY": "could not set its memory policy",
    "CREDENTIALS": "could not set up its credentials",
    "STATE_DIRECTORY": "could not make its state directory",
    "CACHE_DIRECTORY": "could not make its cache directory",
    "LOGS_DIRECTORY": "could not make its directory of logs",
    "RUNTIME_DIRECTORY": "could not make its runtime directory",
    "CONFIGURATION_DIRECTORY": "could not make its configuration directory",
}
"""systemd.exec(5), statuses from 200 on: what it could not do before the program began."""
_TABLE: Final = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"request \((\d{1,18}) tokens\) exceeds the available context size \((\d{1,18}) tokens",
            "a request of {0} tokens was refused: a slot takes {1}",
        ),
        (
            r"input \((\d{1,18}) tokens\) is larger than the max context size \((\d{1,18}) tokens",
            "an input of {0} tokens was refused: a slot takes {1}",
        ),
        (
            r"exceeds the available context size|ompared to KV size",
            "a request longer than the context of its slot was refused",
        ),
        (
            r"ontext shift is disabled|ontext size has been exceeded",
            "a request reached the end of its slot's context",
        ),
        (
            r"(?:code objects? found for:?|GPU arch ?:|code object for) ?(gfx\w{1,12})",
            "this build of the engine has no code for {0}",
        ),
        (
            (
                r"ompatible code object|find code object|NoBinaryForGpu|CO in the bundle"
                r"|no kernel image|invalid device function|kernel image is invalid"
                r"|no device code compatible|TensileLibrary"
            ),
            "this build of the engine has no code for this card",
        ),
        (
            r"PTX was compiled with an unsupported|driver version is insufficient",
            "the card's driver is older than what the engine was built with",
        ),
        (r"DEVICE_LOST|ErrorDeviceLost|DeviceLostError|evice lost", "the driver lost the device"),
        (
            (
                r"\bXid\b|fallen off the bus|GPU HANG|GPU reset|[Ee]ngine reset|imedout job"
                r"|ring \S+ timeout|context reset due to|\] Resetting |stopped heartbeat|wedged"
                r"|page fault"
            ),
            "the kernel's driver stopped or reset the GPU",
        ),
        (
            r"fattn[\w-]{0,40}\.cuh?:\d",
            "flash attention has no kernel for this model and these cache types on this card",
        ),
        (
            r"(?:clip|mtmd)[\w-]{0,40}\.cpp:\d",
            "the engine aborted in its multimodal code: the projector's file, or an image",
        ),
        (
            (
                r"status=12[67]\b|[Ee]xit\w{0,4}(?: with)?(?: code| status)?:? ?12[67]\b"
                r"|executable file not found"
            ),
            "the program was not found or cannot be executed: look at its path and permissions",
        ),
        (
            r"(?:0x[cC]0000135|-1073741515|3221225781)\b",
            "a library (DLL) that the program needs was not found",
        ),
        (
            r"locate executable|spawning \S|Failed to execute",
            (
                "systemd could not execute the program: look at its path, its permissions and its"
                " interpreter"
            ),
        ),
        (
            r"(?:status|code|error|HTTP)\D{1,12}(40[13])\b",
            "the download was refused ({0}): look at the token, and at access to the model",
        ),
        (
            r"(?:status|code|error|HTTP)\D{1,12}404\b",
            "the model to download was not found (404): look at the repository's and file's names",
        ),
        (
            r"failed to (?:create|load|initialize) (?:MTP|draft|speculative)",
            (
                "the draft model or its context could not be made, and the log does not say why: no"
                " such layers in the file, two kinds of drafting at once, a model that does not"
                " match, or memory"
            ),
        ),
        (
            r"failed to (?:create|initialize)\S{0,3} ?(?:the )?context",
            "the context could not be made, and the log does not say why",
        ),
    )
)
_UNIT: Final = re.compile(r"code=exited, status=2\d\d/([A-Z_]{2,40})|at step ([A-Z_]{2,40}) spawn")


def meaning(text: str) -> str | None:
    """The meaning of a failure's line as a sentence without its full stop; null where it has none
    beyond its kind."""
    unit = _UNIT.search(text)
    if unit is not None:
        step = unit[1] or unit[2]
        return f"systemd {_SYSTEMD.get(step, f'failed at its step {step}, before the program ran')}"
    for pattern, words in _TABLE:
        if (found := pattern.search(text)) is not None:
            return words.format(*(printable(group or "") for group in found.groups()))
    return None
