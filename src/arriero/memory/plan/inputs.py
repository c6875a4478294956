"""What a plan is made from: frozen, and the same for every component."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from arriero.command import Command
from arriero.gguf import Header, Model
from arriero.launch.launch import Launch, launch_of
from arriero.launch.params import ProjectorParams
from arriero.machine import Pool
from arriero.memory.calibration import Calibration
from arriero.memory.projector import request_of
from arriero.memory.threads import reserved_address_space


@dataclass(frozen=True, kw_only=True, eq=False)
class Basis:
    """What is the same for every command of one model on one machine."""

    header: Header
    about: Model
    pools: tuple[Pool, ...]
    build: int | None
    calibrations: tuple[Calibration, ...] = ()
    draft: Header | None = None
    mmproj: Header | None = None
    foreign: bool = False


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What of a command decides its plan: commands with the same have the same plan."""

    launch: Launch
    projector: ProjectorParams | None
    n_ctx_asked: int | None
    """``-c`` as the command gives it; null where it leaves it open."""
    reserved: int
    """Address space of threads and libraries, in bytes."""


def wanted(command: Command, model: Path, about: Model, build: int | None) -> Wanted:
    """What a command asks to be planned."""
    environ: Mapping[str, str] = command.environ
    launch = launch_of(command, model, n_ctx_train=about.n_ctx_train or 0, build=build)
    threads = command.number("--threads-http")
    return Wanted(
        launch=launch,
        projector=request_of(command, environ, build),
        n_ctx_asked=command.number("-c") or None,
        reserved=reserved_address_space(launch.params.n_seq_max, threads, environ),
    )
