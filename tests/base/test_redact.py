"""Redaction: nothing planted comes through, nothing that matters is lost."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from arriero.base.redact import Redactor
from arriero.base.secret import SECRET, secrets_of
from arriero.record import Diagnosis, Explanation, Verification
from tests.examples import example_diagnosis, example_explanation, example_verification

DATA = Path(__file__).parent / "data" / "redaction"


def load_cases() -> list[Any]:
    found = []
    for path in sorted(DATA.glob("*.toml")):
        for case in tomllib.loads(path.read_text("utf-8")).get("case", []):
            found.append(pytest.param(case, id=f"{path.stem}: {case['name']}"))
    return found


def load_lines() -> list[str]:
    lines: list[str] = tomllib.loads((DATA / "survive.toml").read_text("utf-8"))["lines"]
    return lines


def redactor_for(case: dict[str, Any]) -> Redactor:
    return Redactor(
        secrets=case.get("known", ()), users=case.get("users", ()), hosts=case.get("hosts", ())
    )


def redact(case: dict[str, Any], *, share: bool) -> Any:
    """The case's text, argument list or document."""
    return redacted(
        redactor_for(case), case.get("text") or case.get("argv") or case["document"], share=share
    )


def redacted(redactor: Redactor, value: Any, *, share: bool) -> Any:
    if isinstance(value, str):
        return redactor.share(value) if share else redactor.secrets(value)
    return redactor.scrub(value, share=share)


@pytest.mark.parametrize("case", load_cases())
def test_nothing_planted_comes_through(case: dict[str, Any]) -> None:
    kept, shared = (str(redact(case, share=share)) for share in (False, True))
    for planted in case.get("secrets", ()):
        assert planted not in kept
        assert planted not in shared
    for planted in case.get("private", ()):
        assert planted not in shared
    for wanted in case.get("keeps", ()):
        assert wanted in shared


@pytest.mark.parametrize("case", load_cases())
def test_keeping_takes_out_secrets_only(case: dict[str, Any]) -> None:
    """Paths and names stay readable in the terminal and in the record."""
    kept = str(redact(case, share=False))
    original = str(case.get("text") or case.get("argv") or case["document"])
    for name in ("maribel", "atlas77", "10.0.69.2", "/srv/acme"):
        if name in original and "secrets" not in case:
            assert name in kept


@pytest.mark.parametrize("case", load_cases())
def test_twice_is_once(case: dict[str, Any]) -> None:
    for share in (False, True):
        once = redact(case, share=share)
        assert redacted(Redactor(), once, share=share) == once


@pytest.mark.parametrize("line", load_lines())
def test_what_matters_survives(line: str) -> None:
    assert Redactor().share(line) == line


def test_facts_survive_beside_names_that_look_like_words() -> None:
    redactor = Redactor(users=["llama", "root", "abe"], hosts=["server", "cuda"])
    text = (
        "llama_context: n_ctx = 4096, commit abe41c2, CUDA0 buffer, srv  llama_server: cuda error"
    )
    assert redactor.share(text) == text


def test_one_host_keeps_one_alias_over_a_bundle() -> None:
    redactor = Redactor()
    first = redactor.share("RPC0[10.0.0.9:50052] buffer")
    second = redactor.share("Failed to connect to 10.0.0.9:50052")
    assert first == "RPC0[worker-1:50052] buffer"
    assert second == "Failed to connect to worker-1:50052"


def test_secret_seen_in_one_text_is_taken_out_of_the_next() -> None:
    redactor = Redactor()
    redactor.learn({"argv": ["llama-server", "--api-key", "correct horse"]})
    assert redactor.secrets("the key is correct horse.") == f"the key is {SECRET}."


def test_names_are_taken_out_of_what_comes_before_the_place_that_tells_them() -> None:
    document = {
        "notes": ["tower9 is slow", "ask bertha", "quarry was lost"],
        "target": "http://tower9:8080",
        "log": "\\\\quarry\\share\\m.gguf",
        "source": "/home/bertha/server.log",
        "fetched": "https://bertha:pw@127.0.0.1/",
    }
    shared = str(Redactor().scrub(document, share=True))
    assert not [name for name in ("tower9", "bertha", "quarry") if name in shared]
    assert "host-1 is slow" in shared


