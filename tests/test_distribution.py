"""What is released: a wheel and an sdist, whole, and a wheel that runs where no source is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

import arriero

pytestmark = pytest.mark.slow  # it asks the package index
ROOT = Path(__file__).resolve().parents[1]
NEEDED = (".ci", "bench", "docs", "scripts", "src", "tests")
"""Folders without which `make test` says less from an sdist."""
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "README.md")


@dataclass(frozen=True)
class Distribution:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    """The wheel is made from the sdist, so that this one is enough to make it."""
    out = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--outdir", out, ROOT)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distribution(wheel, sdist)


def _run(*words: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=_environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "ARRIERO_"))}


def _files(folders: Iterable[str]) -> set[str]:
    """Files of this checkout, without what was made in it."""
    return {
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and not path.is_relative_to(ROOT / "docs" / "gotchas")
    }


def test_a_package_index_takes_both(distribution: Distribution) -> None:
    told = _run(
        sys.executable, "-m", "twine", "check", "--strict", distribution.wheel, distribution.sdist
    )
    assert told.count("PASSED") == 2


def test_the_wheel_has_every_file_of_the_package_and_no_other(distribution: Distribution) -> None:
    with zipfile.ZipFile(distribution.wheel) as wheel:
        names = set(wheel.namelist())
    own = {name for name in names if ".dist-info/" not in name}
    assert own == {name.removeprefix("src/") for name in _files(["src"])}
    kinds = {PurePosixPath(name).suffix for name in own}
    assert {".css", ".json", ".py", ".pyi", ".txt", ".typed"} <= kinds
    licenses = {PurePosixPath(name).name for name in names if "/licenses/" in name}
    assert licenses == {"LICENSE", "NOTICE"}


def test_the_sdist_has_what_the_tests_need(distribution: Distribution) -> None:
    with tarfile.open(distribution.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert _files(NEEDED) | {*BESIDE, "pyproject.toml"} <= names


@pytest.fixture(scope="module")
def installed(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``arriero`` command of an environment that has the wheel and what it asks for alone."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, with_pip=True)
    binaries = place / ("Scripts" if sys.platform == "win32" else "bin")
    python = binaries / "python"
    _run(python, "-m", "pip", "install", "--quiet", distribution.wheel)
    where = _run(python, "-c", "import arriero; print(arriero.__file__)", cwd=place)
    assert Path(where.strip()).is_relative_to(place)
    return binaries / "arriero"


def test_the_installed_command_works(installed: Path, tmp_path: Path) -> None:
    model, log = tmp_path / "m.gguf", tmp_path / "server.log"
    shutil.copy(ROOT / "tests" / "gguf" / "data" / "llama.gguf", model)
    shutil.copy(ROOT / "tests" / "logs" / "data" / "captured" / "port.txt", log)
    assert _run(installed, "--version").split() == ["arriero", arriero.__version__]
    own = ("--budget", "host=64GiB", "--assume-build", "10434", "--json")
    command = ("--", "llama-server", "-m", model, "-c", "4096")
    plan = json.loads(_run(installed, "plan", *own, *command, cwd=tmp_path))
    assert [b for b in plan["buffers"] if b["component"] == "kv" and b["bytes"]]
    check = json.loads(_run(installed, "check", *own, *command, cwd=tmp_path))
    assert check["findings"]
    gotchas = json.loads(_run(installed, "gotchas", "list", "--json"))["gotchas"]
    assert len(gotchas) > 50
    assert any(gotcha["status"] == "reproduced" for gotcha in gotchas), "verdicts are shipped"
    assert json.loads(_run(installed, "schema", "plan"))["$defs"]
    done = subprocess.run(
        [installed, "explain", "--json", log],
        env=_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout)["failure"]["kind"] == "environment"


def test_the_dry_run_starts_from_the_installed_package(installed: Path, tmp_path: Path) -> None:
    code = (
        "import subprocess\n"
        "from arriero.engine.oracle import child_command\n"
        "request = {'library': 'no-such.so', 'requests': [{}]}\n"
        "subprocess.run(child_command(request), check=True)\n"
    )
    told = json.loads(_run(installed.with_name("python"), "-c", code, cwd=tmp_path))
    assert told["reason"].startswith("the engine's library cannot be loaded")
