"""The multimodal projector of a command (``--mmproj`` and the flags beside it)."""

from __future__ import annotations

from typing import Final

from arriero.base import limits
from arriero.command import Command
from arriero.launch.attention import flash_attn
from arriero.launch.builds import AFTER_10435
from arriero.launch.params import ProjectorParams

_VARIABLE: Final = "MTMD_BACKEND_DEVICE"


def projector_file(command: Command) -> str | None:
    """The projector's file, as typed."""
    return command.value("--mmproj")


def projector_of(command: Command, build: int | None) -> ProjectorParams | None:
    """The projector that a command loads; None without one in a local file.

    It took the first device, whatever ``-dev`` says, up to build 10435; later builds follow it.
    """
    path = projector_file(command)
    if path is None:
        return None
    use_gpu, device = command.switch("--mmproj-offload") is not False, named_device(command)
    if build is None or build >= AFTER_10435:
        device = device or (command.value("-dev") or "").partition(",")[0].strip()
        use_gpu = use_gpu and device != "none"
    return ProjectorParams(
        path=limits.expanded(path),
        use_gpu=use_gpu,
        device=device,
        flash_attn=flash_attn(command),
        image_min_tokens=command.number("--image-min-tokens") or -1,
        image_max_tokens=command.number("--image-max-tokens") or -1,
        warmup=command.switch("--warmup") is not False,
    )


def named_device(command: Command) -> str:
    """The device that is named for the projector alone; empty where there is none."""
    return command.value("--mmproj-device") or command.environ.get(_VARIABLE, "")
