"""The rooms of the package import only to the left, on every system."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import arriero

SOURCE = Path(arriero.__file__).parent
ROOMS = (
    ("base",),
    ("gguf", "command"),
    ("launch",),
    ("process",),
    ("engine",),
    ("machine",),
    ("rpc",),
    ("logs",),
    ("record",),
    ("store",),
    ("memory",),
    ("gotchas",),
    ("advice",),
    ("trial",),
    ("experiment",),
    ("serve",),
    ("report",),
    ("jobs",),
    ("cli",),
)
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            names = [base] if base != "arriero" else [f"arriero.{a.name}" for a in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("arriero.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_only_to_the_left(path: Path) -> None:
    own = room_of(path)
    if own in {"__init__", "__main__"}:
        return
    assert own in RANK, f"{path} is in no room of the design"
    for other in imported_rooms(path):
        assert RANK[other] < RANK[own] or other == own, f"{path} imports {other}"


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
