"""Compare what two checkouts of Arriero answer: plans, checks and explanations.

    python scripts/compare_checkouts.py BASE NEW [EXTRA...] [--only KIND] [--match TEXT] [-j N]

Thousands of commands are made from the tests of BASE: every header, log, case and file there, the
headers with many options, pools and builds. EXTRA are folders with more headers (.gguf), logs
(.log, .txt) and files with commands. Each checkout answers the same ones by its own ``arriero``,
and the documents are compared field by field. Five kinds of difference:

    value    a value, a type, an order, a field that is gone, an exit status; also of an error
    figures  a sentence that has other numbers in it
    wording  a sentence with the same numbers in it
    text     what is printed without --json
    added    a field that only NEW has

The exit status is 1 if there is a difference of value, 0 if not, 2 where a checkout cannot answer.
The python that runs this must have what both checkouts need.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("_checkout_child.py")
KINDS = ("value", "figures", "wording", "text", "added")
PROSE = {
    "because", "detail", "hint", "lacks", "message", "missing", "note", "notes", "problem",
    "reason", "spelled_otherwise", "summary", "title", "what", "why", "why_invalid", "why_not",
    "workaround", "description", "Symptom", "Root cause", "Workaround", "Better fix",
}  # fmt: skip
"""Fields that are sentences for people."""
LOG_LINES = {"failure", "secondary", "notices"}
"""What holds ``text`` that was copied from a log, so that it is a value."""
_PASSING = re.compile(r"\b(plan|check|explanation)-[0-9a-f]{6,}\b")
"""Ids that are new each time."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Difference:
    kind: str
    field: str
    """Where it is, without the numbers of list items."""
    before: str
    after: str