def test_secrets_of_a_command(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# comment\nfile-key-1\n\nfile-key-2\n", "utf-8")
    found = secrets_of(
        ["llama-server", "--api-key", "a,b", "--hf-token=c", "-np", "4"],
        {
            "LLAMA_API_KEY": "d",
            "LLAMA_ARG_API_KEY_FILE": str(keys),
            "HOME": "/root",
            "PWD": "/srv/llm",
            "OLDPWD": "/srv",
        },
    )
    assert found == {"a,b", "a", "b", "c", "d", "file-key-1", "file-key-2"}
    assert secrets_of(["llama-server", "--api-key-file", str(tmp_path / "none")], {}) == frozenset()
    assert secrets_of(["llama-server", "--api-key"], {}) == frozenset()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (example_diagnosis, Diagnosis),
        (example_explanation, Explanation),
        (example_verification, Verification),
    ],
)
@pytest.mark.parametrize("share", [False, True])
def test_documents_keep_their_schema(
    make: Callable[[], msgspec.Struct], kind: type[msgspec.Struct], share: bool
) -> None:
    # Names that are also words of the contract must not damage it.
    redactor = Redactor(users=["hybrid", "slot", "id", "served", "ana"], hosts=["baseline"])
    document = make()
    scrubbed = redactor.scrub(document, share=share)
    text = msgspec.json.encode(scrubbed)
    assert msgspec.json.decode(text, type=kind) == scrubbed
    assert scrubbed == redactor.scrub(scrubbed, share=share)
    if share:
        assert b"/home" not in text
        assert b'"ana' not in text


def test_numbers_and_verdict_of_a_shared_document_are_untouched() -> None:
    document = example_diagnosis()
    shared = Redactor().scrub(document, share=True)
    assert shared.boundary == document.boundary
    assert shared.slopes == document.slopes
    assert shared.verdict == document.verdict
    assert [trial.peak for trial in shared.trials] == [trial.peak for trial in document.trials]
    assert [trial.buffers for trial in shared.trials] == [t.buffers for t in document.trials]
    assert shared.baseline.argv[1:3] == ("-m", "<dir>/hybrid-40l.gguf")


CHARACTERS = st.lists(
    st.sampled_from(
        [*"aZ9_-./\\:=@%?&~'\"`,;|<>()[]{} \n\t", "\x1b[32m", "é", "hf_", "/home/", "--api-key "]
    ),
    max_size=40,
).map("".join)
SECRETS = st.text(st.sampled_from("abcXYZ0189_-+/=.~!#$^*é '\""), min_size=8, max_size=40).filter(
    lambda s: s.strip() == s and SECRET not in s
)


@given(CHARACTERS, SECRETS, CHARACTERS, st.sampled_from(["raw", "json", "url"]))
@settings(deadline=None)
def test_known_secret_never_survives(before: str, secret: str, after: str, form: str) -> None:
    written = {
        "raw": secret,
        "json": json.dumps(secret)[1:-1],
        "url": quote(secret, safe=""),
    }[form]
    redactor = Redactor(secrets=[secret])
    for text in (
        redactor.secrets(before + written + after),
        redactor.share(before + written + after),
    ):
        # What is left could only be there if the surroundings spelt it.
        assert written not in text or written in before + SECRET + after


@given(CHARACTERS, st.sampled_from(["hf_", "ghp_", "github_pat_"]), CHARACTERS)
@settings(deadline=None)
def test_shaped_secret_never_survives(before: str, prefix: str, after: str) -> None:
    body = "Ab3Cd6Ef9Gh2Ij5Kl8Mn"
    text = f"{before}{prefix}{body}{after}"
    assert body not in Redactor().secrets(text)
    assert body not in Redactor().share(text)


