"""``arriero plan`` as Python calls it: models anywhere, engines that answer, die or are absent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from arriero.base.errors import NotFoundError, UsageError
from arriero.base.sizes import GIB, MIB
from arriero.base.words import Component, Method
from arriero.engine import find
from arriero.gguf import read_header, skeleton, write_model
from arriero.gguf.presets import LADDER_HYBRID, tiny
from arriero.jobs import plan as job
from arriero.machine import Pool
from arriero.memory import parse_pools
from arriero.memory.plan import budget
from arriero.process import temporary_directory
from arriero.record import Plan
from arriero.store import Store
from tests.gguf.site import Site, site

ROOMY = parse_pools("host=900GiB")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("m") / "tiny.gguf", tiny("qwen35"))


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    yield
    assert temporary_directory() == scratch
    assert list(scratch.iterdir()) == []


def sizes(plan: Plan) -> list[tuple[Component, str, int | None, Method]]:
    """Every line; graph metadata is measured in whole pages of whatever the child holds."""
    return [
        (b.component, b.device, round((b.bytes or 0) / MIB), b.method)
        if b.component is Component.GRAPH
        else (b.component, b.device, b.bytes, b.method)
        for b in plan.buffers
    ]


def of(words: str, store: Store, *, environ: dict[str, str] | None = None, **more: object) -> Plan:
    options = replace(job.PlanOptions(bare=True, budget=ROOMY), **more)  # type: ignore[arg-type]  # by name
    return job.plan(words.split(), options, store=store, environ=environ)


# --- the model ----------------------------------------------------------------------------------


def test_the_model_may_stand_anywhere(model: Path, store: Store) -> None:
    whole = job.plan(
        ["llama-server", "-m", str(model), "-c", "4096", "-np", "2"],
        job.PlanOptions(budget=ROOMY, assume_build=10434),
        store=store,
    )
    for words in (f"{model} -c 4096 -np 2", f"-c 4096 {model} -np 2", f"-c 4096 -np 2 {model}"):
        found = of(words, store, assume_build=10434)
        assert sizes(found) == sizes(whole)
        assert found.argv == ("llama-server", "-m", str(model), "-c", "4096", "-np", "2")
        assert found.model.path == str(model)


@pytest.mark.engine
def test_a_flag_that_only_the_engine_knows_does_not_swallow_the_model(
    model: Path, store: Store, tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    engine = _with_help(tmp_path / "bin", engine_path(10434), "--of-tomorrow   a new switch")
    found = of(f"--of-tomorrow {model}", store, engine=str(engine))
    assert found.argv == ("llama-server", "-m", str(model), "--of-tomorrow")
    with pytest.raises(UsageError, match="no option --of-tomorrow"):
        of(f"--of-tomorrow {model}", store, assume_build=10434)


def test_any_part_of_a_set_is_the_set(tmp_path: Path, store: Store, model: Path) -> None:
    header = read_header(model)
    half = len(header.tensors) // 2
    tensors = tuple(replace(t, part=int(i >= half)) for i, t in enumerate(header.tensors))
    parts = (header.parts[0], replace(header.parts[0], name="other"))
    paths = skeleton.write_header(
        skeleton.neutral(replace(header, tensors=tensors, parts=parts)).header,
        tmp_path / "set.gguf",
    )
    assert len(paths) == 2
    found = [of(f"{path} -c 4096", store, assume_build=10434) for path in paths]
    assert sizes(found[0]) == sizes(found[1])
    assert found[1].argv[2] == str(paths[0])
    assert found[0].model.file_bytes == sum(path.stat().st_size for path in paths)


@pytest.mark.engine
def test_a_remote_model_is_planned_as_if_it_were_here(
    model: Path, store: Store, engine_path: Callable[[int], Path]
) -> None:
    engine = str(engine_path(10434))
    here = of(f"{model} -c 4096 -np 3", store, engine=engine)
    with site() as server:
        server.files["/tiny.gguf"] = model.read_bytes()
        url = server.url("/tiny.gguf")
        there = of(f"{url} -c 4096 -np 3", store, engine=engine)
        by_flag = of(f"-mu {url} -c 4096 -np 3", store, engine=engine)
    assert sizes(there) == sizes(here) == sizes(by_flag)
    assert Method.MEASURED in {b.method for b in there.buffers}
    assert there.argv[:3] == ("llama-server", "-mu", url)
    assert there.model.path == url
    assert there.header is not None
    assert there.header.requests == len(server.asked) // 2
    assert here.header is None


def test_a_repository_is_read_as_the_server_chooses(model: Path, store: Store) -> None:
    commit = "0" * 40
    with site() as server:
        _repository(server, "ana/tiny-GGUF", commit, "tiny-Q8_0.gguf", model.read_bytes())
        environ = {**os.environ, "HF_ENDPOINT": server.url(""), "HF_TOKEN": "hf_" + "x" * 20}
        named = of("hf://ana/tiny-GGUF:Q8_0 -c 4096", store, assume_build=10434, environ=environ)
        by_flag = of("-hf ana/tiny-GGUF:Q8_0 -c 4096", store, assume_build=10434, environ=environ)
        file = of(
            "hf://ana/tiny-GGUF/tiny-Q8_0.gguf -c 4096", store, assume_build=10434, environ=environ
        )
    assert sizes(named) == sizes(by_flag) == sizes(file)
    assert named.argv[:3] == by_flag.argv[:3] == ("llama-server", "-hf", "ana/tiny-GGUF:Q8_0")
    assert file.argv[1:5] == ("-hf", "ana/tiny-GGUF", "-hff", "tiny-Q8_0.gguf")


def _repository(server: Site, repo: str, commit: str, name: str, data: bytes) -> None:
    import json

    def says(value: object) -> Callable[..., None]:
        return lambda handler: handler.answer(200, json.dumps(value).encode())

    server.odd[f"/api/models/{repo}/refs"] = says(
        {"branches": [{"name": "main", "targetCommit": commit}]}
    )
    tree = [{"type": "file", "path": name, "size": len(data), "oid": "0"}]
    server.odd[f"/api/models/{repo}/tree/{commit}"] = says(tree)
    for revision in (commit, "main"):
        server.files[f"/{repo}/resolve/{revision}/{name}"] = data


def test_models_beside_it_are_read_too(model: Path, store: Store, tmp_path: Path) -> None:
    draft = write_model(tmp_path / "draft.gguf", tiny("llama"))
    with_draft = of(f"{model} -c 4096 -md {draft}", store, assume_build=10434)
    assert any(b.component is Component.DRAFT and b.bytes for b in with_draft.buffers), (
        with_draft.buffers
    )
    with pytest.raises(NotFoundError, match="none"):
        of(f"{model} -md none.gguf", store, assume_build=10434)


# --- the engine ---------------------------------------------------------------------------------


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(find, "_in_wheel", lambda: None)
    gone = {name: value for name, value in os.environ.items() if name != "ARRIERO_ENGINE"}
    return {**gone, "PATH": ""}


def test_without_an_engine_compute_is_a_bound(
    model: Path, store: Store, no_engine: dict[str, str]
) -> None:
    found = of(f"{model} -c 4096", store, environ=no_engine)
    assert [(note.id, "No engine was found" in note.text) for note in found.notes] == [
        ("engine", True)
    ]
    compute = [b for b in found.buffers if b.component is Component.COMPUTE]
    assert {(b.method, b.upper_bound) for b in compute} == {(Method.ESTIMATED, True)}
    assert found.engine is None
    assert found.fits is True


def test_an_engine_that_was_named_must_be_there(
    model: Path, store: Store, no_engine: dict[str, str]
) -> None:
    for words, options in (
        ([str(model)], job.PlanOptions(bare=True, engine="/no/llama-server")),
        (["/no/llama-server", "-m", str(model)], job.PlanOptions()),
    ):
        with pytest.raises(NotFoundError, match="/no/llama-server"):
            job.plan(words, options, store=store, environ=no_engine)
    with pytest.raises(NotFoundError, match="ARRIERO_ENGINE"):
        of(str(model), store, environ={**no_engine, "ARRIERO_ENGINE": "/no/llama-server"})


@pytest.mark.engine
def test_an_engine_that_dies_in_the_dry_run_leaves_the_formulas(
    model: Path, store: Store, engine_path: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # build 10434 aborts where there are more slots than rows of a batch; a rule knows that
    monkeypatch.setattr(budget, "refusal", lambda *_: None)
    words = f"{model} -c 4096 -np 64 -b 32 -ub 32"
    found = of(words, store, engine=str(engine_path(10434)))
    rules = of(words, store, assume_build=10434)
    assert "SIGABRT" in next(note.text for note in found.notes if note.id == "dry_run")
    assert sizes(found) == sizes(rules)


@pytest.mark.engine
def test_an_engine_without_its_library_is_planned_for_by_its_build(
    model: Path, store: Store, tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    engine = _with_help(tmp_path / "b10092" / "bin", engine_path(10434), "")
    found = of(f"{model} -c 4096", store, engine=str(engine))
    assert "the engine is static" in next(n.text for n in found.notes if n.id == "dry_run")
    assert found.engine is not None
    assert found.engine.path == str(engine)


@pytest.mark.engine
def test_a_budget_of_cards_that_the_engine_lacks(
    model: Path, store: Store, engine_path: Callable[[int], Path]
) -> None:
    engine = str(engine_path(10434))
    budget = parse_pools("CUDA0=24GiB,host=64GiB")
    found = of(f"{model} -c 4096", store, engine=engine, budget=budget)
    assert [note.text for note in found.notes if note.id == "engine"] == [
        "This engine has no CUDA0: sizes come from formulas, compute is a bound."
    ]
    assert {b.device for b in found.buffers if b.component is Component.KV} == {"CUDA0"}
    assert (found.build, found.fits) == (10434, None)
    on_host = of(f"{model} -c 4096 -dev none", store, engine=engine, budget=budget)
    compute = [b for b in on_host.buffers if b.component is Component.COMPUTE]
    assert [b.method for b in compute] == [Method.MEASURED]


def _with_help(directory: Path, engine: Path, flag: str) -> Path:
    """The engine behind a script that lists one flag more; no library lies beside it."""
    directory.mkdir(parents=True)
    script = directory / "llama-server"
    script.write_text(
        "#!/bin/sh\n"
        f"[ \"$1\" = --help ] && echo '{flag}'\n"
        f"export LD_LIBRARY_PATH='{engine.parent}'\n"
        f"exec '{engine}' \"$@\"\n"
    )
    script.chmod(0o755)
    return script


# --- what becomes of it -------------------------------------------------------------------------


def test_it_is_kept_and_the_advice_is_true(model: Path, store: Store) -> None:
    tight = (Pool("host", ("host",), GIB, GIB, "a test"),)
    found = of(f"{model} -c 4096 --api-key planted-key-1", store, budget=tight, assume_build=10434)
    assert (found.fits, found.starts, found.outgrows) == (None, True, True)
    best = next(one for one in found.advice if one.recommended)
    again = job.plan(
        list(best.argv), job.PlanOptions(budget=tight, assume_build=10434), store=store
    )
    assert again.fits is True
    kept = store.get(found.id)
    assert kept == found
    assert "planted-key-1" not in str(kept)
    assert "starts, can outgrow" in store.list()[-1].summary


def test_a_full_disk_costs_no_answer(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    found = of(f"{model} -c 4096", Store(file), assume_build=10434)
    assert found.fits is True
    assert found.notes[-1].id == "record"


def test_interrupted_while_looking_for_changes_the_plan_is_there(
    model: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "frontier", interrupted)
    found = of(f"{model} -c 4096", store, assume_build=10434, frontier=True)
    assert (found.complete, found.fits, found.frontier) == (False, True, ())


# --- memory -------------------------------------------------------------------------------------


def peak_of_tree(argv: list[str], environ: dict[str, str]) -> tuple[int, int]:
    """The most that a process and all its children held together, and the exit status."""
    peak = 0
    with subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL) as process:
        root = psutil.Process(process.pid)
        while process.poll() is None:
            held = 0
            try:
                for one in (root, *root.children(recursive=True)):
                    held += one.memory_info().rss
            except psutil.Error:
                pass
            peak = max(peak, held)
            time.sleep(0.005)
    return peak, process.returncode


@pytest.mark.engine
def test_sixty_four_slots_are_planned_in_little_memory(
    tmp_path: Path, engine_path: Callable[[int], Path]
) -> None:
    hybrid = write_model(tmp_path / "hybrid.gguf", LADDER_HYBRID, weights="zeros")
    environ = {**os.environ, "ARRIERO_HOME": str(tmp_path / "home")}
    argv = [sys.executable, "-m", "arriero", "plan", str(hybrid), "-c", "4096", "-np", "64"]
    peak, status = peak_of_tree(
        [*argv, "--engine", str(engine_path(10434)), "--budget", "host=900GiB"], environ
    )
    assert status == 0
    assert 20 * MIB < peak < 300 * MIB
    shutil.rmtree(tmp_path / "home")
