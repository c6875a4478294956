from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import UsageError
from arriero.base.paste import is_hidden
from arriero.command import (
    Command,
    Flag,
    FlagTable,
    ModelSource,
    builtin_flags,
    parse_command,
    parse_help,
    split_text,
)
from tests.command.test_flags import OLD_HELP, run

TABLE = builtin_flags()
FLAGS = [flag for flag in TABLE.flags if not flag.removed]


def parse(text: str, environ: Mapping[str, str] | None = None) -> Command:
    return parse_command(shlex.split(text), TABLE, environ or {})


VALUES = st.text("ab0 -_=,.:'\"\\$~`|&;<>(){}*#\n\r\té\u2028", min_size=1, max_size=12)


@st.composite
def flag_words(draw: st.DrawFn) -> list[str]:
    flag = draw(st.sampled_from(FLAGS))
    name = draw(st.sampled_from(flag.names + flag.negatives))
    return [name, *draw(st.lists(VALUES, min_size=flag.arity, max_size=flag.arity))]


COMMANDS = st.lists(flag_words(), max_size=6).map(
    lambda parts: ["./llama-server", *(word for part in parts for word in part)]
)


@given(COMMANDS)
def test_parsing_changes_nothing(words: list[str]) -> None:
    command = parse_command(words, TABLE, {})
    assert command.argv == tuple(words)
    if not any(is_hidden(char) for word in words for char in word):
        assert shlex.split(command.text()) == words
        assert split_text(command.text()) == tuple(words)
    assert not command.unknown


@given(COMMANDS, st.sampled_from([f for f in FLAGS if f.arity == 1]), VALUES)
def test_one_edit_changes_one_thing(words: list[str], flag: Flag, value: str) -> None:
    before = parse_command(words, TABLE, {})
    after = before.with_value(flag.names[0], value)
    for alias in flag.names:
        assert after.value(alias) == value
    others = [other for other in FLAGS if other is not flag]
    assert [after.values(o.names[0]) for o in others] == [before.values(o.names[0]) for o in others]
    assert after.count(flag.names[0]) == max(1, before.count(flag.names[0]))
    changed = [a for a, b in zip(after.words, before.words, strict=False) if a != b]
    assert len(changed) <= 1
    assert after.with_value(flag.names[0], value) == after


@given(COMMANDS, st.sampled_from([f for f in FLAGS if f.arity == 0]), st.booleans())
def test_a_switch_goes_on_and_off(words: list[str], flag: Flag, on: bool) -> None:
    before = parse_command(words, TABLE, {})
    after = before.with_value(flag.names[0], "on" if on else "off")
    assert (after.switch(flag.names[0]) is True) is on
    assert after.without(flag.names[0]).value(flag.names[0]) is None


@given(COMMANDS, st.sampled_from(FLAGS))
def test_without_leaves_the_rest(words: list[str], flag: Flag) -> None:
    before = parse_command(words, TABLE, {})
    after = before.without(flag.names[0])
    assert not after.has(flag.names[0])
    assert [item.name for item in after.items] == [
        item.name for item in before.items if item.flag is not flag
    ]


@given(st.lists(st.text(max_size=8), max_size=8))
def test_any_words_parse_or_are_refused(words: list[str]) -> None:
    try:
        command = parse_command(words, TABLE, {})
    except UsageError:
        return
    assert command.argv == tuple(words) or len(words) == 1
    assert command.safe_argv()
    command.effective()
    command.problems()


def test_last_wins_and_the_flag_wins_over_its_variable() -> None:
    command = parse(
        "env LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_UBATCH=64 llama-server -np 4 --parallel 8"
    )
    assert command.value("-np") == command.value("--parallel") == "8"
    assert command.count("-np") == 2
    assert command.value("-ub") == "64"
    assert command.value("-c") is None
    assert command.effective() == {"--parallel": "8", "--ubatch-size": "64"}
    assert command.with_value("-np", "1").text().endswith("-np 4 --parallel 1")


