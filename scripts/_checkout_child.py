"""What ``compare_checkouts.py`` runs with the source of one checkout: make inputs, or answer them.

    python _checkout_child.py make FOLDER [EXTRA...]    the inputs, as jobs in FOLDER/jobs.json
    python _checkout_child.py answer FOLDER OUT N OF    every OF-th job from N, answered into OUT

The inputs are made once, from the tests of the base, so that both checkouts answer the same. Only
what both have is called: the ``arriero`` command itself, in this process and thousands of times.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import itertools
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

Job = dict[str, Any]
OPTIONS = (
    "",
    "-c 8192 -np 4",
    "-c 65536 -np 8 -ngl 99",
    "-c 32768 -np 2 -ngl 10 -nkvo -ub 256",
    "-c 16384 -np 3 -kvu -ub 1024 -b 2048 -ctk q8_0 -ctv q8_0 -fa on -ngl 99",
    "-c 0 -np 16 -no-kvu -cram 512 -ctxcp 4 -ngl all",
    "-c 20000 -ngl 99 -ncmoe 4 -sm row -ts 3,1 -fa off",
    "-c 40000 -np 64 -ub 2048 --no-mmap -fit off",
    "-c 8192 -ngl 20 --swa-full -cram 0 -b 64",
    "-c 131072 -np 33 -cram -1 -ctk q4_0 -fa auto -ngl 99 -sm none -mg 0",
    "-np -1 -no-kvu -c 50000 -ot exps=CPU -ngl 99 --no-op-offload",
    "-c 4096 -np 1 --embedding --pooling mean -ub 4096 -b 4096",
)
BUDGETS = (
    "CUDA0=24GiB,host=64GiB",
    "host=64GiB",
    "CUDA0=2GiB,CUDA1=4GiB,host=8GiB",
    "Vulkan0=96MiB,host=600MiB",
)
BUILDS = (10434, 10068, None, 10092, 11434, 8000)


# --- inputs --------------------------------------------------------------------------------------


def make(folder: Path, extra: Iterable[str]) -> None:
    tests = Path.cwd() / "tests"
    models = dict(_models(tests, folder))
    headers = {path.stem: path for path in sorted((tests / "gguf/data").glob("*.gguf"))}
    headers |= {path.stem: path for path in sorted((tests / "memory/data/archs").glob("*.gguf"))}
    headers |= dict(_written_headers(tests, folder))
    more = [path for given in extra for path in sorted(Path(given).resolve().rglob("*"))]
    headers |= {str(path): path for path in more if path.suffix == ".gguf"}
    jobs = [
        *_plans(models, headers),
        *_found(tests, folder),
        *_checks(tests, models, [path for path in more if path.suffix not in _LOGS | {".gguf"}]),
        *_explanations(tests, folder, [path for path in more if path.suffix in _LOGS]),
    ]
    (folder / "jobs.json").write_text(json.dumps(jobs))


def _models(tests: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Whole models, with tensors of zeros in sparse files."""
    from arriero.gguf import Shape, write_model
    from tests.gotchas.given import SHAPES

    told = json.loads((tests / "memory/data/compute.json").read_text())["shapes"]
    shapes = SHAPES | {name: Shape(**shape) for name, shape in told.items()}
    for name, shape in shapes.items():
        yield name, write_model(folder / f"{name}.gguf", shape, weights="zeros")


