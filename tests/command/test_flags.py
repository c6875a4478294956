from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.command import FlagTable, builtin_flags, decode_flags, encode_flags, parse_help
from arriero.engine.installation import describe

OLD_HELP = """\
----- common params -----

-h,    --help, --usage                  print this and leave
-fa,   --flash-attn                     faster attention (default: disabled)
                                        (env: LLAMA_ARG_FLASH_ATTN)
--no-mmap                               read instead of mapping
                                        (env: LLAMA_ARG_NO_MMAP)
-nkvo, --no-kv-offload                  caches stay on the host
                                        (env: LLAMA_ARG_NO_KV_OFFLOAD)
--lora-scaled FNAME SCALE               an adapter and its weight
-lv,   --verbosity, --log-verbosity N   how much to say
"""


def run(binary: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [binary, *arguments],
        env={"LD_LIBRARY_PATH": str(binary.parent), "PATH": os.environ["PATH"], **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_old_help_has_switches_of_their_own() -> None:
    table = parse_help(OLD_HELP)
    flash, mmap, lora = table.get("-fa"), table.get("--no-mmap"), table.get("--lora-scaled")
    assert flash is not None
    assert flash.arity == 0
    assert mmap is not None
    assert (mmap.names, mmap.negatives) == (("--no-mmap",), ())
    assert mmap.env == "LLAMA_ARG_NO_MMAP"
    assert mmap.env_off is None
    assert lora is not None
    assert lora.arity == 2
    assert table.verbosity == ()


def test_builtin_table() -> None:
    table = builtin_flags()
    assert table.get("--n_gpu_layers") is table.get("-ngl")
    assert not table.knows("--frobnicate")
    assert not table.knows("--draft-max"), "removed flags make the engine refuse"
    assert table.verbosity[4] == "trace"
    arities = {"-np": 1, "--control-vector-layer-range": 2, "--metrics": 0, "-ot": 1, "--host": 1}
    for name, arity in arities.items():
        flag = table.get(name)
        assert flag is not None
        assert flag.arity == arity, name
    kvo, fa, cram = table.get("-nkvo"), table.get("-fa"), table.get("-cram")
    assert kvo is not None
    assert kvo.negatives == ("-nkvo", "--no-kv-offload")
    assert kvo.env_off == "LLAMA_ARG_NO_KV_OFFLOAD"
    assert fa is not None
    assert fa.choices == ("on", "off", "auto")
    assert cram is not None
    assert cram.default == "8192"


def test_json_is_the_same_table() -> None:
    assert decode_flags(encode_flags(builtin_flags())) == builtin_flags()
    with pytest.raises(msgspec.DecodeError):
        decode_flags(b'{"flags": 3}')


@given(st.text(max_size=400))
def test_any_text_gives_a_table(text: str) -> None:
    assert isinstance(parse_help(text), FlagTable)


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10092, 10434])
def test_help_agrees_with_the_completion_of_the_engine(
    build: int, engine_path: Callable[[int], Path]
) -> None:
    """The engine's own completion script lists every positive name and no negative one."""
    binary = engine_path(build)
    table = parse_help(run(binary, "--help"))
    completion = re.search(r'opts="([^"]*)"', run(binary, "--completion-bash"))
    assert completion
    assert {name for flag in table.flags for name in flag.names} == set(completion[1].split())
    if build == 10434:
        assert table == builtin_flags()


@pytest.mark.engine
def test_arity_is_what_the_engine_consumes(engine_path: Callable[[int], Path]) -> None:
    """With one word less than its arity a flag is refused for want of it, with none to spare."""
    binary = engine_path(10434)
    for flag in parse_help(run(binary, "--help")).flags[::6]:
        if flag.canonical in ("--version", "--cache-list", "--list-devices"):
            continue
        if flag.arity == 0:
            said = run(binary, flag.names[0], "--arriero")
            assert "invalid argument: --arriero" in said, flag.names
        else:
            said = run(binary, flag.names[0], *["1"] * (flag.arity - 1))
            assert "expected value for argument" in said, flag.names


@pytest.mark.engine
@pytest.mark.parametrize("build", [10068, 10092, 10434])
def test_shipped_flags_are_those_of_the_build(
    build: int, engine_path: Callable[[int], Path]
) -> None:
    path = engine_path(build)
    engine = describe(path, "test", {**os.environ, "LD_LIBRARY_PATH": str(path.parent)})
    assert builtin_flags(build) == engine.flags


def test_builds_between_get_the_flags_of_the_older_one() -> None:
    assert builtin_flags(10300) == builtin_flags(10092) == builtin_flags(4000)
    assert builtin_flags(11434) == builtin_flags() != builtin_flags(10433)
