"""Where scratch directories go."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from arriero.process import temporary_directory


def test_it_is_what_tempfile_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    for value in (str(chosen), str(tmp_path / "missing"), ""):
        monkeypatch.setenv("TMPDIR", value)
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert temporary_directory() == Path(tempfile.gettempdir())
    assert list(chosen.iterdir()) == []