@pytest.mark.parametrize(
    ("environ", "value"),
    [
        ({"LLAMA_ARG_MMAP": "0"}, "off"),
        ({"LLAMA_ARG_MMAP": "enabled"}, "on"),
        ({"LLAMA_ARG_NO_MMAP": "0"}, "off"),
        ({"LLAMA_ARG_NO_MMAP": "", "LLAMA_ARG_MMAP": "1"}, "off"),
        ({}, None),
    ],
)
def test_switch_variables(environ: dict[str, str], value: str | None) -> None:
    assert parse("llama-server", environ).value("--no-mmap") == value
    assert parse("llama-server --mmap", environ).value("--mmap") == "on"


def test_a_switch_without_negative_ignores_a_false_variable() -> None:
    assert parse("llama-server", {"LLAMA_ARG_SWA_FULL": "0"}).value("--swa-full") is None
    assert parse("llama-server", {"LLAMA_ARG_SWA_FULL": "on"}).switch("--swa-full") is True


@pytest.mark.parametrize(
    ("value", "number"), [("4", 4), ("4x", 4), (" +5", 5), ("-1", -1), ("all", None), ("", None)]
)
def test_numbers_are_read_as_the_engine_reads_them(value: str, number: int | None) -> None:
    assert parse_command(["x", "-ngl", value], TABLE, {}).number("-ngl") == number
    assert parse("llama-server").number("-ngl") is None


def test_prefix_is_kept_and_understood() -> None:
    text = (
        "A=1 'B=x y' env -u GONE C=3 numactl -m 0 --interleave=all taskset -c 0-3"
        " nice -n 5 ./llama-server -m x.gguf"
    )
    command = parse(text, {"GONE": "1", "KEPT": "1"})
    assert command.program == "./llama-server"
    assert command.env == {"A": "1", "B": "x y", "C": "3"}
    assert dict(command.environ) == {"A": "1", "B": "x y", "C": "3", "KEPT": "1"}
    assert command.exec_argv[0] == "env"
    assert command.exec_environ == {"GONE": "1", "KEPT": "1", "A": "1", "B": "x y"}
    assert shlex.split(command.text()) == shlex.split(text)
    assert parse("env -i llama-server", {"LLAMA_ARG_PORT": "1"}).value("--port") is None


@pytest.mark.parametrize(
    "wrapper",
    [
        "numactl -N0 -m 0 --physcpubind=0-3 -l",
        "taskset 0x3",
        "taskset -ac 0-3",
        "nice",
        "nice -5",
        "nice -n5",
        "nice --adjustment 5",
        "ionice -c2 -n 0 -t",
        "chrt -f 50",
        "stdbuf -oL --error=0",
        "env -",
        "env -uA --unset=B -- nice --",
        "qemu-x86_64 -cpu Haswell",
        "nice /usr/bin/qemu-x86_64-static --cpu max -seed 1 -L / -E A=1 -strace",
    ],
)
def test_wrappers(wrapper: str) -> None:
    command = parse(f"{wrapper} ./llama-server -m x")
    assert command.wrapper == tuple(wrapper.split())
    assert command.program == "./llama-server"


def test_an_emulator_sets_variables_for_its_program() -> None:
    command = parse("qemu-aarch64 -E A=1 -U GONE llama-server -m x", {"GONE": "1", "B": "2"})
    assert dict(command.environ) == {"A": "1", "B": "2"}
    assert command.exec_environ == {"GONE": "1", "B": "2"}


def test_setting_a_variable() -> None:
    assert parse("llama-server").with_environ("A", "1").text() == "A=1 llama-server"
    assert parse("env A=0 llama-server").with_environ("A", "1").text() == "env A=1 llama-server"
    behind = parse("env -i X=1 nice llama-server -c 1").with_environ("A", "1")
    assert behind.environ == {"X": "1", "A": "1"}
    assert behind.program == "llama-server"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("docker run --gpus all image llama-server -m x", "container"),
        ("ssh box llama-server", "somewhere else"),
        ("sudo -E llama-server", "another user"),
        ("bash -c 'llama-server -m x'", "shell"),
        ("nohup llama-server", "detach"),
        ("systemd-run --scope llama-server", "detach"),
        ("llama-swap -config x", "not llama-server"),
        ("/usr/bin/time -v llama-server", "between"),
        ("./start.sh llama-server -m x", "in front of"),
        ("env -S 'A=1 x' llama-server", "env -S"),
        ("taskset -p 12", "taskset -p"),
        ("qemu-x86_64 -version llama-server", "qemu-x86_64 -version"),
        ("qemu-system-x86_64 -m 4G llama-server", "in front of"),
        ("A=1", "no program"),
        ("llama-server -m x 2>&1", "2>&1"),
        ("llama-server -m x '|' tee log", "only a shell"),
        ("llama-server -m x '&'", "&"),
        ("llama-server -m x ' '", "white space"),
        (r"llama-server -m x '\' -c 1", "backslash"),
        ("llama-server -m x '$EXTRA'", "$EXTRA"),
        ("'llama-server -m $MODEL'", "$MODEL"),
        ("'llama-server -m ~/x.gguf'", "~/x.gguf"),
        ("'llama-server -m x --port 8080&'", "&"),
        ("'llama-server -m x > log'", ">"),
        ("'llama-server -m \"x'", "quote"),
    ],
)
def test_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r".") as caught:
        parse(text)
    assert says in caught.value.message
    assert caught.value.hint


