"""The prompt-cache save that aborts llama-server, under ``arriero serve`` with the same command.

A Vulkan device in software (lavapipe) whose allocation block is 1 MiB has tensors that cannot be
read back, its own or those of a worker: the second request with another prompt aborts the server.
The command is served as it is, once with the gates that Arriero finds, once with ``--gates off``,
where only recovery helps.

    python bench/save_abort.py [--build 10434] [--requests 200] [--clients 8]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from tests.serve.direct import Worker, engine_of
from tests.serve.front import Front
from tests.serve.load import Seen, all_of, mixed

LAVAPIPE: Final = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
CUT: Final = {
    "GGML_VK_VISIBLE_DEVICES": "0",
    "GGML_VK_SUBALLOCATION_BLOCK_SIZE": "1048576",
    "VK_ICD_FILENAMES": LAVAPIPE,
}
CHATS: Final = ("chat", "text", "native", "messages")


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--build", type=int, default=10434)
    arguments.add_argument("--requests", type=int, default=200)
    arguments.add_argument("--clients", type=int, default=8)
    options = arguments.parse_args()
    if not Path(LAVAPIPE).is_file():
        sys.exit("no lavapipe: install mesa-vulkan-drivers")
    failed = False
    heads = ("device", "gates", "sent", "answered", "replayed", "continued", "deaths", "seconds")
    print("| " + " | ".join((*heads, "ended otherwise")) + " |")
    print("|" + "---|" * 9)
    for remote in (False, True):
        for gates in ("auto", "off"):
            failed |= run(options, gates, remote)
    sys.exit(failed)


def run(options: argparse.Namespace, gates: str, remote: bool) -> bool:
    """Whether any request was not answered."""
    engine = engine_of(options.build)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        root = Path(directory)
        model = write_model(root / "tiny.gguf", tiny("llama"))
        command: list[str | Path] = [engine, "-m", model, "-np", "1", "-c", "32768", "-ngl", "99"]
        env = CUT
        if remote:
            worker = Worker(engine, root / "worker.log", CUT)
            stack.callback(worker.kill)
            command += ["--rpc", f"127.0.0.1:{worker.port}"]
            env = {}
        else:
            command += ["-dev", "Vulkan0"]
        asks = [replace(ask, most=4) for ask in mixed(options.requests, CHATS)]  # slow device
        words = ["--gates", gates, "--restarts", "10000/600"]
        with Front(root, [*command, "--port", "0"], words, env) as front:
            begin = time.monotonic()
            saw = asyncio.run(all_of(front.url, asks, options.clients))
            took = time.monotonic() - begin
            status = front.settled()
            told = [event for event in front.events if event["event"] == "gate"]
    name = "a worker's" if remote else "local"
    return report(f"{name} | {gates}", saw, status["engine"]["restarts"], took, told)


def report(gates: str, saw: list[Seen], deaths: int, took: float, told: Sequence[object]) -> bool:
    ends = Counter(seen.outcome for seen in saw)
    replayed = sum(seen.replayed > 0 for seen in saw)
    continued = sum(bool(seen.cuts or seen.continued) for seen in saw)
    other = [seen for seen in saw if seen.outcome != "answered" or seen.wrong]
    print(
        f"| {gates} | {len(saw)} | {ends['answered']} | {replayed} | {continued} | {deaths} "
        f"| {took:.0f} | {len(other)} |"
    )
    for event in told:
        print(f"  gate: {event}", file=sys.stderr)
    for seen in other[:10]:
        print(f"  {seen.ask} {seen.outcome} {seen.status} {seen.wrong} {seen.why}", file=sys.stderr)
    return bool(other)


if __name__ == "__main__":
    main()
