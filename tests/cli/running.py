"""Running the real ``arriero`` command and reading what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

ARRIERO = (sys.executable, "-m", "arriero")
Word = str | bytes | Path


@dataclass(frozen=True)
class Said:
    """How one run ended."""

    status: int
    out: str
    err: str

    def document(self, name: str) -> dict[str, Any]:
        """Standard output as one JSON document, valid by the schema of its name."""
        found: dict[str, Any] = json.loads(self.out)
        assert found["schema"] == f"arriero.{name}/1", found
        jsonschema.validate(found, schema(name))
        return found

    def only_complaint(self) -> str:
        """The one line on standard error that says what is wrong, without its hint."""
        line, *hints = self.err.splitlines()
        assert line.startswith("arriero: "), self.err
        assert len(hints) <= 1, self.err
        assert all(hint.startswith("  try: ") for hint in hints), self.err
        return line


@dataclass(frozen=True)
class Place:
    """Where commands run: a directory with an own home for records and for temporary files."""

    root: Path
    engine: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ARRIERO_", "LLAMA_", "GGML_")) and name != "COLUMNS"
        }
        # Modules are compiled once for all runs, as an installation does.
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        return {
            **kept,
            **({"ARRIERO_ENGINE": str(self.engine)} if self.engine.is_file() else {}),
            "PYTHONPYCACHEPREFIX": str(self.root.parent.parent / "bytecode"),
            "ARRIERO_HOME": str(self.home),
            "TMPDIR": str(self.scratch),
            **(more or {}),
        }

    def run(
        self,
        *words: Word,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = b"",
        timeout: float = 600.0,
        through: Sequence[str] = (),
    ) -> Said:
        """Run ``arriero`` here; whatever it did, there is no traceback and nothing left over."""
        done = subprocess.run(
            [*through, *ARRIERO, *words],
            env=self.environment(env),
            cwd=self.root,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        said = Said(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in said.err
        assert "Exception ignored" not in said.err
        assert "a mistake in arriero" not in said.out + said.err
        assert list(self.scratch.iterdir()) == []
        return said


@cache
def schema(name: str) -> Any:
    """What ``arriero schema NAME`` prints."""
    done = subprocess.run(
        [*ARRIERO, "schema", name], capture_output=True, check=True, text=True, timeout=60
    )
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def make_place(root: Path, engine: Path) -> Place:
    place = Place(root, engine)
    place.scratch.mkdir(parents=True)
    return place


def words_of(command: str | Sequence[Word]) -> list[Word]:
    return [*command.split()] if isinstance(command, str) else [*command]