def differences(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """What differs between two JSON values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in (*before, *(key for key in after if key not in before)):
            here = (*path, key)
            if key not in after:
                yield _difference("value", here, before[key], "(gone)")
            elif key not in before:
                yield _difference("added", here, "", after[key])
            else:
                yield from differences(before[key], after[key], here)
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after) and (named := _named(before, after)):
            yield from differences(*named, (*path, "[]"))
        elif len(before) != len(after) or (before != after and _sorted(before) == _sorted(after)):
            yield _difference("value", (*path, "[]"), before, after)
        else:
            for one, other in zip(before, after, strict=True):
                yield from differences(one, other, (*path, "[]"))
    elif type(before) is not type(after) or before != after:
        yield _difference(_kind_of(before, after, path), path, before, after)


def _named(*lists: list[Any]) -> list[dict[str, Any]]:
    """Both lists by the ids of their items; empty where these have none, or the same twice."""
    named = [{one["id"]: one for one in items if isinstance(one, dict) and "id" in one}
             for items in lists]  # fmt: skip
    whole = [len(one) for one in named] == [len(items) for items in lists]
    # One that is new is no new field: a program that counts them gets another number.
    every = {key: "(none)" for one in named for key in one}
    return [{key: one.get(key, every[key]) for key in every} for one in named] if whole else []


def _sorted(items: list[Any]) -> list[str]:
    return sorted(json.dumps(item, sort_keys=True) for item in items)


def _kind_of(before: Any, after: Any, path: tuple[str, ...]) -> str:
    names = [name for name in path if name != "[]"]
    prose = names and (
        names[-1] in PROSE or (names[-1] == "text" and not LOG_LINES & {*names[:-1]})
    )
    if not (prose and isinstance(before, str) and isinstance(after, str) and before and after):
        return "value"
    same = sorted(_NUMBER.findall(before)) == sorted(_NUMBER.findall(after))
    return "wording" if same else "figures"


def _difference(kind: str, path: tuple[str, ...], before: Any, after: Any) -> Difference:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in (before, after)]
    return Difference(kind, ".".join(path) or "(all)", *texts)


def compare(before: dict[str, str], after: dict[str, str]) -> Iterator[Difference]:
    """What differs between two answers to one command."""
    if before["status"] != after["status"]:
        yield Difference("value", "exit status", before["status"], after["status"])
    told = [_PASSING.sub(r"\1-ID", one["out"]) for one in (before, after)]
    documents = [_parsed(one) for one in told]
    if None not in documents:
        yield from differences(*documents)
    elif told[0] != told[1]:
        kind = "text" if documents == [None, None] else "value"
        yield Difference(kind, "what is printed", *_apart(*told))
    if before["err"] != after["err"]:
        yield Difference("text", "standard error", *_apart(before["err"], after["err"]))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text[:1] in ("{", "[") else None
    except ValueError:
        return None


def _apart(before: str, after: str) -> tuple[str, str]:
    """Two texts from the line in which they part."""
    lines, others = before.splitlines(), after.splitlines()
    at = next((i for i, pair in enumerate(zip(lines, others, strict=False)) if len({*pair}) > 1),
              min(len(lines), len(others)))  # fmt: skip
    return "\n".join(lines[at : at + 4]), "\n".join(others[at : at + 4])


# --- asking the checkouts ------------------------------------------------------------------------


def _start(checkout: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}",
           "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-P", str(CHILD), *words],
        cwd=checkout, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _end(child: subprocess.Popen[str], checkout: Path) -> None:
    said, _ = child.communicate()
    if child.returncode:
        print(f"{checkout} cannot answer:\n{said[-3000:]}", file=sys.stderr)
        raise SystemExit(2)


def answers(checkouts: tuple[Path, Path], folder: Path, shards: int) -> list[dict[str, Any]]:
    """Index of a job → answer, of each checkout."""
    running = [
        (which, checkout, folder / f"{which}-{n}.json", n)
        for n in range(shards)
        for which, checkout in enumerate(checkouts)
    ]
    children = [
        _start(checkout, "answer", str(folder), str(out), str(n), str(shards))
        for _, checkout, out, n in running
    ]
    found: list[dict[str, Any]] = [{}, {}]
    try:
        for child, (which, checkout, out, _) in zip(children, running, strict=True):
            _end(child, checkout)
            found[which] |= json.loads(out.read_text())
    finally:
        for child in children:
            child.kill()
            child.wait()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("extra", type=Path, nargs="*", help="folders with more inputs")
    parser.add_argument("--only", choices=("plans", "checks", "explanations"))
    parser.add_argument("--match", default="", help="only commands with this in their name")
    parser.add_argument("-j", type=int, default=2, help="processes at once, both checkouts")
    parser.add_argument("--examples", type=int, default=3, help="of each field, to print")
    told = parser.parse_args()
    base, new = told.base.resolve(), told.new.resolve()
    with tempfile.TemporaryDirectory(prefix="compare-") as temporary:
        folder = Path(temporary)
        _end(_start(base, "make", str(folder), *(str(p.resolve()) for p in told.extra)), base)
        jobs = [
            job for job in json.loads((folder / "jobs.json").read_text())
            if told.only in (None, job["kind"]) and told.match in job["name"]
        ]  # fmt: skip
        (folder / "jobs.json").write_text(json.dumps(jobs))
        before, after = answers((base, new), folder, max(told.j // 2, 1))
    return _report(jobs, before, after, told.examples)


def _report(
    jobs: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any], examples: int
) -> int:
    asked = collections.Counter(job["kind"] for job in jobs)
    met: dict[tuple[str, str, str], list[tuple[str, Difference]]] = collections.defaultdict(list)
    for i, job in enumerate(jobs):
        for one in compare(before[str(i)], after[str(i)]):
            met[one.kind, job["kind"], one.field].append((job["name"], one))
    print("asked:", ", ".join(f"{n} {kind}" for kind, n in sorted(asked.items())))
    for kind in KINDS:
        of_kind = {key: found for key, found in met.items() if key[0] == kind}
        commands = {(key[1], name) for key, found in of_kind.items() for name, _ in found}
        print(f"{kind}: {sum(map(len, of_kind.values()))} differences in {len(commands)} commands")
        for (_, of, field), found in sorted(of_kind.items(), key=lambda item: -len(item[1])):
            print(f"  {len(found):5} × {of}: {field}")
            shown: dict[tuple[str, str], str] = {}
            for name, one in found:
                shown.setdefault((one.before, one.after), name)
            for (was, now), name in list(shown.items())[: examples if kind != "added" else 1]:
                print(f"          in {name}\n            - {was[:400]}\n            + {now[:400]}")
            if len(shown) > examples:
                print(f"          and {len(shown) - examples} more pairs that differ from these")
    return 1 if any(kind == "value" for kind, _, _ in met) else 0


if __name__ == "__main__":
    sys.exit(main())
