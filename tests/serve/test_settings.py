"""One table of settings, and the three places from which they come."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.base.errors import ArrieroError, NotFoundError, UsageError
from arriero.serve.settings import (
    BY_NAME,
    TABLE,
    Gates,
    Listen,
    Restarts,
    Setting,
    Settings,
    changed,
    json_schema,
    parse_listen,
)
from arriero.serve.settings_sources import Sources, Value


def read(
    options: dict[str, Value] | None = None,
    environ: dict[str, str] | None = None,
    cwd: Path = Path("/x"),
) -> Settings:
    return Sources(options or {}, environ or {}, cwd).settings()


def file_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "serve.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_field_is_a_setting_and_every_setting_a_field() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert {one.attribute for one in TABLE} == fields


@pytest.mark.parametrize("setting", TABLE, ids=lambda one: one.name)
def test_what_help_calls_the_default_is_the_default(setting: Setting) -> None:
    value = getattr(Settings(), setting.attribute)
    if setting.default:
        assert setting.parse(setting.default) == value
    else:
        assert value in (None, ())


@pytest.mark.parametrize(
    "setting", [one for one in TABLE if one.name != "config"], ids=lambda one: one.name
)
def test_a_setting_reads_the_same_from_each_place(setting: Setting, tmp_path: Path) -> None:
    told = "true" if setting.switch else f'"{setting.example}"'
    path = file_of(tmp_path, f"{setting.name} = {told}\n")
    given: Value = (setting.example,) if setting.many else setting.example
    from_option = read({setting.name: given}, cwd=tmp_path)
    from_environ = read(environ={setting.env: setting.example}, cwd=tmp_path)
    from_file = read({"config": str(path)}, cwd=tmp_path)
    assert from_option == from_environ == dataclasses.replace(from_file, config=None)
    if setting.example != setting.default:
        assert getattr(from_option, setting.attribute) != getattr(Settings(), setting.attribute)


def test_an_option_counts_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, 'hold = 1\nqueue = 2\ndrain = "3s"\n')
    options: dict[str, Value] = {"config": str(path), "hold": "10"}
    found = read(options, {"ARRIERO_SERVE_HOLD": "20", "ARRIERO_SERVE_QUEUE": "30"})
    assert (found.hold, found.queue, found.drain) == (10.0, 30, 3.0)


def test_paths_in_a_file_start_where_the_file_is(tmp_path: Path) -> None:
    path = file_of(tmp_path, 'api-key-file = ["a", "/b"]\nlisten = "run/x.sock"\n')
    found = read({"config": str(path)})
    assert found.api_key_file == (tmp_path / "a", Path("/b"))
    assert found.listen == Listen("", 0, tmp_path / "run/x.sock")


def test_several_are_parted_by_commas_in_the_environment() -> None:
    found = read(environ={"ARRIERO_SERVE_ALLOW_HOST": "A.example, b.example,"})
    assert found.allow_host == ("a.example", "b.example")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("8080", Listen("127.0.0.1", 8080)),
        (":8080", Listen("127.0.0.1", 8080)),
        ("0.0.0.0:80", Listen("0.0.0.0", 80)),  # noqa: S104 - only read
        ("[::1]:8080", Listen("::1", 8080)),
        ("http://localhost:1/", Listen("localhost", 1)),
        ("/run/x.sock", Listen("", 0, Path("/run/x.sock"))),
    ],
)
def test_an_address_to_listen_on(text: str, wanted: Listen) -> None:
    assert parse_listen(text) == wanted


@pytest.mark.parametrize(
    "text", ["", "a:b", "::1:8080", "1.2.3.4", "x:65536", "https://x", "a b:1"]
)
def test_no_address_to_listen_on(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("text", "wanted", "hint"),
    [
        ("hodl = 1", "no setting 'hodl'", "write hold"),
        ("hold = [1]", "hold in .* cannot be a list", "hold ="),
        ("hold = 1979-05-27", "cannot be a date", "hold ="),
        ("gates = 'of'", "gates in .*: cannot be 'of'", "auto, off"),
        ("restarts = 5", "does not say in which time", "5/600"),
        ("hold = ", "is no TOML", "mend"),
        ("config = 'x'", "no setting 'config'", "write"),
        ("[serve]\nhold = 1", "no setting 'serve'", "serve"),
        ("queue = -1", "queue in .*: '-1' is not a number", "whole number"),
        ("hold = nan", "hold in", "90s"),
    ],
)
def test_what_a_file_gets_wrong_is_told_in_one_line(
    text: str, wanted: str, hint: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path, text)
    with pytest.raises(UsageError, match=wanted) as caught:
        read({"config": str(path)})
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file"):
        read({"config": str(tmp_path / "none.toml")})


def test_an_endless_file_is_not_read(tmp_path: Path) -> None:
    path = file_of(tmp_path, "# " + "x" * (1 << 20))
    with pytest.raises(UsageError, match="longer than"):
        read({"config": str(path)})


def test_the_file_can_hold_the_command(tmp_path: Path) -> None:
    path = file_of(tmp_path, 'command = ["llama-server", "-m", "x y.gguf"]\n')
    sources = Sources({"config": str(path)}, {}, tmp_path)
    assert sources.command() == ("llama-server", "-m", "x y.gguf")
    assert sources.settings() == Settings(config=path)
    assert Sources({}, {}, tmp_path).command() == ()


@given(st.sampled_from(TABLE), st.text(max_size=40))
def test_any_text_is_a_value_or_an_error_that_names_the_setting(
    setting: Setting, text: str
) -> None:
    failed: ArrieroError | None = None
    try:
        read({setting.name: (text,) if setting.many else text})
    except ArrieroError as error:
        failed = error
    named = failed is None or setting.option in failed.message or setting.name == "config"
    assert named, failed
    assert failed is None or failed.hint


def test_the_schema_takes_the_example_of_every_setting() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    document: dict[str, Any] = {
        one.name: [one.example] if one.many else True if one.switch else one.example
        for one in TABLE
        if one.name != "config"
    }
    document["command"] = ["llama-server"]
    jsonschema.validate(document, schema)
    assert set(schema["properties"]) == set(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"hodl": 1}, schema)


def test_what_a_change_needs_is_told() -> None:
    old, new = Settings(), Settings(hold=1.0, gates=Gates.OFF, restarts=Restarts(1, 1.0))
    live, later = changed(old, new)
    assert [one.name for one in live] == ["hold", "restarts"]
    assert [one.name for one in later] == ["gates"]


def test_names_of_variables_are_those_of_the_options() -> None:
    assert BY_NAME["continue"].env == "ARRIERO_SERVE_CONTINUE"
    assert BY_NAME["api-key-file"].option == "--api-key-file"
