"""What rooms may import, on every system."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

import arriero

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(arriero.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def test_imports_keep_to_the_contracts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of ``pyproject.toml``, also where an import is late or for the type checker alone."""
    monkeypatch.chdir(ROOT)
    status = lint_imports(no_cache=True, no_logo=True)
    assert status == 0, capsys.readouterr().out


def test_every_room_is_told_of_in_its_place() -> None:
    """The table in ``docs/architecture.md`` has the rooms in the order of the contracts."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Rooms")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    assert told == [room for layer in reversed(layers) for room in layer.split(" | ")]


def test_imports_without_the_modules_that_only_unix_has() -> None:
    code = (
        "import sys, importlib, psutil  # which itself needs them here\n"
        "for name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
    )
    names = [
        ".".join(("arriero", *p.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        for p in MODULES
        if p.name not in {"__main__.py", "_guard.py"}
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("stub", sorted(SOURCE.rglob("*.pyi")), ids=lambda p: p.parent.name)
def test_a_package_has_the_names_of_its_stub(stub: Path) -> None:
    room = ".".join(("arriero", *stub.parent.relative_to(SOURCE).parts))
    package = importlib.import_module(room)
    homes = {
        alias.name: node.module
        for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert dir(package) == sorted(homes)
    for name, module in homes.items():
        # a name that is also a module's would be either, by what was loaded before
        assert not stub.with_name(f"{name}.py").exists()
        assert not stub.with_name(name).exists()
        home = importlib.import_module(f"{room}.{module}")
        assert getattr(package, name) is getattr(home, name)
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018


@pytest.mark.thorough
def test_loading_everything_at_once_works_too() -> None:
    """What ``EAGER_IMPORT`` is for: no import depends on what was loaded before it."""
    rooms = [".".join(("arriero", p.parent.name)) for p in SOURCE.glob("*/__init__.pyi")]
    for room in rooms:
        subprocess.run(
            [sys.executable, "-c", f"import {room}"],
            env={**os.environ, "EAGER_IMPORT": "1"}, check=True,
        )  # fmt: skip