def _written_headers(tests: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Headers that tests hold as numbers alone."""
    data = tests / "memory/data"
    whole, seen = (json.loads((data / f"{name}.json").read_text()) for name in ("whole", "seen"))
    varied = json.loads((data / "varied.json").read_text())
    for arch, keys in whole["archs"].items():
        yield f"whole-{arch}", _header(folder, f"whole-{arch}", arch, {**whole["base"], **keys})
    for name, cases, base in (
        ("seen", seen["cases"], seen["base"]),
        ("varied", varied["cases"], {}),
    ):
        for i, case in enumerate(cases):
            keys = {"vocab_size": 64, **base, **case["keys"]}
            yield f"{name}-{i}", _header(folder, f"{name}-{i}", case["arch"], keys)


def _header(folder: Path, name: str, arch: str, keys: dict[str, Any]) -> Path:
    from arriero.gguf.writer import encode, header_bytes

    told: list[tuple[str, Any]] = [("general.architecture", encode(arch))]
    told += [(f"{arch}.{k}", encode(v)) for k, v in keys.items() if v is not None and v != []]
    path = folder / f"{name}.gguf"
    path.write_bytes(b"".join(header_bytes(told, ())))
    return path


def _plans(models: dict[str, Path], headers: dict[str, Path]) -> Iterator[Job]:
    """Each header with one command of many, each model with all; pools and builds take turns."""
    turn = itertools.count()

    def job(name: str, words: list[str], *, text: bool = False) -> Job:
        n = next(turn)
        budget, build = BUDGETS[n % len(BUDGETS)], BUILDS[n // 3 % len(BUILDS)]
        own = ["plan", "--budget", budget, *_build(build), *([] if text else ["--json"])]
        label = f"{name} {' '.join(words[1:])} [{budget}, {build}]{' as text' * text}"
        return {"kind": "plans", "name": label, "argv": [*own, *words]}

    for name, path in headers.items():
        few = name.startswith(("seen-", "varied-"))
        for _ in range(1 if few else 3):
            words = shlex.split(OPTIONS[next(turn) % len(OPTIONS)])
            yield job(name, [str(path), *words])
    for i, (name, path) in enumerate(models.items()):
        for options in OPTIONS:
            for _ in range(2):
                yield job(name, [str(path), *shlex.split(options)])
        yield job(name, [str(path), *shlex.split(OPTIONS[i % len(OPTIONS)])], text=True)
        yield job(name, ["--frontier", str(path), "-ngl", "99"])
    for target in ("llama-1b", "ladder-hybrid", "dense"):
        for draft in ("dense", "swa"):
            words = [str(models[target]), "-md", str(models[draft])]
            yield job(f"{target} -md {draft}", [*words, *shlex.split("-c 9000 -np 3 -ngl 99")])


def _build(build: int | None) -> list[str]:
    return [] if build is None else ["--assume-build", str(build)]


def _found(tests: Path, folder: Path) -> Iterator[Job]:
    """Models whose sizes people published, each with its own command, build and devices."""
    for case in json.loads((tests / "memory/data/found.json").read_text())["cases"]:
        name = f"found-{case['name']}"
        keys = {**case["keys"], "vocab_size": case["vocab"]}
        path = _header(folder, name, case["arch"], keys)
        devices = sorted({device for _, device, _ in case["logged"]} - {"CPU"})
        budget = ",".join([*(f"{d}=16GiB" for d in devices), "host=128GiB"])
        own = ["plan", "--budget", budget, "--assume-build", str(case["build"]), "--json"]
        yield {"kind": "plans", "name": name, "argv": [*own, str(path), *shlex.split(case["args"])]}


def _checks(tests: Path, models: dict[str, Path], more: list[Path]) -> Iterator[Job]:
    def job(name: str, options: Iterable[str], words: Iterable[str] = (), **rest: Any) -> Job:
        argv = ["check", *options, *(["--", *words] if words else [])]
        return {"kind": "checks", "name": name, "argv": argv, **rest}

    for path in sorted((tests / "gotchas/cases").glob("*.yaml")):
        for case in yaml.safe_load(path.read_text(encoding="utf-8")):
            model = str(models.get(case.get("model", ""), "missing.gguf"))
            words = [model if w == "MODEL" else w for w in shlex.split(case["command"])]
            own = ["--budget", case.get("budget", "host=64GiB")]
            own += [*_build(case.get("build", 10434)), "--json"]
            name = f"{path.stem}: {case['name']}"
            yield job(name, own, words, env=case.get("env", {}))
            yield {"kind": "checks", "name": f"{name} (its facts)", "case": case}
    usual = ["--budget", BUDGETS[0], "--json"]
    for case in yaml.safe_load((tests / "gotchas/healthy.yaml").read_text("utf-8")):
        words = shlex.split(case["command"].replace("\\", "/"))
        yield job(f"healthy: {case['source']}", usual, words)
    for model, options in itertools.product(models, OPTIONS):
        words = ["llama-server", "-m", str(models[model]), *shlex.split(options)]
        yield job(f"{model} {options}", ["--assume-build", "10434", *usual], words)
    folders = ("jobs/data/cases", "jobs/data/found", "command/data/inputs")
    files = [path for name in folders for path in sorted((tests / name).iterdir())]
    for file in [*files, *more]:
        if file.is_file() and file.suffix != ".toml":
            for form in ("--json", "--fix", "--budget=host=32GiB"):
                own = ["--assume-build", "10434", "--budget", BUDGETS[0], form]
                yield job(f"{file.name} {form}", [*own, str(file)])
    yield {"kind": "checks", "name": "gotchas list", "argv": ["gotchas", "list", "--json"]}
    for path in sorted((tests / "gotchas/cases").glob("*.yaml")):
        yield {"kind": "checks", "name": f"gotchas show {path.stem}",
               "argv": ["gotchas", "show", path.stem, "--json"]}  # fmt: skip
    for name in ("plan", "check", "explanation", "diagnosis", "verification", "error"):
        yield {"kind": "checks", "name": f"schema {name}", "argv": ["schema", name]}


_LOGS = {".log", ".txt"}


def _explanations(tests: Path, folder: Path, more: list[Path]) -> Iterator[Job]:
    """Every log as it is, cut off in two places, and as text."""
    logs = [path for path in sorted(tests.glob("*/data/**/*")) if path.suffix in _LOGS]
    for name in ("messages", "found", "pasted"):
        told = tomllib.loads((tests / f"logs/data/{name}.toml").read_text(encoding="utf-8"))
        for case in told["case"]:
            path = folder / f"{name}-{case['name'].replace('/', '-')}.log"
            path.write_text(case["log"], encoding="utf-8")
            logs.append(path)
    signs = yaml.safe_load((tests / "gotchas/signs.yaml").read_text(encoding="utf-8"))
    for name, cases in signs.items():
        path = folder / f"sign-{name}.log"
        path.write_text("\n".join(*cases.values()) + "\n", encoding="utf-8")
        logs.append(path)
    for path in [*logs, *more]:
        forms = [(path, ["--json"]), (path, [])]
        lines = path.read_bytes().splitlines(keepends=True)
        if path.parent != folder:
            for part in (1, 2):
                cut = folder / f"{path.stem}-cut{part}.log"
                cut.write_bytes(b"".join(lines[: len(lines) * part // 3]))
                forms.append((cut, ["--json"]))
        for file, form in forms:
            name = f"{file.name}{'' if form else ' as text'}"
            yield {"kind": "explanations", "name": name, "argv": ["explain", *form, str(file)]}


# --- answers -------------------------------------------------------------------------------------


def answer(folder: Path, out: Path, number: int, of: int) -> None:
    jobs = json.loads((folder / "jobs.json").read_text())
    home = folder / f"{out.stem}.home"
    home.mkdir()
    os.environ["ARRIERO_HOME"] = str(home)
    os.chdir(folder)
    _hide_engine()
    _spare()
    answers = {}
    for i in range(number, len(jobs), of):
        job = jobs[i]
        found = _of_facts(job["case"], home) if "case" in job else _of_command(job)
        answers[i] = {k: v.replace(str(home), "HOME") for k, v in found.items()}
    out.write_text(json.dumps(answers))


def _hide_engine() -> None:
    """No engine is found: what one answers differs by machine."""
    real = importlib.metadata.distribution

    def distribution(name: str) -> importlib.metadata.Distribution:
        if "llama-server" in name:
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    importlib.metadata.distribution = distribution
    os.environ["PATH"] = "/nonexistent"
    os.environ.pop("ARRIERO_ENGINE", None)


def _spare() -> None:
    """Leave out what no answer depends on and each command pays for: its guard, its history."""

    @contextlib.contextmanager
    def nowhere(*_: object) -> Iterator[Path]:
        yield Path("/nonexistent")

    quick: dict[str, Callable[..., Any]] = {
        "scratch_directory": nowhere, "sweep": lambda *_a, **_k: None,
    }  # fmt: skip
    for name in ("arriero.jobs.plan", "arriero.jobs.check"):
        module = importlib.import_module(name)
        for attribute in quick.keys() & vars(module).keys():
            setattr(module, attribute, quick[attribute])
    from arriero.store import Store

    Store.save = lambda *_a, **_k: None  # type: ignore[assignment]


def _of_command(job: Job) -> dict[str, str]:
    from arriero.__main__ import main

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = (sys.stdout, sys.stderr, sys.argv, dict(os.environ))
    sys.stdout, sys.stderr, sys.argv = out, err, ["arriero", *job["argv"]]
    os.environ.update(job.get("env", {}))
    try:
        main()
        status: object = 0
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.stdout, sys.stderr, sys.argv = before[:3]
        os.environ.clear()
        os.environ.update(before[3])
    texts = [f.buffer.getvalue().decode("utf-8", "replace") for f in (out, err) if not f.flush()]
    return {"status": str(status), "out": texts[0], "err": texts[1]}


def _of_facts(case: dict[str, Any], home: Path) -> dict[str, str]:
    """A case that names devices, workers or a CPU, which no command line can."""
    from arriero.gotchas import match, registry
    from arriero.record import encode
    from tests.gotchas.given import Models, facts_of_case

    global _models_of_cases
    _models_of_cases = _models_of_cases or Models(home)
    found = match(facts_of_case(case, _models_of_cases), registry())
    documents = [json.loads(encode(one)) for one in (*found.findings, *found.unchecked)]
    return {"status": "0", "out": _MODEL.sub("MODEL", json.dumps(documents)), "err": ""}


_models_of_cases: Any = None
_MODEL = re.compile(r"\d+\.gguf")


if __name__ == "__main__":
    import arriero

    if not Path(arriero.__file__).is_relative_to(Path.cwd() / "src"):
        sys.exit(f"{Path.cwd()} has no arriero of its own in src")
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), sys.argv[3:])
    else:
        answer(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
