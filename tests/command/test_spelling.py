"""What a repair leaves alone is printed as its file has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import UsageError
from arriero.command import Command, builtin_flags, parse_command
from arriero.command.inputs import command_behind, read_commands
from arriero.command.inputs.model import Written
from arriero.command.spelling import respelled

FLAGS = builtin_flags(10434)
Edit = Callable[[Command], Command]


def again(
    written: Written | None, edit: Edit, words: tuple[str, ...] = ()
) -> tuple[str, tuple[str, ...]]:
    given = written.words if written else words
    command = parse_command(given, FLAGS, written.env if written else {})
    spelled, notes = respelled(edit(command), written, lambda text: text)
    return " ".join(spelled), notes


def in_file(path: Path, text: str, edit: Edit) -> tuple[str, tuple[str, ...]]:
    path.write_text(text)
    (found,) = read_commands(path, FLAGS)
    return again(found, edit)


def context(command: Command) -> Command:
    return command.with_value("-c", "65536")


def nothing(command: Command) -> Command:
    return command


def variable(command: Command) -> Command:
    return command.with_environ("A", "b c")


SCRIPT = """MODEL=/m/a.gguf
OPTS="--jinja -np $2"
ARGS=(-m "$MODEL" -c 64k  # small
  --alias "$1")
"""


@pytest.mark.parametrize(
    ("line", "edit", "expected"),
    [
        (
            'llama-server -m "$MODEL" -c 64k --port ${PORT:-8080} "$@"', context,
            'llama-server -m "$MODEL" -c 65536 --port ${PORT:-8080} "$@"',
        ),
        ('llama-server -m "$MODEL" "$@" > "$LOG" 2>&1 &', context,
         'llama-server -m "$MODEL" -c 65536 "$@" > "$LOG" 2>&1'),
        ("llama-server -m $MODEL $OPTS &> log", context,
         "llama-server -m $MODEL $OPTS -c 65536 &> log"),
        ("llama-server -m 'a'\\ \"b\" \\\n  -c 1", context, "llama-server -m 'a'\\ \"b\" -c 65536"),
        ('llama-server "${ARGS[@]}" -np 2', lambda c: c.with_value("-np", "4"),
         'llama-server "${ARGS[@]}" -np 4'),
        ('llama-server "${ARGS[@]}" -np 2', lambda c: c.without("-np").with_value("--jinja", "on"),
         'llama-server "${ARGS[@]}" --jinja'),
        ('llama-server "${ARGS[@]}" "$@"', context,
         'llama-server -m "$MODEL" -c 65536 --alias "$1" "$@"'),
        ("llama-server -m x $OPTS", lambda c: c.without("--jinja"), 'llama-server -m x -np "$2"'),
        ("if x; then exec nohup $BIN/llama-server -m x -c 1; fi", context,
         "exec nohup $BIN/llama-server -m x -c 65536"),
        ("A=1 exec llama-server -m x", variable, "A='b c' exec llama-server -m x"),
        ("llama-server -m x", variable, "A='b c' llama-server -m x"),
        ("exec llama-server -m x", variable, "exec env A='b c' llama-server -m x"),
        (
            'docker run --rm -v "$M:/m" x/llama.cpp:s --server -m "$M" -c 1',
            lambda c: context(variable(c)),
            'docker run --rm -v "$M:/m" -e A=\'b c\' x/llama.cpp:s --server -m "$M" -c 65536',
        ),
        ('bash -c "cd /x && llama-server -m $MODEL -c 1 \'$Y\'" | tee log', context,
         "llama-server -m $MODEL -c 65536 '$Y'"),
        ("bash -c 'exec /x/llama-server -m \"$X\" -c 1 \"$@\"'", context,
         'exec /x/llama-server -m "$X" -c 65536 "$@"'),
    ],
)  # fmt: skip
def test_a_line_of_a_script(line: str, edit: Edit, expected: str, tmp_path: Path) -> None:
    assert in_file(tmp_path / "a.sh", f"{SCRIPT}{line}\n", edit)[0] == expected


SERVICE = "services:\n  a:\n    image: llama.cpp\n"
LOW = "{low: '--port ${PORT}', run: 'llama-server ${low} -c 64k'}"
SWAP = """macros:
  run: |
    /x/llama-server --port ${PORT} \\
    --jinja
  kw: '{"a": true}'
models:
  m:
    cmd: |
      # a comment
      ${run}
      -m /m/${MODEL_ID}.gguf --alias '${kw}'
      -c 64k
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "swap.yaml",
            SWAP,
            "/x/llama-server --port 5800 --jinja -m /m/m.gguf --alias '{\"a\": true}' -c 65536",
        ),
        (
            "opened.yaml",
            f"macros: {LOW}\nmodels: {{m: {{cmd: '${{run}} -m x'}}}}\n",
            "llama-server --port 5800 -c 65536 -m x",
        ),
        (
            "quoted.yaml",
            "models:\n  m:\n    cmd: bash -c 'llama-server --port ${PORT} -c 64k'\n",
            "llama-server --port 5800 -c 65536",
        ),
        (
            "string.yaml",
            f"{SERVICE}    command: -m '/m/$$X a' -c 64k --port ${{P:-1}}\n",
            "llama-server -m '/m/$X a' -c 65536 --port \"${P:-1}\"",
        ),
        (
            "list.yaml",
            f'{SERVICE}    command: [-m, "a b", -c, 64k, --port, "${{P:-1}}"]\n',
            "llama-server -m 'a b' -c 65536 --port \"${P:-1}\"",
        ),
        (
            "a.service",
            '[Service]\nExecStart=/x/llama-server -m ${M} --alias "%i x" \\\n  -c 64k $MORE\n',
            "/x/llama-server -m \"${M}\" --alias '%i x' -c 65536 $MORE",
        ),
        (
            "b.service",
            "[Service]\nEnvironment=O='-c 64k --jinja'\nExecStart=/x/llama-server $O\n",
            "/x/llama-server -c 65536 --jinja",
        ),
        ("a.json", '["llama-server", "-m", "$X", "-c", "64k"]', "llama-server -m '$X' -c 65536"),
        ("a.ini", "[m]\nmodel = a b\nc = 64k\n", "llama-server --model 'a b' -c 65536"),
    ],
)  # fmt: skip
def test_every_form(name: str, text: str, expected: str, tmp_path: Path) -> None:
    assert in_file(tmp_path / name, text, context)[0] == expected


