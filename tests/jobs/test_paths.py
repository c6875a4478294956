"""Whatever names a file to the Python API may be any kind of path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

import arriero
from arriero.jobs import skeleton


@dataclass(frozen=True)
class Place(os.PathLike[str]):
    """A path that is neither a text nor a Path."""

    text: Path

    def __fspath__(self) -> str:
        return str(self.text)


def test_any_kind_of_path(tmp_path: Path) -> None:
    model, copy, log, script = (
        Place(tmp_path / n) for n in ("m.gguf", "c.gguf", "log", "start.sh")
    )
    made = skeleton.write(model, arch="qwen35")
    assert made.path == str(tmp_path / "m.gguf")
    assert skeleton.write_of(model, copy).arch == made.arch
    log.text.write_text("error: failed to load model, 'm.gguf'\n")
    assert arriero.explain(log).source == str(log.text)
    script.text.write_text("llama-server -m m.gguf -fa -c 4096\n")
    options = arriero.CheckOptions(assume_build=10434)
    checked = arriero.check_file(script, options, cwd=Place(tmp_path))
    assert isinstance(checked, arriero.Check)
    assert checked.findings
    words: list[str | os.PathLike[str]] = ["llama-server", "-m", model]
    assert arriero.check(words, options).argv == ("llama-server", "-m", str(model.text))
    assumed = arriero.PlanOptions(assume_build=10434, budget=arriero.parse_pools("host=64GiB"))
    found = arriero.plan(words, assumed, store=arriero.Store(Place(tmp_path / "home")))
    assert found.model.path == str(model.text)
    missing = Place(tmp_path / "engine")
    with pytest.raises(arriero.ArrieroError, match="engine"):
        arriero.verify(words, arriero.VerifyOptions(engine=missing))
