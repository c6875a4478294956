"""What rooms may import, on every system."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
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
        if p.name not in {"__main__.py", "_guard.py", "_oracle_child.py"}
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if p.name == "__init__.py" and "late(" in p.read_text(encoding="utf-8")],
    ids=lambda p: p.parent.name,
)
def test_late_names_are_those_that_the_type_checker_is_told(path: Path) -> None:
    told = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for node in ast.walk(node)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    package = importlib.import_module(f"arriero.{path.parent.name}")
    for module, name in told:
        if module.endswith(".plain") and sys.platform != "win32":
            continue
        assert getattr(package, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018
