"""A stream that breaks anywhere becomes the answer that it would have been."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from arriero.serve.apis.interface import Continue
from tests.serve.apis.streams import BODIES, PROMPT, WORDS, Engine, asked, events, said

PATHS = sorted(BODIES)


def _cut(path: str, at: int, *, again: int | None = None) -> tuple[bytes, Engine]:
    """What a client gets whose stream breaks after so many bytes, and once more later."""
    answer, engine = asked(path).answer, Engine()
    assert answer is not None
    got = answer.feed(events(path, WORDS)[:at])
    for cut in ([again] if again is not None else []) + [None]:
        assert answer.continuable
        rest = engine.rest(asyncio.run(answer.rest(engine.ask)))[:cut]
        for begin in range(0, len(rest), 11):
            got += answer.feed(rest[begin : begin + 11])
    assert answer.whole
    return got, engine


def _before(stream: bytes, word: str) -> bytes:
    """The events before the one that says the word."""
    return stream[: stream.rindex(b"\n\n", 0, stream.index(word.encode())) + 2]


def _same(told: list[Any]) -> list[Any]:
    """Without what tells of the last part alone, by intent or because it was read from a cache."""
    found: list[Any] = json.loads(json.dumps(told), object_hook=_shared)
    return found


def _shared(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _PART}


_PART = {"timings", "cached_tokens", "tokens"}


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_cut_at_any_byte_is_told_as_if_it_had_not_been(path: str) -> None:
    stream = events(path, WORDS)
    undisturbed = said(path, stream)
    named = path == "/v1/responses"  # its text has an id of its own, told a few events later
    begin = len(_before(stream, WORDS[0])) if named else stream.index(b"\n\n") + 2
    for at in range(begin, len(stream), 7):
        got, _ = _cut(path, at)
        assert _same(said(path, got)) == _same(undisturbed), at


@pytest.mark.parametrize("path", PATHS)
def test_the_engine_can_die_again_before_and_while_it_tells_the_rest(path: str) -> None:
    stream = events(path, WORDS)
    middle = stream.index(" 漢字".encode())
    for again in range(0, len(stream) - middle, 37):
        got, _ = _cut(path, middle, again=again)
        assert _same(said(path, got)) == _same(said(path, stream)), again


@pytest.mark.parametrize("path", PATHS)
def test_whole_events_pass_as_they_came_however_they_arrive(path: str) -> None:
    stream = events(path, WORDS)
    for size in (1, 2, 3, 1000, len(stream)):
        answer = asked(path).answer
        assert answer is not None
        pieces = [answer.feed(stream[at : at + size]) for at in range(0, len(stream), size)]
        assert b"".join(pieces) == stream
        assert all(piece.endswith(b"\n\n") for piece in pieces if piece)
        assert answer.whole


@pytest.mark.parametrize("path", PATHS)
def test_words_that_look_like_an_end_are_none(path: str) -> None:
    answer = asked(path).answer
    assert answer is not None
    words = events(path, WORDS)
    got = answer.feed(words[: words.index(b'"!"') - 1])
    assert not answer.whole
    assert b"message_stop" in got  # nothing that came before was held back for it


@pytest.mark.parametrize("path", PATHS)
def test_what_is_left_is_asked_for_with_as_many_tokens_as_are_left(path: str) -> None:
    stream = events(path, WORDS)
    limit = {"/v1/responses": "max_output_tokens", "/completion": "n_predict"}
    name = limit.get(path, "max_tokens")
    answer, engine = asked(path, Continue.GREEDY, **{name: 10}).answer, Engine()
    assert answer is not None
    answer.feed(_before(stream, " 漢字"))
    assert json.loads(asyncio.run(answer.rest(engine.ask)).body)[name] == 10 - 4


@pytest.mark.parametrize("path", PATHS)
def test_all_tokens_had_come_but_not_the_end(path: str) -> None:
    stream = events(path, WORDS)
    limit = {"/v1/responses": "max_output_tokens", "/completion": "n_predict"}
    answer = asked(path, Continue.GREEDY, **{limit.get(path, "max_tokens"): 4}).answer
    assert answer is not None
    got = answer.feed(_before(stream, " 漢字"))
    rest = asyncio.run(answer.rest(Engine().ask))
    got += answer.feed(events(rest.path, WORDS[4:5], PROMPT + 4, "2"))
    assert answer.whole
    told = [{**one, "prompt": ""} for one in said(path, got) if one != "[DONE]"]
    assert "漢字" not in json.dumps(told, ensure_ascii=False)


def _whole(path: str, broken: int | None) -> tuple[Any, Any]:
    got = asked(path, stream=False)
    answer, engine = got.answer, Engine()
    assert answer is not None
    assert not got.streams
    assert json.loads(got.inside.body)["stream"] is True
    answer.feed(events(path, WORDS)[:broken])
    if broken is not None:
        assert answer.sent
        assert answer.continuable
        answer.feed(engine.rest(asyncio.run(answer.rest(engine.ask))))
    assert answer.whole
    _, body = answer.result()
    return json.loads(body), engine


@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_is_put_together_the_same_with_and_without_a_break(path: str) -> None:
    stream = events(path, WORDS)
    undisturbed, _ = _whole(path, None)
    assert "".join(WORDS) in _texts(undisturbed)
    for word in WORDS[1:-1:2]:
        at = stream.index(json.dumps(word, ensure_ascii=False).encode()) + 2
        broken, _ = _whole(path, at)
        assert _same([broken]) == _same([undisturbed])


def _texts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value]


@pytest.mark.parametrize("path", PATHS)
def test_an_error_of_the_engine_is_not_passed_on_as_the_end(path: str) -> None:
    answer = asked(path).answer
    assert answer is not None
    error = b'data: {"error":{"code":500,"message":"out","type":"server_error"}}\n\n'
    stream = events(path, WORDS)
    head = answer.feed(_before(stream, " 漢字"))
    assert answer.feed(error) == b""
    assert answer.failure == error
    assert not answer.whole
    assert head


def test_a_conversation_that_the_chat_reads_in_another_way_is_not_continued() -> None:
    from arriero.serve.apis.interface import ApiError

    class Other(Engine):
        async def ask(self, path: str, body: bytes) -> bytes:
            found = json.loads(await super().ask(path, body))
            return json.dumps(
                {name: [*value, 1] if name == "tokens" else value for name, value in found.items()}
            ).encode()

    stream = events("/v1/messages", WORDS)
    answer = asked("/v1/messages").answer
    assert answer is not None
    answer.feed(_before(stream, " 漢字"))
    with pytest.raises(ApiError, match="another way"):
        asyncio.run(answer.rest(Other().ask))


CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}


@pytest.mark.parametrize("delta", [{"tool_calls": [CALL]}, {"reasoning_content": "hm"}])
def test_never_across_a_tool_call_or_a_thought(delta: Any) -> None:
    answer = asked("/v1/chat/completions").answer
    assert answer is not None
    chunk = {"choices": [{"finish_reason": None, "index": 0, "delta": delta}], "id": "1"}
    answer.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    assert answer.sent
    assert not answer.continuable


MANY: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"tools": [{"type": "function"}]}, "tools"),
    ("/v1/chat/completions", {"response_format": {"type": "json_object"}}, "grammar"),
    ("/v1/chat/completions", {"n": 2}, "several"),
    ("/v1/chat/completions", {"logprobs": True}, "probabilities"),
    ("/v1/chat/completions", {"temperature": 0.7}, "sampled"),
    ("/v1/chat/completions", {"temperature": 0, "xtc_probability": 0.5}, "sampled"),
    ("/v1/chat/completions", {"temperature": 0, "dynatemp_range": 0.5}, "sampled"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "plain text",
    ),
    ("/completion", {"grammar": "root ::= x"}, "grammar"),
    ("/completion", {"json_schema": {"type": "object"}}, "grammar"),
    ("/completion", {"prompt": ["a", "b"]}, "several prompts"),
    ("/completion", {"n_probs": 3}, "probabilities"),
    ("/v1/messages", {"stop_sequences": ["x"]}, "stop sequence"),
    ("/v1/responses", {"text": {"format": {"type": "json_schema"}}}, "grammar"),
]


@pytest.mark.parametrize(("path", "more", "why"), MANY)
def test_what_cannot_be_continued_says_why_and_goes_to_the_engine_as_it_is(
    path: str, more: dict[str, Any], why: str
) -> None:
    streamed, whole = asked(path, **more), asked(path, **{**more, "stream": False})
    assert why in streamed.why_not
    assert whole.answer is None
    assert b'"stream": false' in whole.inside.body
    answer = streamed.answer
    assert answer is not None
    assert answer.continuable
    answer.feed(events(path, WORDS[:2]))
    assert not answer.continuable


def test_sampled_answers_are_continued_where_the_user_allows_it() -> None:
    path = "/v1/chat/completions"
    assert asked(path, Continue.ALWAYS, temperature=1).why_not == ""
    assert asked(path, Continue.NEVER).why_not
    assert asked(path, Continue.GREEDY, temperature=1, top_k=1).why_not == ""
