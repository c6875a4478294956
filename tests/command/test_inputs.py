"""Commands read out of files: scripts, units, compose, llama-swap, presets, JSON."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.command import builtin_flags, parse_command
from arriero.command.inputs import read_commands
from arriero.command.inputs.model import LARGEST, Written

DATA = Path(__file__).parent / "data" / "inputs"


def read(name: str | Path) -> tuple[Written, ...]:
    return read_commands(DATA / name, builtin_flags())


def line_of(written: Written, word: str) -> int:
    return written.lines[written.words.index(word)]


def text(written: Written) -> str:
    return " ".join(written.words)


def test_script() -> None:
    first, second, third = read("serve.sh")
    assert first.words == (
        "CUDA_VISIBLE_DEVICES=0", "/opt/llama/bin/llama-server", "-m", "/srv/models/a model.gguf",
        "-c", "8192", "--port", "8081", "--api-key", "k # y", "-t", "$(nproc)",
    )  # fmt: skip
    assert (first.line, line_of(first, "-c"), line_of(first, "-t")) == (14, 6, 17)
    assert first.notes == (
        "PORT is assumed to have its default: 8081",
        "the value of $EXTRA_ARGS is unknown: the check leaves it out",
        "the value of $@ is unknown: the check leaves it out",
    )
    assert text(second) == "llama-server -m /srv/models/b.gguf --jinja -np 2"
    assert (second.line, line_of(second, "--jinja"), line_of(second, "-np")) == (25, 22, 24)
    assert text(third) == "llama-server -m /m/c.gguf -ngl 99"
    assert third.env == {"LLAMA_ARG_N_PARALLEL": "3"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sudo -u llama -E llama-server -m a", "llama-server -m a"),
        ("if true; then exec llama-server -m a; fi", "llama-server -m a"),
        ("A=1 nohup env B=2 llama-server -m a &", "A=1 env B=2 llama-server -m a"),
        ("tmux new -d -s x 'llama-server -m a -np 2'", "llama-server -m a -np 2"),
        ("bash -c 'cd /srv && llama-server -m a'", "llama-server -m a"),
        ("taskset -c 0-3 llama-server -m a 2>&1 | tee log", "taskset -c 0-3 llama-server -m a"),
        ("llama-server -ngl $((40 + 2)) -m a", "llama-server -ngl $((40 + 2)) -m a"),
        (
            "podman run --name llama-server -e A=b x/llama.cpp:full --server -m a",
            "llama-server -m a",
        ),
        (
            "docker run --mount type=bind,src=/llama.cpp,dst=/m ghcr.io/x/llama.cpp:server -m /m/a",
            "llama-server -m /m/a",
        ),
        (
            "echo 'llama-server is up'; pkill -f llama-server; llama-server -m a",
            "llama-server -m a",
        ),
        ("llama-server -m 'it'\\''s' --alias \"\"", "llama-server -m it's --alias "),
    ],
)
def test_what_stands_before_a_server(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(line + "\n")
    (found,) = read(path)
    assert text(found) == words


def test_variables_that_a_container_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("docker run -eA=1 --env=B=2 -e C=3 --env D=4 -e HOST_S x/llama.cpp:s -m a\n")
    (found,) = read(path)
    assert found.env == {"A": "1", "B": "2", "C": "3", "D": "4"}
    assert found.notes == (
        "paths are those inside the container: they are looked for here as written",
    )


def test_unit() -> None:
    (found,) = read("llama.service")
    assert found.words == (
        "/usr/bin/llama-server", "-m", "/srv/m.gguf", "--host", "0.0.0.0", "--alias", "%i model",  # noqa: S104 - data
        "-np", "2", "-fa", "on",
    )  # fmt: skip
    assert found.env["LLAMA_ARG_CTX_SIZE"] == "16384"
    assert (found.line, line_of(found, "--host"), line_of(found, "--alias")) == (8, 9, 10)
    assert found.notes == (
        "/etc/default/llama is not read: its variables are unknown",
        "the value of $MORE is unknown: the check leaves it out",
    )
    command = parse_command(found.words, builtin_flags(), found.env)
    assert command.number("-c") == 16384


def test_compose() -> None:
    chat, embed, own = read("compose.yaml")
    assert text(chat) == "llama-server -m /models/a.gguf --host 0.0.0.0"
    assert (chat.name, line_of(chat, "--host")) == ("chat", 11)
    assert chat.env == {"LLAMA_ARG_PORT": "8080"}
    assert text(embed) == "llama-server -m /models/e.gguf --pooling mean"
    assert (line_of(embed, "-m"), line_of(embed, "--pooling")) == (17, 18)
    assert embed.env == {"LLAMA_ARG_EMBEDDINGS": "1"}
    assert text(own) == "/app/llama-server -m /models/o.gguf -np $SLOTS"


def test_llama_swap() -> None:
    qwen, tiny = read("swap.yaml")
    assert text(qwen) == "llama-server --port 9000 --no-webui -ngl 99 -m /models/q.gguf -c 32768"
    assert qwen.env == {"CUDA_VISIBLE_DEVICES": "1"}
    assert line_of(qwen, "-c") == 15
    assert text(tiny) == "llama-server --port 9000 -m /models/tiny.gguf -c 2048"
    assert line_of(tiny, "-c") == 19


def test_preset() -> None:
    small, oss = read("models.ini")
    assert text(small) == (
        "llama-server -ngl 99 --jinja --cache-ram 0 --model /models/s.gguf --ctx-size 4096"
        " --no-mmap"
    )
    assert (line_of(small, "-ngl"), line_of(small, "--no-mmap")) == (4, 11)
    command = parse_command(oss.words, builtin_flags(), {})
    assert (oss.name, command.number("-ngl")) == ("ggml-org/gpt-oss-20b-GGUF:Q4", 20)


def test_json() -> None:
    (found,) = read("argv.json")
    assert text(found) == "/usr/local/bin/llama-server -m m.gguf -np 4"
    assert line_of(found, "-np") == 4
    (task,) = read("task.json")
    assert (text(task), task.env) == ("llama-server -m m.gguf", {"LLAMA_ARG_PORT": "1"})


def test_an_array_without_a_flag_is_no_command(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    path.write_text("[1, 2, [3]]")
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


@pytest.mark.parametrize("text", ["llama-server -m 'a\n-np 2\n", 'true\nllama-server -m "a'])
def test_a_quote_that_nothing_closes_is_told(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text(text)
    (found,) = read(path)
    (note,) = found.notes
    assert note.startswith(f"line {text.count('true') + 1}: a quote is not closed")


@pytest.mark.parametrize("name", ["x.sh", "x.service", "x.yaml", "x.ini", "x.json", "x"])
def test_nothing_in_a_file_is_expanded_or_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "leaked")
    marker = tmp_path / "ran"
    inside = f"llama-server -m $SECRET_OF_MINE --alias $(touch {marker})"
    forms = {
        "x.sh": f". ./other.sh\n{inside}\n",
        "x.service": f"[Service]\nEnvironmentFile=/etc/passwd\nExecStart=/bin/{inside}\n",
        "x.yaml": f"services:\n  a:\n    image: llama.cpp:server\n    command: {inside[13:]}\n",
        "x.ini": "[a]\nmodel = $SECRET_OF_MINE\n",
        "x.json": '["llama-server", "-m", "$SECRET_OF_MINE"]',
        "x": f"#!/bin/sh\n{inside}\n",
    }
    path = tmp_path / name
    path.write_text(forms[name])
    (found,) = read(path)
    assert "$SECRET_OF_MINE" in found.words
    assert not any("leaked" in word for word in found.words)
    assert not marker.exists()


LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
MERGES = "m0: &m0 {k0: v}\n" + "".join(
    f"m{n}: &m{n} {{<<: [{','.join([f'*m{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("missing.sh", None),
        ("large.sh", "x" * (LARGEST + 1)),
        ("zeros.sh", "a\0b"),
        ("empty.sh", ""),
        ("none.sh", "echo hello\n"),
        ("deep.yaml", "[" * 20_000),
        ("deep.json", "[" * 20_000),
        ("laughs.yaml", LAUGHS),
        ("object.yaml", "services: !!python/object/apply:os.system ['true']\n"),
        ("tabs.yaml", "services:\n\t- x\n"),
        ("loop.yaml", "macros: {a: '${b}', b: '${a}'}\nmodels: {m: {cmd: 'llama-server ${a}'}}"),
        (
            "grow.yaml",
            "macros: {a0: xxxxxxxx"
            + "".join(f", a{n}: '{('${a' + str(n - 1) + '}') * 9}'" for n in range(1, 30))
            + "}\nmodels: {m: {cmd: 'llama-server ${a29}'}}",
        ),
        ("selfish.sh", "A=$B\nB=$A\nllama-serve $A\n"),
        (
            "bomb.sh",
            "A0=xxxxxxxx\n"
            + "".join(f'A{n}="{f"$A{n - 1}" * 9}"\n' for n in range(1, 30))
            + "llama-server $A29\n",
        ),
    ],
)
def test_bad_files_are_refused_in_one_line(name: str, content: str | None, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises((UsageError, NotFoundError)) as raised:
        read(path)
    assert "\n" not in raised.value.message


def test_merges_of_merges_are_looked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "merges.yaml"
    path.write_text(MERGES + "services:\n  a:\n    <<: *m29\n    image: llama.cpp\n")
    (found,) = read(path)
    assert found.words == ("llama-server",)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    with pytest.raises(NotFoundError):
        read(tmp_path / "pipe.sh")


SUFFIXES = (
    "sh",
    "service",
    "container",
    "dockerfile",
    "yaml",
    "ini",
    "json",
    "txt",
    "bat",
    "ps1",
    "env",
)


@given(st.text(), st.sampled_from(SUFFIXES))
def test_any_text_gives_commands_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, content: str, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    path.write_text("llama-server " + content, encoding="utf-8", errors="replace")
    try:
        found = read(path)
    except ArrieroError:
        return
    for written in found:
        assert len(written.words) == len(written.lines)


QUADLET = """\
[Unit]
After=network-online.target

