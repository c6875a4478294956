"""Facts for a rule, from a line of a data file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from arriero.base.errors import ArrieroError
from arriero.command import Command, builtin_flags, parse_command
from arriero.command.flags import KNOWN
from arriero.command.place import Around, Mark, Place
from arriero.engine import ListedDevice, parse_devices
from arriero.engine.devices import Refusal
from arriero.gguf import Shape, read_header, write_model
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.gguf.projector import Projector, write_projector
from arriero.gguf.writer import encode, header_bytes
from arriero.gotchas import Facts
from arriero.machine import CpuFeatures, Misfit, Pool, misfit
from arriero.memory import Planner, parse_pools
from arriero.record import Plan

SHAPES = {
    "ladder-hybrid": LADDER_HYBRID,
    "dense": tiny("llama"),
    "hybrid": tiny("qwen35"),
    "mtp": tiny("qwen35", mtp=1, name="tiny-mtp"),
    "recurrent": tiny("mamba2"),
    "swa": tiny("gemma3"),
    "experts": tiny("qwen3moe"),
    "odd-heads": tiny("llama", head_dim=40, name="odd-heads"),
    "long": tiny("llama", context_train=1 << 20, name="long-trained"),
    "quantised": tiny(
        "llama", tensor_type="q4_K_M", embedding=1024, feed_forward=16384, name="quantised"
    ),
}

ARCHITECTURES = {"deepseek4"}
"""Models that no skeleton is written of: a header that names the architecture and nothing else."""

PROJECTORS = {
    # 256 tokens an image, as the gemma3 models have
    "gemma3": Projector(image_size=512, patch_size=16),
    "pixtral": Projector(kind="pixtral"),
    "narrow": Projector(projection=64),
}


NEWER = frozenset({"AVX512", "AVX512_VNNI", "AVX_VNNI", "AMX_INT8"})


def unfit(compiled: Iterable[str] | None, has: frozenset[str]) -> Misfit | None:
    """What an engine lacks on a CPU that has these features and of the newer ones no other."""
    return misfit(compiled, CpuFeatures(has, NEWER - has))


class Models:
    """Models by name, written once; zeros take no disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.write = cache(self._write)

    def __call__(self, name: str) -> Path:
        return self.write(name if name in ARCHITECTURES else SHAPES[name])

    def projector(self, name: str) -> Path:
        return self.write(PROJECTORS[name])

    def _write(self, what: Shape | Projector | str) -> Path:
        path = self.directory / f"{abs(hash(what))}.gguf"
        if isinstance(what, str):
            keys = [("general.architecture", encode(what))]
            path.write_bytes(b"".join(header_bytes(keys, ())))
            return path
        if isinstance(what, Projector):
            return write_projector(path, what, weights="zeros")
        return write_model(path, what, weights="zeros")


def facts(
    words: list[str],
    *,
    model: Path | None = None,
    mmproj: Path | None = None,
    budget: str = "host=64GiB",
    build: int | None = 10434,
    devices: str | None = None,
    env: dict[str, str] | None = None,
    workers: dict[str, bool] | None = None,
    refused: dict[str, Refusal] | None = None,
    lacking: Misfit | None = None,
    unified: str | None = None,
    around: dict[str, Any] | None = None,
) -> Facts:
    """The facts about ``llama-server`` with these words, the model's file put for MODEL.

    ``unified`` lists devices that share the host's memory, of which the budget then is free.
    """
    path = str(model) if model else "missing.gguf"
    names = {"MODEL": path, "MMPROJ": str(mmproj) if mmproj else "missing-mmproj.gguf"}
    words = [names.get(word, word) for word in words]
    command = parse_command(words, builtin_flags(build), env or {})
    header = read_header(model) if model else None
    pools = parse_pools(budget)
    if unified is not None:
        pools = (_shared(pools[0], parse_devices(unified)),)

    plans = None
    if header is not None and model is not None:
        plans = Planner(header, pools, model=model, build=build)

    def planner(changed: Command) -> Plan | None:
        if plans is None:
            return None
        try:
            return plans.quick(changed)
        except ArrieroError:
            return None

    return Facts(
        command=command,
        build=build,
        header_or_none=header,
        projector_or_none=read_header(mmproj) if mmproj else None,
        pools=pools,
        devices_or_none=parse_devices(devices) if devices is not None else None,
        workers_or_none=workers,
        refused=refused or {},
        misfit=lacking,
        planner=planner,
        around=_around(around or {}),
        own=build in KNOWN,
    )


def _shared(host: Pool, devices: tuple[ListedDevice, ...]) -> Pool:
    """One pool of the host and these devices, as large as the first of them says."""
    names = ("host", *(device.name for device in devices))
    return Pool("shared", names, devices[0].total, host.free, "memory", listed=devices)


def facts_of_case(case: dict[str, Any], models: Models) -> Facts:
    """The facts that a case of ``cases/*.yaml`` gives."""
    return facts(
        shlex.split(case["command"]),
        model=models(case["model"]) if "model" in case else None,
        mmproj=models.projector(case["mmproj"]) if "mmproj" in case else None,
        budget=case.get("budget", "host=64GiB"),
        build=case.get("build", 10434),
        devices=case.get("devices"),
        env=case.get("env"),
        workers=case.get("workers"),
        unified=case.get("unified"),
        refused={name: Refusal(**how) for name, how in case.get("refused", {}).items()},
        lacking=unfit(case.get("compiled"), frozenset(case.get("cpu", ()))),
        around=case.get("around"),
    )


def _around(given: dict[str, Any]) -> Around:
    return Around(
        place=Place(**given["place"]) if "place" in given else None,
        doubt=given.get("doubt", ""),
        marks=tuple(Mark(**mark) for mark in given.get("marks", ())),
        published=tuple(given["published"]) if "published" in given else None,
    )
