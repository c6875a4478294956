"""Models written once for all rules."""

from __future__ import annotations

import pytest

from tests.gotchas.given import Models


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("gotcha-models"))