[Container]
Image=ghcr.io/ggml-org/llama.cpp:server-cuda
Environment=LLAMA_ARG_N_PARALLEL=2
# what the server is given
Exec=-m /models/a.gguf \\
     -c 32768 --alias "a b"

[Service]
Restart=always
"""


@pytest.mark.parametrize("name", ["llm.container", "llm.txt"])
def test_what_a_quadlet_gives_its_image(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(QUADLET)
    (found,) = read(tmp_path / name)
    assert text(found) == "llama-server -m /models/a.gguf -c 32768 --alias a b"
    assert (found.line, line_of(found, "--alias")) == (8, 9)
    assert found.env == {"LLAMA_ARG_N_PARALLEL": "2"}


def test_a_quadlet_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "db.container"
    path.write_text(QUADLET.replace("ghcr.io/ggml-org/llama.cpp:server-cuda", "docker.io/postgres"))
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


KUBERNETES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      initContainers:
        - {name: fetch, image: curlimages/curl, command: [sh, -c, "curl -O x"]}
      containers:
        - name: llm
          image: ghcr.io/ggml-org/llama.cpp:server
          args: ["-m", "$(DIR)/a.gguf", "-c", "4096"]
          env:
            - {name: DIR, value: /models}
            - {name: LLAMA_API_KEY, valueFrom: {secretKeyRef: {name: k, key: k}}}
        - name: by-a-shell
          image: debian
          command: ["/bin/sh", "-c"]
          args:
            - exec /app/llama-server -m /models/b.gguf
---
apiVersion: batch/v1
kind: CronJob
spec: {jobTemplate: {spec: {template: {spec: {containers: [
  {name: own, image: mine, command: [/bin/llama-server], args: [-m, c.gguf]}]}}}}}
"""


