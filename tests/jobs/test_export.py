"""Files with which others start a supervised server: quoted right, and without a secret."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import UsageError
from arriero.command.inputs.systemd import _split
from arriero.jobs import _export_texts as formats
from arriero.jobs.export import TARGETS, Target, export
from arriero.record import Export
from arriero.serve.settings_sources import Sources, Value

KEY = "sk-arriero-0123456789"
WORDS = st.lists(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12), min_size=1, max_size=5
)


def made(
    target: Target, text: str, options: dict[str, Value] | None = None, home: Path = Path("/srv/x")
) -> Export:
    return export(target, shlex.split(text), Sources(options or {}, {}, home))


def exec_start(unit: str) -> list[str]:
    (line,) = [one for one in unit.splitlines() if one.startswith("ExecStart=")]
    return [as_meant(word) for word in _split(line.removeprefix("ExecStart="))]


def as_meant(word: str) -> str:
    return word.replace("$$", "$").replace("%%", "%")


def after(words: list[str]) -> list[str]:
    return words[words.index("--") + 1 :]


def test_a_unit_runs_the_command_with_absolute_paths() -> None:
    found = made("systemd", "env A=1 ./llama-server -m models/m.gguf -c 512", {"hold": "5m"})
    words = exec_start(found.text)
    assert words[words.index("serve") :][:4] == ["serve", "--hold", "5m", "--"]
    assert after(words) == [
        "env", "A=1", "/srv/x/llama-server", "-m", "/srv/x/models/m.gguf", "-c", "512",
    ]  # fmt: skip
    assert "KillMode=mixed" in found.text
    assert "OOMPolicy=continue" in found.text
    assert "TimeoutStopSec=60" in found.text
    assert found.name == "llama-m.service"


def test_a_unit_sees_the_files_that_its_command_names() -> None:
    own = sys.prefix.startswith("/tmp/")  # Arriero itself is there: then the unit must see it
    assert ("PrivateTmp=yes" in made("systemd", "llama-server -m /m.gguf").text) is not own
    assert "PrivateTmp" not in made("systemd", "llama-server -m /tmp/m.gguf").text


@given(WORDS)
def test_systemd_reads_the_words_as_they_are(words: list[str]) -> None:
    text = formats.unit(model="m", argv=["/a", *words], environ={}, cwd="/", stop_s=1)
    assert exec_start(text) == ["/a", *words]


@given(WORDS)
def test_compose_reads_the_words_as_they_are(words: list[str]) -> None:
    text = formats.compose(
        argv=words,
        environ={"A": words[0]},
        mounts={},
        published="1:1",
        port=1,
        prefix="",
        stop_s=1,
    )
    service = yaml.safe_load(text)["services"]["llama"]
    assert [word.replace("$$", "$") for word in service["command"]] == words
    assert service["environment"]["A"].replace("$$", "$") == words[0]


@given(WORDS)
def test_llama_swap_reads_the_words_as_they_are(words: list[str]) -> None:
    text = formats.swap(model="m", argv=words, environ={}, prefix="", limit=9)
    assert shlex.split(yaml.safe_load(text)["models"]["m"]["cmd"]) == words


def test_a_compose_file_mounts_what_the_command_reads() -> None:
    found = made("compose", "llama-server -m /models/a/m.gguf --mmproj /models/b/p.gguf")
    service = yaml.safe_load(found.text)["services"]["llama"]
    assert {(one["source"], one["target"]) for one in service["volumes"]} == {
        ("/models/a", "/data/1"),
        ("/models/b", "/data/2"),
    }
    assert after(service["command"]) == [
        "llama-server", "-m", "/data/1/m.gguf", "--mmproj", "/data/2/p.gguf",
    ]  # fmt: skip
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert "--allow-no-key" in service["command"]


def test_a_compose_file_of_an_open_address_asks_for_a_key() -> None:
    found = made("compose", f"llama-server -m /m.gguf --host 0.0.0.0 --port 90 --api-key {KEY}")
    service = yaml.safe_load(found.text)["services"]["llama"]
    assert service["ports"] == ["90:8080"]
    assert "--allow-no-key" not in service["command"]
    assert "--api-key-file" in service["command"]


def test_llama_swap_gives_the_port() -> None:
    found = made("llama-swap", "llama-server -m /m/qwen.gguf --api-prefix /x")
    model = yaml.safe_load(found.text)["models"]["qwen"]
    words = shlex.split(model["cmd"])
    assert words[words.index("--listen") + 1] == "127.0.0.1:${PORT}"
    assert model["checkEndpoint"] == "/x/health"


def test_caddy_passes_streams_on_and_waits() -> None:
    found = made("caddy", "llama-server -m /m.gguf --port 9000", {"allow-host": ("a.example",)})
    assert found.text.startswith("a.example {\n\treverse_proxy 127.0.0.1:9000 {")
    assert "flush_interval -1" in found.text
    unix = made("caddy", "llama-server -m /m.gguf --host run/x.sock")
    assert "reverse_proxy unix//srv/x/run/x.sock {" in unix.text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "text",
    [
        f"llama-server -m m.gguf --api-key {KEY}",
        f"LLAMA_API_KEY={KEY} llama-server -m m.gguf",
        f"env HF_TOKEN={KEY} llama-server -m m.gguf",
    ],
)
def test_no_secret_is_written(target: Target, text: str) -> None:
    found = made(target, text)
    assert KEY not in json.dumps([found.text, *found.notes])
    assert any("put the key" in note or "fill in" in note for note in found.notes)


def test_a_command_that_cannot_be_served_is_refused() -> None:
    with pytest.raises(UsageError, match="no llama-server command"):
        export("systemd", [], Sources({}, {}, Path("/")))
    with pytest.raises(UsageError, match="prints something"):
        made("systemd", "llama-server --version")
    with pytest.raises(UsageError, match="--hold"):
        made("systemd", "llama-server -m m.gguf", {"hold": "soon"})


def test_caddy_takes_the_site(tmp_path: Path) -> None:
    caddy = shutil.which("caddy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if caddy is None:
        pytest.skip("no caddy here")
    file = tmp_path / "Caddyfile"
    file.write_text(made("caddy", "llama-server -m /m.gguf --port 9000").text)
    words = [caddy, "adapt", "--config", str(file), "--adapter", "caddyfile"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "127.0.0.1:9000" in done.stdout


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("no systemd here")
    file = tmp_path / "llama.service"
    text = made(
        "systemd", "/bin/true -m /m.gguf -c 5 --alias 'a \"b\" 100% $X'", home=tmp_path
    ).text
    file.write_text(text)
    done = subprocess.run(
        [verify, "verify", str(file)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "llama.service" in line]
    assert told == []
