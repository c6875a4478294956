"""Models written once and engines asked once, for all provocations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from arriero.engine import Engine, find_engine
from arriero.process import clean_environment
from tests.provoked.provoking import Lab, Models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def engine_of(engine_path: Callable[[int], Path]) -> Callable[[int], Engine]:
    @cache
    def ask(build: int) -> Engine:
        path = str(engine_path(build))
        return find_engine(None, option=path, environ=clean_environment(), cwd=Path.cwd())

    return ask


@pytest.fixture(params=[10068, 10434])
def lab(request: pytest.FixtureRequest, engine_of: Callable[[int], Engine], tmp_path: Path) -> Lab:
    return Lab(engine_of(request.param), tmp_path)