def test_no_words_at_all() -> None:
    with pytest.raises(UsageError, match="empty"):
        parse_command([], TABLE, {})


def test_a_command_in_one_quoted_word() -> None:
    text = "FOO=1 llama-server \\\n  -m 'my model.gguf' \\\n  -ot '.*_exps.=CPU' -r '<|end|>'"
    words = ("FOO=1", "llama-server", "-m", "my model.gguf", "-ot", ".*_exps.=CPU", "-r", "<|end|>")
    assert parse_command([text], TABLE, {}).argv == words
    windows = r'"C:\llama cpp\llama-server.exe" -m D:\models\x.gguf'
    assert parse_command([windows], TABLE, {}).argv[2] == r"D:\models\x.gguf"


def test_comments_in_text_are_no_words() -> None:
    text = "#!/bin/sh\n# serve\nllama-server -a '#1\n# two' \\\n  # -c 4096 \\\n  -m x#y.gguf \\\n"
    assert split_text(text) == ("llama-server", "-a", "#1\n# two", "-m", "x#y.gguf")


def test_a_value_may_look_like_shell_syntax() -> None:
    text = "llama-server -r '<|im_end|>' --api-key '$up3r' -ot '.*=CPU' --grammar '|'"
    assert parse(text).value("-r") == "<|im_end|>"


def test_unknown_flags_stay() -> None:
    command = parse("llama-server --frob 3 -np 4 --frob-switch -x -1 stray --tail")
    assert [item.name for item in command.unknown] == [
        "--frob",
        "--frob-switch",
        "-x",
        "stray",
        "--tail",
    ]
    assert command.value("--frob") == "3"
    assert command.value("-x") == "-1"
    assert command.value("-np") == "4"
    assert len(command.problems()) == 5
    # Appended after --tail, -c might be taken for its value.
    edited = command.with_value("-c", "256")
    assert edited.words[:7] == (*command.words[:5], "-c", "256")
    assert edited.value("-c") == "256"
    assert [item.name for item in edited.unknown] == [item.name for item in command.unknown]
    with pytest.raises(UsageError, match="does not know --frob"):
        command.with_value("--frob", "4")


def test_problems_name_what_the_engine_will_refuse() -> None:
    problems = parse("llama-server -fa -ngl 99 --draft-max 4 -np").problems()
    assert [words for words in ("-fa", "99", "--draft-max", "-np") if words in " ".join(problems)]
    assert problems[0] == "-fa has the value -ngl; it needs one of on, off, auto"
    assert problems[-1] == "-np needs a value"
    assert parse("llama-server -np").with_value("-np", "2").words[-2:] == ("-np", "2")
    assert parse("llama-server -np").with_value("-c", "2").value("-c") == "2"


def test_switch_of_older_builds() -> None:
    old = parse_help(OLD_HELP)
    command = parse_command(["llama-server", "-fa", "--no-mmap"], old, {})
    assert command.switch("-fa") is True
    assert command.switch("--mmap") is False
    assert command.with_value("--mmap", "on").words == ("llama-server", "-fa")
    assert command.with_value("-fa", "off").words == ("llama-server", "--no-mmap")
    assert command.with_value("--kv-offload", "off").words[-1] == "--no-kv-offload"
    with pytest.raises(UsageError, match="does not know -ctk"):
        command.with_value("-ctk", "q8_0")


