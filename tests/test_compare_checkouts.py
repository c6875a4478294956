"""The script that compares two checkouts: it finds what was planted, and calls it what it is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "compare_checkouts.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("compare_checkouts", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PLAN = {
    "id": "plan-0123abcd",
    "buffers": [{"component": "kv", "bytes": 4096, "reason": "2 slots of 64 cells"}],
    "notes": [{"id": "engine", "text": "no engine"}],
    "pools": [{"name": "CUDA0"}, {"name": "host"}],
}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (lambda plan: None, []),
        (lambda plan: plan.update(id="plan-7777ffff"), []),
        (lambda plan: plan["buffers"][0].update(bytes=4097), ["value buffers.[].bytes"]),
        (lambda plan: plan["buffers"][0].update(bytes=None), ["value buffers.[].bytes"]),
        (lambda plan: plan["buffers"][0].update(component="rs"), ["value buffers.[].component"]),
        (lambda plan: plan["pools"].reverse(), ["value pools.[]"]),
        (lambda plan: plan["pools"].pop(), ["value pools.[]"]),
        (lambda plan: plan.pop("pools"), ["value pools"]),
        (lambda plan: plan.update(fits=True), ["added fits"]),
        (
            lambda plan: plan["buffers"][0].update(reason="64 cells for each of 2 slots"),
            ["wording buffers.[].reason"],
        ),
        (
            lambda plan: plan["buffers"][0].update(reason="3 slots of 64 cells"),
            ["figures buffers.[].reason"],
        ),
        (lambda plan: plan["buffers"][0].update(reason=""), ["value buffers.[].reason"]),
        (lambda plan: plan["notes"][0].update(text="nothing to ask"), ["wording notes.[].text"]),
        (lambda plan: plan["notes"].append({"id": "fit", "text": ""}), ["value notes.[].fit"]),
    ],
)
def test_what_a_difference_is_called(script: Any, change: Any, kinds: list[str]) -> None:
    changed = json.loads(json.dumps(PLAN))
    change(changed)
    answers = [
        {"status": "0", "out": json.dumps(one, indent=2), "err": ""} for one in (PLAN, changed)
    ]
    assert [f"{d.kind} {d.field}" for d in script.compare(*answers)] == kinds


def test_the_line_of_a_log_is_a_value(script: Any) -> None:
    pair = [{"failure": {"kind": "rpc", "text": text}} for text in ("a line", "another line")]
    assert [d.kind for d in script.differences(*pair)] == ["value"]


def test_a_status_an_error_and_a_text(script: Any) -> None:
    fine = {"status": "0", "out": "FITS\n  host 1\n", "err": ""}
    other = {"status": "1", "out": "FITS\n  host 2\n", "err": "arriero: a note\n"}
    found = list(script.compare(fine, other))
    assert [(d.kind, d.field) for d in found] == [
        ("value", "exit status"),
        ("text", "what is printed"),
        ("text", "standard error"),
    ]
    assert found[1].before == "  host 1"
    error = {**fine, "out": '{"error": {"id": "x"}}'}
    assert [d.kind for d in script.compare(fine, error)] == ["value"]


def _compare(new: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(ROOT), str(new), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.thorough
def test_a_planted_difference_of_value_and_one_of_wording(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    same = _compare(tmp_path, "--match", "slots-above-batch")
    assert same.returncode == 0, same.stdout + same.stderr
    assert "value: 0 differences" in same.stdout
    sizes = tmp_path / "src" / "arriero" / "base" / "sizes.py"
    text = sizes.read_text(encoding="utf-8")
    assert "1 << 30" in text
    sizes.write_text(text.replace("1 << 30", "1 << 29"), encoding="utf-8")
    (gotcha,) = (tmp_path / "src/arriero/gotchas").rglob("slots_above_batch.py")
    text = gotcha.read_text(encoding="utf-8")
    title = text.split('"""')[1].splitlines()[0]
    gotcha.write_text(text.replace(title, "Another title.", 1), encoding="utf-8")
    found = _compare(tmp_path, "--match", "llama-1b ", "--only", "plans")
    assert found.returncode == 1, found.stdout + found.stderr
    assert "× plans: pools.[].total" in found.stdout
    found = _compare(tmp_path, "--match", "slots-above-batch")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "× checks: findings.[].title" in found.stdout
    assert "+ Another title." in found.stdout


@pytest.mark.thorough
def test_a_checkout_that_cannot_answer_is_no_difference(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    found = _compare(tmp_path, "--match", "slots-above-batch")
    assert found.returncode == 2
    assert "cannot answer" in found.stderr