def test_what_is_written_out_is_told(tmp_path: Path) -> None:
    line = 'llama-server "${ARGS[@]}" -np 2\n'
    kept = in_file(tmp_path / "a.sh", SCRIPT + line, nothing)
    assert kept == (line.strip(), ())
    _, notes = in_file(tmp_path / "b.sh", SCRIPT + line, context)
    assert notes == ('"${ARGS[@]}" is written out because some of its words change',)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('llama-server --api-key "$KEY"', 'llama-server --api-key "$KEY"'),
        ("llama-server --api-key abc", 'llama-server --api-key "${LLAMA_API_KEY:?}"'),
        ("KEY=abc\nllama-server --api-key ${KEY}", "llama-server --api-key ${KEY}"),
        ("llama-server --api-key ${K:-abc}", 'llama-server --api-key "${K:?}"'),
        ('O=(--api-key abc)\nllama-server "${O[@]}"', 'llama-server "${O[@]}"'),
        ('O=(--api-key abc -c 1)\nllama-server "${O[@]}"',
         'llama-server --api-key "${LLAMA_API_KEY:?}" -c 65536'),
        ('LLAMA_API_KEY=abc llama-server "$@"',
         'LLAMA_API_KEY="${LLAMA_API_KEY:?}" llama-server "$@"'),
        ("docker run -e LLAMA_API_KEY=a -eHF_TOKEN=b llama.cpp:s",
         'docker run -e LLAMA_API_KEY="${LLAMA_API_KEY:?}" -eHF_TOKEN="${HF_TOKEN:?}" llama.cpp:s'),
        ("llama-server -mu http://user:passw0rd@host/x.gguf",
         'llama-server -mu http://"${SECRET:?}"@host/x.gguf'),
    ],
)  # fmt: skip
def test_no_secret_is_spelled(line: str, expected: str, tmp_path: Path) -> None:
    edit = context if "-c 1" in line else nothing
    assert in_file(tmp_path / "a.sh", f"{line}\n", edit)[0] == expected


def test_a_command_that_something_starts_keeps_what_starts_it() -> None:
    words = ["docker", "run", "-v", "/a b:/m", "llama.cpp:s", "-m", "/m/$x", "-c", "1"]
    found = command_behind(words, FLAGS)
    assert again(found, context)[0] == "docker run -v '/a b:/m' llama.cpp:s -m '/m/$x' -c 65536"


def test_words_without_a_file_are_quoted_for_a_shell() -> None:
    words = ("A=b c", "llama-server", "-m", "a b", "-c", "1")
    assert again(None, context, words) == ("A='b c' llama-server -m 'a b' -c 65536", ())


PARTS = [
    "-m", "x", '"$Y"', "${Z:-1 2}", "'a b'", '"${ARGS[@]}"', "$OPTS", "${OPTS}x", "$(f)", '"$@"',
    ">log", "2>&1", '""', "\\\n", "a\\ b", "-c", "-np", "3",
]  # fmt: skip


def parsed(path: Path, line: str) -> tuple[Written, Command] | None:
    """Null where a word is one that no command may have."""
    path.write_text(f"{SCRIPT}{line}\n")
    (found,) = read_commands(path, FLAGS)
    try:
        return found, parse_command(found.words, FLAGS, {})
    except UsageError:
        return None


@given(st.lists(st.sampled_from(PARTS)))
def test_a_command_that_nothing_changes_is_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "same.sh"
    if (read := parsed(path, f"llama-server {' '.join(parts)}")) is not None:
        spelled, notes = respelled(read[1], read[0], lambda text: text)
        line = ["llama-server", *(part for part in parts if part != "\\\n")]
        assert " ".join(spelled).split() == " ".join(line).split()
        live = ("$(f) is the script's own text: a shell runs the command in it",)
        assert notes == (live if "$(f)" in parts else ())


@given(
    st.lists(st.sampled_from(PARTS)),
    st.sampled_from([context, variable, lambda c: c.without("-np"), lambda c: c.without("-m")]),
)
def test_what_is_printed_is_read_as_the_changed_command(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], edit: Edit
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.sh"
    if (read := parsed(path, f"llama-server {' '.join(parts)}")) is not None:
        try:
            changed = edit(read[1])
        except UsageError:
            return
        spelled, _ = respelled(changed, read[0], lambda text: text)
        again = parsed(path, " ".join(spelled))
        assert again is not None
        assert again[1].words == changed.words