def test_containers_of_kubernetes(tmp_path: Path) -> None:
    path = tmp_path / "k8s.yaml"
    path.write_text(KUBERNETES)
    first, second, third = read(path)
    assert text(first) == "llama-server -m /models/a.gguf -c 4096"
    assert (first.name, first.line) == ("llm", 15)
    assert first.env == {"DIR": "/models", "LLAMA_API_KEY": "${LLAMA_API_KEY}"}
    assert first.notes == ("LLAMA_API_KEY comes from elsewhere: its value is unknown",)
    assert text(second) == "/app/llama-server -m /models/b.gguf"
    assert second.line == 23
    assert text(third) == "/bin/llama-server -m c.gguf"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('FROM llama.cpp\nCMD ["-m", "a.gguf"]', "llama-server -m a.gguf"),
        ("ARG I=x/llama.cpp:server\nFROM ${I}\nCMD [\"-c\",\\\n  \"9\"]", "llama-server -c 9"),
        ('FROM debian AS b\nFROM a\nENTRYPOINT ["/llama-server"]\nCMD ["-np", "2"]',
         "/llama-server -np 2"),
        ("FROM debian\nCMD exec llama-server -m a.gguf", "llama-server -m a.gguf"),
        ('FROM debian\nENTRYPOINT ["sh", "-c", "llama-server -m a"]', "llama-server -m a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda", "llm.dockerfile"])