NAMES = st.sampled_from(
    ["passwd", "password", "api_key", "api-key", "API_KEY", "hf-token", "db_password", "cookie"]
)
SEGMENT = st.from_regex(r"[a-z][a-z0-9_.-]{0,7}", fullmatch=True)
PATHS = st.builds(
    lambda root, parts, name: root + "".join(f"{part}/" for part in parts) + name,
    st.sampled_from(["/etc/", "~/", "./", "../", "/run/secrets/", "C:/x/"]),
    st.lists(SEGMENT, max_size=3),
    NAMES,
)
BEFORE = st.sampled_from(["", "cat: ", "cannot read ", "open (", "a\n", 'b="'])
WORD = st.from_regex(r"[A-Za-z]{1,11}", fullmatch=True)


@given(BEFORE, PATHS, st.sampled_from([": ", ":\t", ":  "]), st.lists(WORD, min_size=1, max_size=5))
@example("cat: ", "/etc/passwd", ": ", ["Permission", "denied"])
@settings(deadline=None)
def test_what_is_said_of_a_file_is_no_secret(
    before: str, path: str, colon: str, words: list[str]
) -> None:
    text = f"{before}{path}{colon}{' '.join(words)}"
    assert Redactor().secrets(text) == text
    assert Redactor().share(text).endswith(f"{colon}{' '.join(words)}")


@given(
    st.sampled_from(
        ["{}: Ab3Cd6Ef9Gh2", "{}: 'hunter'", "{}=hunter", "{}:hunter", '"{}": "hunter"',
         "{}:\nhunter"]
    ),
    PATHS,
)  # fmt: skip
@settings(deadline=None)
def test_the_key_of_a_path_is_one_where_a_value_follows(form: str, path: str) -> None:
    hidden = Redactor().secrets(form.format(path))
    assert "hunter" not in hidden
    assert "Ab3Cd6" not in hidden


@given(st.sampled_from(["", "user/", "a b/c/", "https://h/", "ab:/", "/", "\\n", "/a/b\\n"]), NAMES)
def test_a_key_without_a_path_of_its_own_hides_what_follows(before: str, name: str) -> None:
    assert "hunter" not in Redactor().secrets(f"{before}{name}: hunter")


@given(
    CHARACTERS,
    st.sampled_from(
        ["/home/{}/m.gguf", "/Users/{}/m.gguf", "C:\\Users\\{}\\m.gguf", "/mnt/c/Users/{}/m.gguf"]
    ),
    CHARACTERS,
)
@settings(deadline=None)
def test_user_of_a_home_path_never_survives(before: str, path: str, after: str) -> None:
    text = before + path.format("zqxwvut") + after
    assert "zqxwvut" not in Redactor().share(text)


@given(CHARACTERS)
@example("--api-key 'a")
@example("/a/b c/d /e")
@settings(deadline=None, max_examples=300)
def test_twice_is_once_on_any_text(text: str) -> None:
    for method in (Redactor.secrets, Redactor.share):
        once = method(Redactor(), text)
        assert method(Redactor(), once) == once


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=12),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
@settings(deadline=None)
def test_any_json_value_is_scrubbed_without_trouble(value: Any) -> None:
    for share in (False, True):
        scrubbed = Redactor().scrub(value, share=share)
        assert type(scrubbed) is type(value)
        json.dumps(scrubbed)


HOSTILE = (
    "a|/|\\|'|\"|-|a.|a@|:|1.|eyJ|a/|/a |~a|C:\\a |//a|://|--api-key |token=|"
    '{"prompt":[|{"prompt":"|-----BEGIN PRIVATE KEY-----|RPC0[a:1|prompt: \'|hf_|\\\\a|aa:|0:|'
    "INPUT: x\n|[|password: |%2F|serial |a-|http://|a b/|/home/|@a.com|https://a@|--rpc a:1,|"
    "x=\\'|\\\"|'/a b|host: |/a/passwd: |~/(/a|C:\\passwd: "
)


@pytest.mark.thorough
@pytest.mark.timeout(40)
@pytest.mark.parametrize("unit", HOSTILE.split("|"))
def test_hostile_text_takes_linear_time(unit: str) -> None:
    """A quadratic pattern would run into the test's time limit here."""
    text = unit * (100_000 // len(unit))
    Redactor().share(text)
