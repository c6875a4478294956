"""The child is a program of its own, wherever its folder is."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from arriero.engine import oracle_child
from arriero.engine.oracle import child_command

FOLDER = Path(oracle_child.__file__).parent


def test_the_child_needs_its_folder_and_python_alone(tmp_path: Path) -> None:
    """Also under another name, which its modules do not know."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    before = sorted(copy.iterdir())
    library = str(tmp_path / "libllama.so")
    argv = child_command({"library": library, "requests": [{}]})
    assert argv.count(str(FOLDER)) == 1
    done = subprocess.run(
        [str(copy) if word == str(FOLDER) else word for word in argv],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["index"] == 0
    assert answer["reason"].startswith("the engine's library cannot be loaded")
    assert sorted(copy.iterdir()) == before, "it writes nothing"