def test_what_an_image_starts(content: str, words: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    (found,) = read(path)
    assert text(found) == words


@pytest.mark.parametrize(
    "content",
    [
        'FROM x/llama.cpp:server\nENTRYPOINT ["/start.sh"]\nCMD ["-m", "a.gguf"]',
        'FROM x/llama.cpp:server\nFROM debian\nCMD ["-m", "a.gguf"]',
        "FROM debian\nRUN make llama-server",
    ],
)
def test_an_image_that_starts_something_else(content: str, tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(content)
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


FULL = "ghcr.io/ggml-org/llama.cpp:full-cuda"
BUILT = """\
services:
  a:
    build: {context: 'https://x/llama.cpp.git#master', dockerfile: .devops/full-cuda.Dockerfile}
    command: --server -m a.gguf
"""
POD = """\
apiVersion: v1
spec: {containers: [{image: 'x/llama.cpp:full', args: [--server, -m, a.gguf]}]}
"""


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.yaml", f"services: {{a: {{image: '{FULL}', command: --server -m a}}}}", "-m a"),
        ("a.yaml", f"services: {{a: {{image: '{FULL}', command: ['-s', '-c', '9']}}}}", "-c 9"),
        ("a.yaml", "services: {a: {image: x/llama.cpp:server, command: -s 42}}", "-s 42"),
        ("a.yaml", BUILT, "-m a.gguf"),
        ("a.yaml", "services: {a: {build: ./llama.cpp, command: -m a.gguf}}", "-m a.gguf"),
        ("a.container", f"[Container]\nImage={FULL}\nExec=--server -m a.gguf\n", "-m a.gguf"),
        ("Dockerfile", f'FROM {FULL}\nCMD ["--server", "-m", "a.gguf"]', "-m a.gguf"),
        ("a.yaml", POD, "-m a.gguf"),
        ("a.sh", f"docker run {FULL} -s -m a.gguf", "-m a.gguf"),
        ("a.sh", "docker run x/llama.cpp:server -s 42 -m a.gguf", "-s 42 -m a.gguf"),
    ],
)
def test_what_an_image_with_all_programs_is_told(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    (found,) = read(tmp_path / name)
    assert text(found) == f"llama-server {words}"


@pytest.mark.parametrize("tag", ["light-cuda", "light", "full", "full-vulkan"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.yaml", "services: {{a: {{image: 'x/llama.cpp:{}', command: --run -m a.gguf}}}}"),
        ("a.container", "[Container]\nImage=x/llama.cpp:{}\nExec=--run -m a.gguf\n"),
        ("Dockerfile", 'FROM x/llama.cpp:{}\nCMD ["--run", "-m", "a.gguf"]'),
        ("a.sh", "docker run x/llama.cpp:{} --run -m a.gguf"),
    ],
)
def test_an_image_may_start_another_program(
    name: str, content: str, tag: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content.format(tag))
    with pytest.raises(UsageError, match="no llama-server command"):
        read(tmp_path / name)


def test_what_is_built_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("services: {a: {build: ./web, command: --server -m a.gguf}}")
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


@pytest.mark.parametrize("start", ["/opt/run.sh", "-/bin/bash -e /opt/run.sh --fast"])
def test_a_unit_that_starts_a_script_names_it(start: str, tmp_path: Path) -> None:
    path = tmp_path / "a.service"
    path.write_text(f"[Service]\nExecStart={start}\n")
    with pytest.raises(UsageError, match=r"it starts /opt/run\.sh"):
        read(path)


START = "[Service]\nExecStart="
PODS = "apiVersion: v1\ncontainers: [{"
SCRIPTS = [
    ("a.service", f"{START}/usr/bin/env A=1 /srv/llama-server.sh", "/srv/llama-server.sh"),
    ("a.service", f"{START}/opt/llama/launch --big", "/opt/llama/launch"),
    ("a.service", f"{START}/bin/bash -lc '. /env.sh && exec /srv/go.sh'", "/srv/go.sh"),
    ("a.container", "[Container]\nImage=x/llama.cpp:server\nEntrypoint=/go.sh", "/go.sh"),
    ("a.yml", "services: {a: {image: llama.cpp, entrypoint: /go.sh, command: -c 4}}", "/go.sh"),
    ("a.yml", "services: {a: {image: 'x/y', entrypoint: [sh, -c, /go.sh]}}", "/go.sh"),
    ("a.yml", f"{PODS}image: llama.cpp, command: [bash, /go.sh]}}]", "/go.sh"),
    ("Dockerfile", 'FROM x/llama.cpp:server\nENTRYPOINT ["/go.sh"]\nCMD ["-c", "4"]', "/go.sh"),
    ("Dockerfile", "FROM x/llama.cpp:server\nENTRYPOINT exec /go.sh", "/go.sh"),
    ("start", "cd /srv\nexec ./start-llama-server.sh", "./start-llama-server.sh"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "script"), SCRIPTS)
def test_a_file_that_starts_a_script_names_it(
    name: str, content: str, script: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(UsageError, match=r"contains no llama-server command: it starts") as raised:
        read(path)
    assert raised.value.message.endswith(f" {script}")
    assert raised.value.hint == f"check that file: arriero check {script}"
    assert raised.value.id == "no-command"
    beside = tmp_path / Path(script).name
    beside.write_text("llama-server -m a.gguf")
    with pytest.raises(UsageError) as raised:
        read(path)
    assert raised.value.hint == f"check that file: arriero check {beside}"


@pytest.mark.parametrize(
    "start", ["/usr/bin/python3 -m http.server", "/usr/local/bin/vllm serve x", "$START"]
)
def test_a_unit_of_another_program_names_no_script(start: str, tmp_path: Path) -> None:
    path = tmp_path / "a.service"
    path.write_text(f"[Service]\nExecStart={start}\n")
    with pytest.raises(UsageError, match=r"a\.service contains no"):
        read(path)


BEHIND_AN_ENTRY = [
    ("a.yml", "services: {a: {image: x, entrypoint: tini -- llama-server, command: -m a.gguf}}"),
    ("a.yml", f"{PODS}image: x, command: [nice, llama-server, -m, a.gguf]}}]"),
    ("Dockerfile", 'FROM x AS s\nENTRYPOINT ["llama-server"]\nFROM s\nCMD ["-m", "a.gguf"]'),
    ("Dockerfile", 'FROM x\nCMD ["bash", "-c", "exec llama-server -m a.gguf"]'),
    ("Dockerfile", 'FROM --platform=linux/amd64 llama.cpp\nCMD ["-m", "a.gguf"]'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), BEHIND_AN_ENTRY)
def test_a_server_behind_what_an_image_starts(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    (found,) = read(tmp_path / name)
    assert text(found).endswith("llama-server -m a.gguf")
    assert found.around.doubt == ""


def test_an_entry_that_may_start_what_follows_it_is_a_doubt(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("services: {a: {image: x, entrypoint: /e.sh, command: llama-server -m a.gguf}}")
    (found,) = read(path)
    assert text(found) == "llama-server -m a.gguf"
    assert "e.sh" in found.around.doubt


DOCKER = "docker run --rm -p 80:8080 ghcr.io/ggml-org/llama.cpp:server"
FORMS = [
    ("a.service", f"{START}/bin/{DOCKER} \\\n -m a.gguf -c 8", "llama-server -m a.gguf -c 8", 2),
    ("a.service", f"{START}podman run a/b llama-server -m a.gguf", "llama-server -m a.gguf", 2),
    ("a.service", f"{START}/bin/systemd-run llama-server -m a.gguf", "llama-server -m a.gguf", 2),
    ("a.service", f"{START}/bin/ssh h 'llama-server -m a.gguf'", "llama-server -m a.gguf", 2),
    ("a.service.j2", f"{START}llama-server -m {{{{a}}}} $B", "llama-server -m {{a}}", 2),
    ("s.conf", "[program:a]\ncommand=llama-server\n  -m a.gguf\n", "llama-server -m a.gguf", 2),
    ("Makefile", "M ?= a.gguf\ngo:\n\t@llama-server -m $(M) \\\n\t--port $(P)",
     "llama-server -m a.gguf --port $(P)", 3),
    ("Makefile", "D = d\nM = $(D)/a.gguf # it\ngo:\n\t-llama-server -m ${M}",
     "llama-server -m d/a.gguf", 4),
    ("justfile", 'm := "a.gguf"\nx := f()\ngo c="8":\n llama-server -m {{m}} -c {{c}} -a {{ x }}',
     "llama-server -m a.gguf -c 8 -a {{x}}", 4),
    ("a.bat", "@set M=C:\\a b.gguf\nrem llama-server\n.\\llama-server.exe -m \"%M%\" ^\r\n -c 8",
     ".\\llama-server.exe -m C:\\a b.gguf -c 8", 3),
    ("a.ps1", "$m = 'C:\\a.gguf'\n<# no\n#>\n& .\\llama-server.exe `\n -m $m `\n -c 8",
     ".\\llama-server.exe -m C:\\a.gguf -c 8", 4),
    ("a.yml", f"{PODS}}}]\nkind: ConfigMap\ndata:\n  a.sh: |\n    llama-server -m a.gguf",
     "llama-server -m a.gguf", 6),
    (".env.local", "A=1\nexport LLAMA_ARG_MODEL='a.gguf' # it", "llama-server", 2),
    ("docker-compose.yml.example", "services: {a: {image: llama.cpp, command: -m a.gguf}}",
     "llama-server -m a.gguf", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words", "line"), FORMS)
def test_other_forms(name: str, content: str, words: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    (found,) = read(path)
    assert text(found) == words
    assert found.line == line


def test_variables_of_an_environment_file(tmp_path: Path) -> None:
    path = tmp_path / "llama.env"
    path.write_text(
        "# of the server\nLLAMA_ARG_MODEL='a # b.gguf'\nLLAMA_ARG_CTX_SIZE=8 # few\nX=1\n"
    )
    (found,) = read(path)
    assert found.env == {"LLAMA_ARG_MODEL": "a # b.gguf", "LLAMA_ARG_CTX_SIZE": "8"}
    assert found.around.doubt
    path.write_text("OTHER=llama-server\n")
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Makefile", f"A = {'x' * 9999}\ngo:\n\tllama-server {'$(A)' * 9999}"),
        ("justfile", 'a := "{{a}}{{a}}"\ngo:\n' + "\tllama-server {{a}}\n" * 9999),
        ("a.bat", f"set A={'x' * 9999}\nllama-server {'%A%' * 9999}"),
    ],
)
def test_variables_that_fill_in_to_too_much(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match="expand to more"):
        read(tmp_path / name)


@pytest.mark.parametrize("start", ["", "nohup "])
def test_the_server_of_llama_cpp_python_is_another(start: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{start}python3 -m llama_cpp.server --model a.gguf --n_gpu_layers 99")
    with pytest.raises(UsageError, match=r"llama_cpp\.server is not llama-server"):
        read(path)


def test_what_a_unit_sets_for_a_shell(tmp_path: Path) -> None:
    path = tmp_path / "a.service"
    head = "[Service]\nEnvironment=LLAMA_ARG_CTX_SIZE=8\nEnvironmentFile=/etc/x\nExecStart="
    path.write_text(f"{head}/bin/sh -c 'exec llama-server -m a.gguf'")
    (found,) = read(path)
    assert found.env == {"LLAMA_ARG_CTX_SIZE": "8"}
    assert any("/etc/x" in note for note in found.notes)


def test_a_name_that_a_variable_is_given_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("BIN=/opt/llama-server ./other -m a.gguf -c 8")
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


@pytest.mark.parametrize(
    "line",
    [
        "sudo systemctl restart llama-server",
        "docker build -t llama-server:latest --build-arg X=1 .",
        "docker logs -f llama-server",
        "ssh box journalctl -fu llama-server",
        "timeout 5 pgrep llama-server",
    ],
)
def test_what_only_names_a_server(line: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(line)
    with pytest.raises(UsageError, match="no llama-server command"):
        read(path)


def test_a_container_called_like_a_command(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("docker exec test llama-server -m a.gguf -c 8\nsudo llama-server\n")
    assert list(map(text, read(path))) == ["llama-server -m a.gguf -c 8", "llama-server"]
