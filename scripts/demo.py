"""The main job on an embedded default: a hybrid model whose 64 slots do not fit.

Builds the model (once, in .demo/), then diagnoses it under a limit of 3.5 GiB of address space. Run
by `make demo`; needs nothing but the installed package and its engine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent / ".demo"
MODEL = HERE / "hybrid.gguf"
ARRIERO = [sys.executable, "-m", "arriero"]


def main() -> int:
    HERE.mkdir(exist_ok=True)
    if not MODEL.exists():
        subprocess.run(
            [*ARRIERO, "skeleton", "--preset", "ladder-hybrid", "-o", str(MODEL)], check=True
        )
    command = ["llama-server", "-m", str(MODEL), "-c", "4096", "-np", "64", "--no-warmup"]
    line = [*ARRIERO, "diagnose", "--limit", "3.5GiB", "--out", str(HERE), "--", *command]
    print("$ arriero", *line[3:], flush=True)
    status = subprocess.run(line, check=False).returncode
    # 1 says that a failure was found and named, which is what this command is expected to show.
    return 0 if status == 1 else max(1, status)


if __name__ == "__main__":
    sys.exit(main())
