"""A place to run ``arriero`` in, and a model for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from arriero.gguf.presets import tiny
from arriero.gguf.writer import write_model
from tests.cli.running import Place, make_place
from tests.conftest import engine_file


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return make_place(tmp_path / "place", engine_file(10434))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hybrid model of 1.4 MB."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_model(path, tiny("qwen35"))
    return path
