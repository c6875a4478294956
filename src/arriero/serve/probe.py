"""Can this engine, with these devices, save a prompt and go on? Tried before the start.

To save a slot's prompt, the engine reads its state back from the devices, and a read that fails
ends it (gotcha ``rpc-prompt-cache-abort``). Whether one fails depends on the device, its driver and
its free memory. So a copy of the model without its weights, which takes the same memory in the same
places, is asked different prompts: with the command's own settings, and if it dies, without what
saves.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from arriero.base.buffers import is_on_host
from arriero.base.errors import ArrieroError
from arriero.base.redact import Redactor
from arriero.base.words import Component, TrialOutcome
from arriero.command import Command
from arriero.engine import Engine, ListedDevice
from arriero.gguf import Header, skeleton
from arriero.launch import caches, edits
from arriero.launch.placement import workers
from arriero.memory.taken import fingerprint
from arriero.record import EngineRecord, Plan, Probe, Trial
from arriero.store import Store
from arriero.trial import Bench, Patience, TrialSpec, Workload, run_trial

_STATE: Final = frozenset({Component.KV, Component.RS})
_OTHER_MODELS: Final = ("-md", "--mmproj", "--mmproj-url", "--lora", "--lora-scaled", "-mv")
"""What belongs to the weights and does not fit a model without them."""
_ABOUT_CLIENTS: Final = (
    *("-m", "--host", "--port", "--api-key", "--api-key-file", "--api-prefix", "-a", "--path"),
    *("--ssl-key-file", "--ssl-cert-file", "--log-file", "-lv", "-to", "--metrics", "--slots"),
    *("--props", "--chat-template", "--chat-template-file", "--jinja"),
)
"""What has nothing to do with memory: a result holds whatever these are."""
_VARIABLES: Final = ("GGML_", "VK_", "CUDA_", "HIP_", "ROCR_", "MESA_", "LP_")
_WORKLOAD: Final = Workload(prompts=3, long_prompt_s=0.5, timeout_s=60.0)
_PATIENCE: Final = Patience(ready_s=300.0, stall_s=60.0, request_s=60.0, whole_s=420.0)


def at_risk(command: Command, plan: Plan) -> tuple[str, ...]:
    """The devices from which saves would read; none where nothing is saved, or on the host."""
    kept = any(b.component is Component.CHECKPOINTS and b.bytes != 0 for b in plan.buffers)
    saves = caches.prompt_cache(command) != 0 or (kept and caches.checkpoints(command) > 0)
    if not saves:
        return ()
    held = [b.device for b in plan.buffers if b.component in _STATE and not is_on_host(b.device)]
    return tuple(dict.fromkeys(held))


@dataclass(frozen=True)
class Prober:
    """Tries saves, or remembers what came of it.

    Args:
        devices: As the engine lists them here.
        record: The engine, for the record.
    """

    engine: Engine
    devices: Sequence[ListedDevice]
    record: EngineRecord
    header: Header
    store: Store
    redactor: Redactor
    scratch: Path
    cwd: Path
    device_memory: Any = dict

    def known(self, command: Command) -> Probe | None:
        """What came of an earlier probe of the same, if that still says anything.

        A worker's memory is another one each time: that a save went well there proves nothing.
        """
        try:
            found = self.store.get(self._id(command))
        except ArrieroError:
            return None
        if not isinstance(found, Probe) or found.outcome == "could not run":
            return None
        return None if found.outcome == "held" and workers(command) else found

    def probe(self, command: Command) -> Probe:
        """Try it. The result is kept if that can be done."""
        began, trials = time.monotonic(), list[Trial]()
        try:
            outcome, change, why = self._tried(command, trials)
        except (ArrieroError, OSError) as error:
            outcome, change, why = "could not run", {}, str(error)
        found = Probe(
            id=self._id(command),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            outcome=outcome,
            change=dict(change),
            why=why,
            engine=self.record,
            devices=tuple(f"{one.name}: {one.description}" for one in self.devices),
            argv=command.safe_argv(),
            launches=len(trials),
            seconds=round(time.monotonic() - began, 2),
        )
        found = self.redactor.scrub(found)
        with suppress(ArrieroError):
            self.store.save(found, self.redactor)
        return found

    def _tried(self, command: Command, trials: list[Trial]) -> tuple[Any, Mapping[str, str], str]:
        copy = self._weightless(command)
        first = self._run(copy, trials)
        if first.outcome is TrialOutcome.SERVED:
            return "held", {}, ""
        seen = _seen(first)
        if first.outcome is TrialOutcome.FAILED:
            return "could not run", {}, f"a copy without weights does not start: {seen}"
        for change in self._changes(command):
            if self._run(edits.with_settings(copy, change), trials).outcome is TrialOutcome.SERVED:
                return "broke", change, seen
        return "could not run", {}, f"a copy without weights does not serve: {seen}"

    def _changes(self, command: Command) -> list[dict[str, str]]:
        off = {flag: str(value) for flag, value in edits.caches_off(command).items()}
        first = {flag: "0" for flag in off if flag == caches.PROMPT_CACHE}
        return [change for change in (first, off) if change] if first != off else [off]

    def _run(self, command: Command, trials: list[Trial]) -> Trial:
        n = len(trials) + 1
        spec = TrialSpec(n=n, purpose="gate", command=command, change={}, workload=_WORKLOAD)
        bench = Bench(
            engine=self.engine,
            limit=None,
            scratch=self.scratch,
            cwd=self.cwd,
            redactor=self.redactor,
            device_memory=self.device_memory,
            patience=_PATIENCE,
        )
        trials.append(run_trial(spec, bench))
        return trials[-1]

    def _weightless(self, command: Command) -> Command:
        place = self.scratch / "weightless"
        place.mkdir(mode=0o700, exist_ok=True)
        copy = command.with_value("-m", str(skeleton.write_skeleton(self.header, place)))
        for flag in _OTHER_MODELS:
            if copy.has(flag):
                copy = copy.without(flag)
        return copy

    def _id(self, command: Command) -> str:
        """Of everything that the result depends on."""
        names = [(flag, command.flags.get(flag)) for flag in _ABOUT_CLIENTS]
        other = {flag.canonical for _, flag in names if flag is not None}
        settings = {k: v for k, v in command.effective().items() if k not in other}
        environ = {k: v for k, v in command.environ.items() if k.startswith(_VARIABLES)}
        path = self.engine.path.resolve()
        held = [(d.name, d.description, d.total) for d in self.devices]
        parts = [
            str(path), _modified(path), self.engine.version, held, fingerprint(self.header),
            sorted(settings.items()), sorted(environ.items()),
        ]  # fmt: skip
        return f"probe-{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]}"


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _seen(trial: Trial) -> str:
    """How a trial ended, in a few words."""
    failure = trial.failure
    if failure is not None:
        return failure.text.strip() or failure.kind.value
    return trial.why_invalid or trial.outcome.value
