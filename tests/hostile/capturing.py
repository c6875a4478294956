"""What engines print of a text that is planted in everything a client and a model can say.

``python -m tests.hostile.capturing BUILD...`` runs each engine at its highest verbosity, once with
and once without the prefix of its log lines, and writes each kind of line in which the planted text
came out, with the lines around it, to ``data/carriers-BUILD.txt``.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from arriero.gguf import vocabulary
from arriero.gguf.shape import Shape
from arriero.gguf.writer import write_model
from arriero.process import free_port
from tests.conftest import locate_engine

DATA = Path(__file__).parent / "data"
FIRST, LAST = "QZBEGIN", "QZEND"
BETWEEN = "\"\n'"
PLANTED = FIRST + BETWEEN + LAST
"""A quote and a line end show how a carrier writes them."""
TOKEN = 300
"""The planted text is a token of the model, so that the model can write it."""
_USER_DEFINED = 4
_STAMP = re.compile(r"(?:\x1b\[\d*m)*(\d+\.\d\d\.\d{3}\.\d{3}) ")


def write_planted(path: Path, *, controls: bool) -> Path:
    """A small model whose name is planted, one token, and (``controls``) its control tokens."""
    texts, types = vocabulary.tokens, vocabulary.token_types
    special = tuple(PLANTED + str(n) for n in range(3)) if controls else vocabulary._CONTROL
    template = vocabulary.CHAT_TEMPLATE + ("{# " + PLANTED + " #}" if controls else "")

    def planted_texts(count: int) -> Iterator[str]:
        yield from (PLANTED if n == TOKEN else text for n, text in enumerate(texts(count)))

    def planted_types(count: int) -> Iterator[int]:
        yield from (_USER_DEFINED if n == TOKEN else kind for n, kind in enumerate(types(count)))

    with (
        patch.object(vocabulary, "tokens", planted_texts),
        patch.object(vocabulary, "token_types", planted_types),
        patch.object(vocabulary, "_CONTROL", special),
        patch.object(vocabulary, "CHAT_TEMPLATE", template),
    ):
        return write_model(path, Shape(arch="llama", layers=2, name=PLANTED))


class Server:
    """One run of an engine, and requests to it whose answers do not matter."""

    def __init__(self, build: int, model: Path, log: Path, *args: str, **env: str) -> None:
        self.port = free_port()
        self.log = log
        argv = [str(locate_engine(build)), "-m", model.name, "--port", str(self.port)]
        argv += ["-c", "2048", "-np", "2", "-t", "1", *args]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                argv,
                cwd=model.parent,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "GGML_VK_VISIBLE_DEVICES": "99", **env},
            )

    def __enter__(self) -> Server:
        for _ in range(600):
            if self.process.poll() is not None or self.send("GET", "/health") == 200:
                break
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.3)
        self.process.terminate()
        self.process.wait(30)

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> int | None:
        """The status of the answer, which is read whole."""
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            link.request(method, path, text, {"Content-Type": "application/json", **names})
            answer = link.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return None
        return answer.status


def _generate(**more: Any) -> dict[str, Any]:
    return {"n_predict": 3, "temperature": 0, "logit_bias": [[TOKEN, 100]], **more}


MESSAGES = [
    {"role": "system", "content": PLANTED},
    {"role": "user", "content": "hi " + PLANTED},
    {"role": "assistant", "content": PLANTED},
    {"role": "user", "content": [{"type": "text", "text": PLANTED}]},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": PLANTED,
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": PLANTED}},
            "required": ["word"],
        },
    },
}
CALLED = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": PLANTED,
                "type": "function",
                "function": {"name": PLANTED, "arguments": json.dumps({"a": PLANTED})},
            }
        ],
    },
    {"role": "tool", "tool_call_id": PLANTED, "content": PLANTED},
]
SCHEMA = {"type": "object", "properties": {PLANTED: {"const": PLANTED}}, "title": PLANTED}
COMPLETIONS: list[Any] = [
    _generate(prompt="one " + PLANTED + "\ntwo"),
    _generate(prompt="one " + PLANTED + "\ntwo and more", stream=True, stop=[PLANTED]),
    _generate(prompt="other " * 40 + PLANTED),
    _generate(prompt=[1, 2, TOKEN, 3]),
    _generate(prompt="g", grammar='root ::= "QZBEGIN\\"\\n\'QZEND" | "a"'),
    _generate(prompt="g", grammar='root ::= "ab" ' + PLANTED + " ::= 3"),
    _generate(prompt="g", json_schema=SCHEMA),
    _generate(prompt="g", json_schema={"type": PLANTED}),
    _generate(
        prompt="g",
        grammar='root ::= "a"',
        grammar_lazy=True,
        grammar_triggers=[{"type": 1, "value": PLANTED}, {"type": 2, "value": PLANTED}],
        preserved_tokens=[PLANTED],
    ),
    '{"prompt": "' + PLANTED + '" QZBEGIN',
    PLANTED,
    {"prompt": {PLANTED: 1}},
    {"prompt": "x", "n_predict": PLANTED},
    {"prompt": "x", "samplers": [PLANTED], "n_predict": 1},
    {"prompt": "x", "lora": [{"id": PLANTED, "scale": 1}], "n_predict": 1},
    {"prompt": "x " * 5000 + PLANTED, "n_predict": 1},
]
CHATS: list[Any] = [
    _generate(messages=MESSAGES, model=PLANTED),
    _generate(messages=MESSAGES, stream=True),
    _generate(messages=MESSAGES, tools=[TOOL]),
    _generate(messages=MESSAGES, tools=[TOOL], tool_choice="required"),
    _generate(messages=MESSAGES + CALLED, tools=[TOOL]),
    _generate(
        messages=MESSAGES,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": PLANTED, "schema": SCHEMA},
        },
    ),
    _generate(messages=MESSAGES, response_format={"type": PLANTED}),
    _generate(messages=[{"role": PLANTED, "content": PLANTED}]),
    _generate(messages=[{"role": "user", "content": [{"type": PLANTED, "text": PLANTED}]}]),
    _generate(
        messages=[
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PLANTED}}]}
        ]
    ),
    _generate(messages=MESSAGES, chat_template_kwargs={PLANTED: PLANTED}, reasoning_format=PLANTED),
    _generate(messages=MESSAGES, chat_template_kwargs={PLANTED: PLANTED}),
]
OTHERS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/completions", _generate(prompt=PLANTED, model=PLANTED, user=PLANTED)),
    (
        "POST",
        "/v1/messages",
        {
            "model": PLANTED,
            "max_tokens": 3,
            "system": PLANTED,
            "messages": [{"role": "user", "content": PLANTED}],
            "tools": [{"name": "look", "description": PLANTED, "input_schema": SCHEMA}],
        },
    ),
    (
        "POST",
        "/v1/responses",
        {"model": PLANTED, "instructions": PLANTED, "input": PLANTED, "tools": [{"type": PLANTED}]},
    ),
    ("POST", "/infill", _generate(input_prefix=PLANTED, input_suffix=PLANTED, prompt=PLANTED)),
    ("POST", "/tokenize", {"content": PLANTED, "with_pieces": True}),
    ("POST", "/detokenize", {"tokens": [TOKEN, 1]}),
    ("POST", "/apply-template", {"messages": MESSAGES}),
    ("POST", "/embedding", {"content": PLANTED}),
    ("POST", "/v1/embeddings", {"input": [PLANTED], "model": PLANTED}),
    ("POST", "/v1/rerank", {"query": PLANTED, "documents": [PLANTED]}),
    ("POST", "/slots/0?action=save", {"filename": "QZBEGIN.bin"}),
    ("POST", "/slots/0?action=restore", {"filename": "QZBEGIN"}),
    ("POST", "/slots/0?action=save", {"filename": PLANTED}),
    ("POST", "/slots/0?action=QZBEGIN", {"filename": "x"}),
    ("POST", "/lora-adapters", [{"id": 0, "scale": PLANTED}]),
    ("POST", "/props", {"chat_template": PLANTED, PLANTED: PLANTED}),
    ("POST", "/v1/chat/completions/control", {"id": PLANTED, "action": PLANTED}),
    ("DELETE", "/v1/stream/QZBEGIN%22%0A%27QZEND", None),
    ("DELETE", "/v1/stream?conv_id=QZBEGIN%22%0A%27QZEND", None),
    ("GET", "/QZBEGIN%22%0A%27QZEND?x=QZBEGIN", None),
    ("GET", "/props?model=QZBEGIN%0AQZEND", None),
    ("QZBEGIN", "/health", None),
    ("POST", "/models/load", {"model": PLANTED}),
    ("POST", "/tools", {"name": PLANTED}),
]


def _provoke(build: int, directory: Path) -> Iterator[Path]:
    """Logs of one engine."""
    model = write_planted(directory / "model.gguf", controls=False)
    odd = write_planted(directory / "odd.gguf", controls=True)
    args: tuple[str, ...]
    loud = ("-lv", "9", "--slots", "--props", "--metrics", "--lora-init-without-apply")
    debug = {"LLAMA_SERVER_SLOTS_DEBUG": "1", "LLAMA_TRACE": "1"}
    for prefix in ("--log-prefix", "--no-log-prefix"):
        log = directory / f"requests{prefix}.log"
        args = (*loud, prefix, "-cram", "64", "--slot-save-path", ".")
        with Server(build, model, log, *args, **debug) as server:
            for body in COMPLETIONS:
                server.send("POST", "/completion", body)
            for body in CHATS:
                server.send("POST", "/v1/chat/completions", body)
            for method, path, body in OTHERS:
                server.send(method, path, body)
            chat = _generate(messages=MESSAGES, stream=True)
            server.send("POST", "/v1/chat/completions", chat, X_Conversation_Id="QZBEGIN QZEND")
            server.send("GET", "/health", Origin="http://QZBEGIN.QZEND", User_Agent="QZBEGIN")
            server.send("POST", "/completion", _generate(prompt="end"))
        yield log
        log = directory / f"template{prefix}.log"
        with Server(build, odd, log, "-lv", "9", prefix, "-a", "QZBEGIN\nQZEND") as server:
            server.send("POST", "/v1/chat/completions", CHATS[0])
        yield log
        log = directory / f"embedding{prefix}.log"
        with Server(build, model, log, "-lv", "9", prefix, "--embedding") as server:
            server.send("POST", "/embedding", {"content": "so " + PLANTED})
            server.send("POST", "/v1/embeddings", {"input": [PLANTED, PLANTED], "model": PLANTED})
        yield log
        log = directory / f"draft{prefix}.log"
        args = ("-lv", "9", prefix, "--model-draft", model.name, "--spec-type", "draft-simple")
        with Server(build, model, log, *args) as server:
            server.send("POST", "/completion", {**COMPLETIONS[0], "n_predict": 9})
        yield log


def _cut(line: str) -> str:
    """A long line without the middle of what lies between planted texts."""
    parts = re.split(f"({FIRST}|{LAST})", line)
    return "".join(p if len(p) < 300 else p[:120] + p[-120:] for p in parts)


def excerpts(log: str) -> Iterator[list[str]]:
    """Each kind of place with planted text: the line before it, and two of the server after it."""
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in log.split("\n")]
    stamped = sum(bool(_STAMP.match(line)) for line in lines) > len(lines) // 2
    own = [bool(_STAMP.match(line)) if stamped else _is_function(line) for line in lines]
    seen: set[str] = set()
    at = 0
    while at < len(lines):
        if FIRST not in lines[at] and FIRST.lower() not in lines[at]:
            at += 1
            continue
        start = at
        while start > 0 and not own[start]:
            start -= 1
        end = at + 1
        while end < len(lines) and not own[end]:
            end += 1
        shape = " ".join(re.sub(r"[\W\d]+|[\w-]{25,}", "", ln)[:60] for ln in lines[start:end][:4])
        if shape not in seen:
            seen.add(shape)
            before = start - (start > 0 and own[start - 1])
            yield [_cut(line) for line in lines[before : end + 2]]
        at = end


def _is_function(line: str) -> bool:
    names = r"(?:slot|srv|que|res|cmn|spec)\s+\S+: |(?:llama|ggml|print|load|common|parse)\w*: "
    return re.match(names, line) is not None


def main() -> None:
    for build in map(int, sys.argv[1:]):
        with TemporaryDirectory() as name:
            found = [
                (log.stem, excerpt)
                for log in _provoke(build, Path(name))
                for excerpt in excerpts(log.read_text(errors="replace"))
            ]
        text = "".join(f"%% {name}\n" + "\n".join(lines) + "\n" for name, lines in found)
        (DATA / f"carriers-{build}.txt").write_text(text)
        print(build, len(found), "kinds of places,", len(text), "characters")


if __name__ == "__main__":
    main()