def test_last_appends_even_if_there() -> None:
    command = parse("llama-server -lv 2 -v").with_value("-lv", "4", last=True)
    assert command.words[1:] == ("-lv", "2", "-v", "-lv", "4")


@pytest.mark.parametrize(
    ("text", "source", "where"),
    [
        ("llama-server -m x.gguf", ModelSource.FILE, "x.gguf"),
        ("LLAMA_ARG_MODEL=y.gguf llama-server", ModelSource.FILE, "y.gguf"),
        ("llama-server -hf a/b:Q4_K_M -m x.gguf", ModelSource.HF, "a/b:Q4_K_M"),
        ("llama-server --gpt-oss-20b-default", ModelSource.HF, "--gpt-oss-20b-default"),
        ("llama-server -mu http://h/x.gguf", ModelSource.URL, "http://h/x.gguf"),
        ("llama-server -dr gemma3", ModelSource.DOCKER, "gemma3"),
        ("llama-server --models-dir d", ModelSource.ROUTER, "d"),
        ("llama-server --spec-default", ModelSource.ROUTER, None),
    ],
)
def test_model_source(text: str, source: ModelSource, where: str | None) -> None:
    command = parse(text)
    assert command.model_source() == (source, where)
    assert command.model_path() == (where if source is ModelSource.FILE else None)


def test_secrets_are_found_and_masked() -> None:
    token = "hf_" + "x" * 30
    command = parse(
        f"LLAMA_API_KEY=from-variable HF_TOKEN={token} llama-server --api-key planted-1,planted-2"
        " -mu https://user:pa55word@host/x.gguf?token=querysecret --api_key abc"
        " --ssl-key-file key.pem --frob-token planted-3",
        {"AWS_SECRET": "inherited-secret"},
    )
    planted = (
        "from-variable",
        token,
        "planted-1",
        "planted-2",
        "pa55word",
        "querysecret",
        "planted-3",
        "inherited-secret",
    )
    assert set(planted) <= command.secrets()
    shown = " ".join([*command.safe_argv(), *command.effective().values()])
    shown += command.safe_text() + repr(command)
    assert not [secret for secret in (*planted, "abc") if secret in shown]
    assert "key.pem" in shown
    assert "host/x.gguf" in shown


@pytest.mark.engine
def test_precedence_is_the_engine_s(engine_path: Callable[[int], Path]) -> None:
    """The words that the engine refuses or warns about are those that Command names."""
    binary = engine_path(10434)
    said = run(binary, "-np", "4", "--version", env={"LLAMA_ARG_N_PARALLEL": "7"})
    assert "LLAMA_ARG_N_PARALLEL environment variable is set, but will be overwritten" in said
    assert "invalid argument: --port=1" in run(binary, "--port=1")
    assert "invalid argument: stray" in run(binary, "--ctx_size", "5", "stray")
    said = run(binary, "-fa", "-ngl", "--version")
    assert "-ngl" in said.splitlines()[0]
    command = parse_command(["x", "-fa", "-ngl"], TABLE, {})
    assert command.value("-fa") == "-ngl"


@pytest.mark.engine
def test_wrappers_hand_over_to_the_engine(engine_path: Callable[[int], Path]) -> None:
    """What is kept really becomes the engine, with the environment that Command foretells."""
    binary = engine_path(10434)
    environ = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(binary.parent), "LLAMA_ARG_X": ""}
    text = "LLAMA_ARG_PORT=a env -u LLAMA_ARG_X LLAMA_ARG_PORT=b nice -n 1"
    text += f" taskset -c 0 stdbuf -oL {binary} --version"
    command = parse_command(shlex.split(text), TABLE, environ)
    done = subprocess.run(
        command.exec_argv,
        env=command.exec_environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert 'environment variable "LLAMA_ARG_PORT": stoi' in done.stderr
    assert command.value("--port") == "b"


def test_table_with_no_flags_keeps_every_word() -> None:
    command = parse_command(["llama-server", "-m", "x", "--mmap"], FlagTable(()), {})
    assert command.value("-m") == "x"
    assert [item.name for item in command.unknown] == ["-m", "--mmap"]
