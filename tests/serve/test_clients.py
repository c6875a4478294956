"""Official clients, unchanged: through Arriero they get what the engine itself gives them."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from tests.serve.direct import direct
from tests.serve.fake_engine import Home, Order
from tests.serve.front import Front
from tests.serve.model import small_model

KEY = "sk-one-of-many"
BUILD = 10434
CHANGING = {
    "id", "created", "created_at", "completed_at", "timings", "system_fingerprint",
    "prompt_tokens_details", "input_tokens_details", "cache_read_input_tokens", "tokens_cached",
    "item_id", "id_slot", "id_task", "build_info", "media_marker",
}  # fmt: skip
"""What differs from one answer of the engine to the next."""
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
        },
    },
}
SAID: Any = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: Any = {"temperature": 0}

pytestmark = pytest.mark.engine
Ways = tuple[str, str]
"""The URL of the engine itself, and that of Arriero before another one."""


def same(value: Any) -> Any:
    """A value without what changes from one answer to the next."""
    if isinstance(value, dict):
        return {name: same(inner) for name, inner in value.items() if name not in CHANGING}
    return [same(inner) for inner in value] if isinstance(value, list) else value


def both(
    engine: Path, words: list[str | Path], root: Path, options: tuple[str | Path, ...] = ()
) -> Iterator[Ways]:
    command = [engine, *words, "--port", "0"]
    with direct(engine, words, root / "log") as (url, _), Front(root, command, options) as front:
        yield url, front.url


@pytest.fixture(scope="module")
def ways(
    engine_path: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    root = tmp_path_factory.mktemp("chat")
    words: list[str | Path] = ["-m", small_model(), "-c", "4096", "-np", "1"]
    words += ["--api-key", KEY, "--metrics"]
    yield from both(engine_path(BUILD), [*words, "--slot-save-path", root / "."], root)


def asked(ways: Ways, ask: Callable[[openai.OpenAI], Any]) -> list[Any]:
    """What the OpenAI client gets, both ways."""
    found = []
    for url in ways:
        with openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
            found.append(ask(client))
    return found


def messages(ways: Ways, ask: Callable[[anthropic.Anthropic], Any]) -> list[Any]:
    """What the Anthropic client gets, both ways."""
    found = []
    for url in ways:
        with anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0) as client:
            found.append(ask(client))
    return found


def dumped(stream: Any) -> list[Any]:
    return [same(event.model_dump()) for event in stream]


OPENAI: dict[str, Callable[[openai.OpenAI], Any]] = {
    "chat": lambda client: same(
        client.chat.completions.create(
            model="m", messages=SAID, max_tokens=20, temperature=0
        ).model_dump()
    ),
    "chat, streamed": lambda client: dumped(
        client.chat.completions.create(
            model="m", messages=SAID, max_tokens=20, temperature=0, stream=True,
            stream_options={"include_usage": True},
        )
    ),
    "a tool": lambda client: same(
        client.chat.completions.create(
            model="m", messages=SAID, max_tokens=60, temperature=0, tools=[TOOL],
            tool_choice="required",
        ).model_dump()
    ),
    "a tool, streamed": lambda client: dumped(
        client.chat.completions.create(
            model="m", messages=SAID, max_tokens=60, temperature=0, tools=[TOOL],
            tool_choice="required", stream=True,
        )
    ),
    "a schema": lambda client: same(
        client.chat.completions.create(
            model="m", messages=SAID, max_tokens=30, temperature=0,
            response_format={"type": "json_object"},
        ).model_dump()
    ),
    "two answers": lambda client: same(
        client.chat.completions.create(
            model="m", messages=SAID, max_tokens=8, temperature=0, n=1, logprobs=True,
            top_logprobs=2,
        ).model_dump()
    ),
    "text": lambda client: same(
        client.completions.create(
            model="m", prompt="Once upon a time", max_tokens=20, temperature=0
        ).model_dump()
    ),
    "text, streamed": lambda client: dumped(
        client.completions.create(
            model="m", prompt="Once upon a time", max_tokens=20, temperature=0, stream=True
        )
    ),
    "a stop word": lambda client: same(
        client.completions.create(
            model="m", prompt="One, two, three,", max_tokens=20, temperature=0, stop=["seven"]
        ).model_dump()
    ),
    "responses": lambda client: same(
        client.responses.create(
            model="m", input="Say hello.", max_output_tokens=12, temperature=0
        ).model_dump()
    ),
    "responses, streamed": lambda client: dumped(
        client.responses.create(
            model="m", input="Say hello.", max_output_tokens=12, temperature=0, stream=True
        )
    ),
    "models": lambda client: dumped(client.models.list()),
}  # fmt: skip


QUICK = {"chat", "chat, streamed", "text, streamed", "responses, streamed", "models"}


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in OPENAI],
)
def test_openai(name: str, ways: Ways) -> None:
    engine, arriero = asked(ways, OPENAI[name])
    assert arriero == engine


def _stream(client: anthropic.Anthropic) -> Any:
    with client.messages.stream(
        model="m", messages=SAID, max_tokens=20, extra_body=GREEDY
    ) as stream:
        events = dumped(stream)
        return events, same(stream.get_final_message().model_dump())


ANTHROPIC: dict[str, Callable[[anthropic.Anthropic], Any]] = {
    "message": lambda client: same(
        client.messages.create(
            model="m", messages=SAID, max_tokens=20, extra_body=GREEDY, system="Be brief."
        ).model_dump()
    ),
    "streamed": _stream,
    "a tool": lambda client: same(
        client.messages.create(
            model="m", messages=SAID, max_tokens=60, extra_body=GREEDY,
            tools=[
                {
                    "name": "get_weather",
                    "input_schema": TOOL["function"]["parameters"],
                }
            ],
            tool_choice={"type": "any"},
        ).model_dump()
    ),
    "counted": lambda client: same(
        client.messages.count_tokens(model="m", messages=SAID).model_dump()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANTHROPIC)
def test_anthropic(name: str, ways: Ways) -> None:
    engine, arriero = messages(ways, ANTHROPIC[name])
    assert arriero == engine


NATIVE: dict[str, tuple[str, str, Any]] = {
    "tokenize": ("POST", "/tokenize", {"content": "日本 🦙", "add_special": True}),
    "detokenize": ("POST", "/detokenize", {"tokens": [1000, 2000]}),
    "template": ("POST", "/apply-template", {"messages": SAID}),
    "completion": ("POST", "/completion", {"prompt": "A", "n_predict": 9, "temperature": 0}),
    "probabilities": (
        "POST", "/completion", {"prompt": "A", "n_predict": 3, "temperature": 0, "n_probs": 3}
    ),
    "tokens": (
        "POST", "/completion",
        {"prompt": [2, 1000], "n_predict": 5, "temperature": 0, "return_tokens": True},
    ),
    "several prompts": (
        "POST", "/completion", {"prompt": ["A", "B"], "n_predict": 5, "temperature": 0}
    ),
    "grammar": (
        "POST", "/completion",
        {"prompt": "A", "n_predict": 9, "temperature": 0, "grammar": 'root ::= "yes" | "no"'},
    ),
    "infill": ("POST", "/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 3}),
    "no embeddings": ("POST", "/v1/embeddings", {"input": "a"}),
    "slot saved": ("POST", "/slots/0?action=save", {"filename": "one.bin"}),
    "slot erased": ("POST", "/slots/0?action=erase", {}),
    "models": ("GET", "/v1/models", None),
    "health": ("GET", "/health", None),
    "adapters": ("GET", "/lora-adapters", None),
    "nothing there": ("GET", "/nothing", None),
    "not JSON": ("POST", "/completion", "{"),
    "no prompt": ("POST", "/completion", {}),
    "too long": ("POST", "/completion", {"prompt": "word " * 5000, "n_predict": 1}),
}  # fmt: skip


def native(url: str, method: str, path: str, body: Any, key: str = KEY) -> tuple[int, Any]:
    data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url + path, data, headers, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            status, raw = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, raw = error.code, error.read()
    try:
        return status, same(json.loads(raw))
    except ValueError:
        return status, raw


@pytest.mark.parametrize("name", NATIVE)
def test_native(name: str, ways: Ways) -> None:
    method, path, body = NATIVE[name]
    engine, arriero = (native(url, method, path, body) for url in ways)
    if name.startswith("slot"):  # how much a slot holds differs by Arriero's own completions
        for size in {"n_written", "n_saved", "n_erased"} & {*engine[1]}:
            assert arriero[1].pop(size) > 0 < engine[1].pop(size)
    assert arriero == engine


def test_slots_and_metrics_of_the_engine(ways: Ways) -> None:
    for path in ("/slots", "/props"):
        engine, arriero = (native(url, "GET", path, None) for url in ways)
        assert engine[0] == arriero[0] == 200
        if path == "/slots":
            assert [slot["n_ctx"] for slot in arriero[1]] == [slot["n_ctx"] for slot in engine[1]]
        else:
            assert arriero[1] == engine[1]
    assert b"llamacpp:" in native(ways[1], "GET", "/metrics", None)[1]


def test_a_wrong_key(ways: Ways) -> None:
    for url in ways:
        wrong = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-other", max_retries=0)
        with wrong, pytest.raises(openai.AuthenticationError):
            wrong.chat.completions.create(model="m", messages=SAID)
        other = anthropic.Anthropic(base_url=url, api_key="sk-other", max_retries=0)
        with other, pytest.raises(anthropic.AuthenticationError):
            other.messages.create(model="m", messages=SAID, max_tokens=3)


def test_embeddings(engine_path: Callable[[int], Path], tmp_path: Path) -> None:
    words: list[str | Path] = ["-m", write_model(tmp_path / "tiny.gguf", tiny("llama"))]
    words += ["-c", "512", "-np", "1", "--embeddings", "--pooling", "mean"]
    for ways in both(engine_path(BUILD), words, tmp_path):
        engine, arriero = asked(
            ways,
            lambda client: client.embeddings.create(model="m", input=["one", "two"]).model_dump(),
        )
        assert arriero == engine
        assert len(arriero["data"]) == 2


def test_rerank(engine_path: Callable[[int], Path], tmp_path: Path) -> None:
    words: list[str | Path] = ["-m", write_model(tmp_path / "tiny.gguf", tiny("llama"))]
    words += ["-c", "512", "-np", "1", "--reranking"]
    body = {"query": "hi", "documents": ["one", "two", "three"]}
    for ways in both(engine_path(BUILD), words, tmp_path):
        engine, arriero = (native(url, "POST", "/v1/rerank", body) for url in ways)
        assert arriero == engine
        assert len(arriero[1]["results"]) == 3


def test_clients_raise_on_a_stream_that_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    home = Home(tmp_path / "engine")
    model = write_model(tmp_path / "tiny.gguf", tiny("llama"))
    command: list[str | Path] = [
        home.install(),
        "-m",
        model,
        "-c",
        "4096",
        "-np",
        "1",
        "--port",
        "0",
    ]
    said: Any = [{"role": "user", "content": "job:a:9"}]
    with Front(tmp_path, command) as front:
        home.order(Order("words", words=4))
        client = openai.OpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)
        with client, pytest.raises(openai.APIError):
            for _ in client.chat.completions.create(
                model="m", messages=said, temperature=1, stream=True
            ):
                pass
        home.order(Order("words", words=4))
        other = anthropic.Anthropic(base_url=front.url, api_key="none", max_retries=0)
        with other, pytest.raises(anthropic.APIError):
            for _ in other.messages.create(
                model="m", messages=said, max_tokens=20, extra_body={"temperature": 1}, stream=True
            ):
                pass
        assert front.settled()["requests"]["error_events"] == 2
