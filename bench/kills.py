"""Kills at random moments under mixed clients: what becomes of each request.

An engine with one slot and a real small model serves through ``arriero serve``; clients of four
APIs, streamed and whole, ask without a pause. The engine is killed in several ways, each at a
random moment; then every answer is held against the undisturbed one.

    python bench/kills.py [--build 10434] [--kills 100] [--clients 32] [--worker] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from tests.serve.direct import Worker, direct, engine_of, undisturbed
from tests.serve.front import Front
from tests.serve.load import Ask, Seen, all_of, mixed
from tests.serve.model import small_model

PATIENCE: Final = 90.0
"""Seconds after which a kill that nobody noticed is a failure."""
KINDS: Final = ("SIGKILL", "SIGSTOP", "SIGSEGV", "SIGABRT", "address space")


@dataclass
class Kills:
    """Kills one after the other while clients ask; runs in a thread of its own."""

    front: Front
    kinds: Sequence[str]
    count: int
    chance: random.Random
    worker: Worker | None = None
    done: Counter[str] = field(default_factory=Counter)
    down: dict[str, list[float]] = field(default_factory=dict)
    unnoticed: Counter[str] = field(default_factory=Counter)
    over: bool = False
    error: BaseException | None = None

    def run(self) -> None:
        """All of them."""
        try:
            order = [self.kinds[n % len(self.kinds)] for n in range(self.count)]
            self.chance.shuffle(order)
            for kind in order:
                self.once(kind)
                if sum(self.done.values()) % 10 == 0:
                    print(f"  {sum(self.done.values())} kills", file=sys.stderr, flush=True)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.over = True

    def once(self, kind: str) -> None:
        """One kill, and the wait for the next engine."""
        pid = self.front.engine_pid()
        time.sleep(self.chance.uniform(0.05, 2.5))
        begin = time.monotonic()
        with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
            self.strike(kind, pid)
        while time.monotonic() < begin + PATIENCE:
            status = self.front.status()
            assert status["state"] != "failed", status
            if status["engine"]["pid"] not in (None, pid) and status["state"] == "ready":
                self.down.setdefault(kind, []).append(time.monotonic() - begin)
                break
            time.sleep(0.02)
        else:
            self.unnoticed[kind] += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.done[kind] += 1

    def strike(self, kind: str, pid: int) -> None:
        match kind:
            case "address space":
                process = psutil.Process(pid)
                room = process.memory_info().vms + self.chance.randrange(1 << 21)
                process.rlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
            case "worker killed":
                assert self.worker is not None
                self.worker.kill()
                time.sleep(1)
                self.worker.start()
            case _:
                os.kill(pid, getattr(signal, kind))


def endless(pool: Sequence[Ask], kills: Kills) -> Iterator[Ask]:
    """The pool again and again until all kills are done."""
    number = 0
    while not kills.over:
        yield replace(pool[number % len(pool)], number=number)
        number += 1


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--build", type=int, default=10434)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--clients", type=int, default=32)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--worker", action="store_true", help="layers on a worker, killed too")
    arguments.add_argument("--apis", default="chat,text,native,messages")
    arguments.add_argument("--pool", type=int, default=48, help="different requests")
    arguments.add_argument("--keep", type=Path, help="a directory for what was seen")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        run(options, options.keep or Path(directory))


def run(options: argparse.Namespace, root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    engine = engine_of(options.build)
    pool = mixed(options.pool, options.apis.split(","), options.seed)
    worker = Worker(engine, root / "worker.log") if options.worker else None
    plain: list[str | Path] = ["-m", small_model(), "-c", "4096", "-np", "1"]
    words: list[str | Path] = [
        *plain,
        *(["--rpc", f"127.0.0.1:{worker.port}", "-ngl", "99"] if worker else []),
    ]
    try:
        print("undisturbed, alone", file=sys.stderr, flush=True)
        alone = undisturbed(engine, words, pool, root / "alone.log")
        cold = [replace(ask, extra=(*ask.extra, ("cache_prompt", False))) for ask in pool]
        fresh = undisturbed(engine, words, cold, root / "cold.log")
        bad = [seen for seen in (*alone, *fresh) if seen.outcome != "answered" or seen.wrong]
        assert not bad, bad[:3]
        command: list[str | Path] = [engine, *words, "--port", "0"]
        restarts = ["--restarts", "1000/600"]
        with Front(root, command, restarts) as front:
            kinds = (*KINDS, "worker killed") if worker else KINDS
            chance = random.Random(options.seed)
            kills = Kills(front, kinds, options.kills, chance, worker)
            thread = threading.Thread(target=kills.run)
            begin = time.monotonic()
            thread.start()
            saw = asyncio.run(all_of(front.url, endless(pool, kills), options.clients))
            thread.join()
            took = time.monotonic() - begin
            status = front.settled() if kills.error is None else front.status()
            if worker and worker.process.poll() is not None:
                worker.start()
        with direct(engine, words, root / "after.log") as (url, _):
            verdict = judge(saw, alone, fresh, url)
    finally:
        if worker:
            worker.kill()
    (root / "seen.json").write_text(json.dumps([vars(s) for s in saw], default=repr))
    report(options, kills, saw, status, verdict, took)


@dataclass
class Verdict:
    """How answers compare with the undisturbed ones."""

    same: int = 0
    other: list[Seen] = field(default_factory=list)
    continued_same: int = 0
    continued_other: list[Seen] = field(default_factory=list)
    goes_on: int = 0
    strays: list[tuple[Seen, int, str]] = field(default_factory=list)


def judge(saw: Sequence[Seen], alone: Sequence[Seen], fresh: Sequence[Seen], url: str) -> Verdict:
    """Hold every answer against both undisturbed ones (the prompt cached in part, and not)."""
    found = Verdict()
    for seen in saw:
        if seen.outcome != "answered":
            continue
        at = seen.ask.number % len(alone)
        right = {(one.text, one.finish, one.tokens) for one in (alone[at], fresh[at])}
        same = (seen.text, seen.finish, seen.tokens) in right
        if seen.cuts or seen.continued:
            found.continued_same += same
            if not same:
                found.continued_other.append(seen)
            for n, cut in enumerate(seen.cuts):
                end = [*seen.cuts, len(seen.text)][n + 1]
                expected = rest(url, seen.ask, seen.text[:cut])
                if expected.startswith(seen.text[cut:end]):
                    found.goes_on += 1
                else:
                    found.strays.append((seen, cut, expected))
        else:
            found.same += same
            if not same:
                found.other.append(seen)
    return found


def rest(url: str, ask: Ask, sent: str) -> str:
    """What the engine itself says to the prompt and what was sent."""
    prompt = ask.prompt
    if ask.kind not in ("text", "native"):
        said = {"messages": [{"role": "user", "content": ask.prompt}]}
        prompt = str(post(url, "/apply-template", said)["prompt"])
    body = {"prompt": prompt + sent, "n_predict": ask.most, "temperature": 0, "cache_prompt": False}
    return str(post(url, "/completion", body)["content"])


def post(url: str, path: str, body: object) -> Any:
    request = urllib.request.Request(  # noqa: S310
        url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return json.load(answer)


def report(
    options: argparse.Namespace,
    kills: Kills,
    saw: Sequence[Seen],
    status: dict[str, Any],
    verdict: Verdict,
    took: float,
) -> None:
    """Print the tables; the exit status is 1 if anything that was promised does not hold."""
    print(
        f"\n## Build {options.build}, {options.clients} clients, {sum(kills.done.values())} kills "
        f"in {took:.0f} s{', with a worker' if options.worker else ''}\n"
    )
    print("| kill | times | not noticed | seconds to ready again: median | most |")
    print("|" + "---|" * 5)
    for kind, times in sorted(kills.done.items()):
        down = sorted(kills.down.get(kind, [])) or [float("nan")]
        print(
            f"| {kind} | {times} | {kills.unnoticed[kind]} | {down[len(down) // 2]:.1f} "
            f"| {down[-1]:.1f} |"
        )
    ends = Counter(seen.outcome for seen in saw)
    streams = [seen for seen in saw if seen.ask.stream]
    print("\n| seen by clients | all | streams | whole |")
    print("|" + "---|" * 4)
    counted = {
        "sent": lambda s: True,
        "answered": lambda s: s.outcome == "answered",
        "replayed (header)": lambda s: s.replayed > 0,
        "continued": lambda s: bool(s.cuts or s.continued),
        "told to wait": lambda s: s.waits > 0,
        "error event": lambda s: s.outcome == "error_event",
        "refused": lambda s: s.outcome == "refused",
        "lost": lambda s: s.outcome == "lost",
        "not well-formed": lambda s: bool(s.wrong),
    }
    for name, is_it in counted.items():
        everything, streamed = sum(map(is_it, saw)), sum(map(is_it, streams))
        print(f"| {name} | {everything} | {streamed} | {everything - streamed} |")
    counts = status["requests"]
    print(f"\nArriero counts: {json.dumps(counts)}")
    never, went = (
        verdict.same + len(verdict.other),
        sum(bool(s.cuts or s.continued) for s in saw if s.outcome == "answered"),
    )
    cuts = verdict.goes_on + len(verdict.strays)
    print(f"Not continued and equal to the undisturbed answer: {verdict.same} of {never}.")
    print(f"Continued and equal to the undisturbed answer: {verdict.continued_same} of {went}.")
    print(
        f"Cuts after which it goes on as the engine answers to that: {verdict.goes_on} of {cuts}."
    )
    for seen in saw:
        if seen.outcome not in ("answered",) or seen.wrong:
            print(
                f"- {seen.ask.kind} stream={seen.ask.stream} {seen.outcome} {seen.status} "
                f"{seen.wrong} {seen.why[:200]}"
            )
    for seen in verdict.other[:10]:
        print(
            f"- differs, not continued: {seen.ask.kind} stream={seen.ask.stream} "
            f"replayed={seen.replayed} {seen.finish} {seen.tokens} {seen.text[:120]!r}"
        )
    for seen, cut, expected in verdict.strays[:10]:
        print(
            f"- goes on otherwise: {seen.ask.kind} {seen.text[:cut][-40:]!r} + "
            f"{seen.text[cut:][:60]!r}, not {expected[:60]!r}"
        )
    failed = ends["lost"] + sum(bool(seen.wrong) for seen in saw) + sum(kills.unnoticed.values())
    failed += counts["lost"] + counts["executed_twice"]
    if failed or kills.error:
        sys.exit(1)


if __name__ == "__main__":
    main()
