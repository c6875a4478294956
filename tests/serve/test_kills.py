"""An engine that dies at a chosen moment: what a client sees of it, and what ran twice.

The engine does no work (:mod:`tests.serve.fake_engine`) and writes what it accepts to a ledger.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from arriero.gguf import write_model
from arriero.gguf.presets import tiny
from tests.serve.fake_engine import Home, Order, text_of
from tests.serve.front import Front
from tests.serve.load import Ask, Seen, all_of

KINDS = ("chat", "text", "native", "messages")
PHASES = ("accepted", "prompt", "head", "words0", "words5", "inside", "last", "done")
NEVER_STOP = ("--restarts", "10000/600")
numbers = itertools.count()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", tiny("llama"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("engine"))
    made.install()
    return made


@pytest.fixture(autouse=True)
def no_orders(home: Home) -> Iterator[None]:
    """What one test orders is not obeyed in the next."""
    yield
    for file in (home.path / "orders").iterdir():
        file.unlink()


def command(home: Home, model: Path, slots: int = 1) -> list[str | Path]:
    return [home.program, "-m", model, "-c", "4096", "-np", str(slots), "--port", "0"]


@pytest.fixture(scope="module")
def front(home: Home, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    root = tmp_path_factory.mktemp("front")
    env = {"ARRIERO_SERVE_HANG_AFTER": "6"}
    with Front(root, command(home, model), NEVER_STOP, env) as made:
        yield made


def job(kind: str, stream: bool, words: int = 12, most: int = 100, **extra: object) -> Ask:
    """A request with an answer of its own."""
    number = next(numbers)
    return Ask(number, kind, f"job:j{number}x:{words} ", stream, most, tuple(extra.items()))


def name_of(ask: Ask) -> str:
    return f"j{ask.number}x"


def ask_all(front: Front, *asks: Ask, clients: int = 32) -> list[Seen]:
    return asyncio.run(all_of(front.url, asks, min(clients, len(asks)), timeout=100))


def accepted(home: Home, ask: Ask) -> int:
    """How often the engine was given it."""
    return sum(line["what"] == "accepted" and line["job"] == name_of(ask) for line in home.ledger())


def check(seen: Seen, words: int = 12) -> None:
    """It is the one right answer, whole and once."""
    assert seen.outcome == "answered", (seen.why, seen.status, seen.raw[-500:])
    assert not seen.wrong, (seen.wrong, seen.raw)
    assert seen.text == text_of(name_of(seen.ask), words), seen.raw.decode()
    assert seen.tokens == words, seen.raw.decode()


def order_of(ask: Ask, phase: str, act: str = "kill") -> Order:
    words = int(phase[5:]) if phase.startswith("words") else 0
    return Order(phase[:5] if words or phase == "words0" else phase, act, name_of(ask), words)


CASES = [
    (phase, KINDS[n % 4], stream)
    for n, (phase, stream) in enumerate(itertools.product(PHASES, (True, False)))
]
OTHERS = sorted({*itertools.product(PHASES, KINDS, (True, False))} - {*CASES})


@pytest.mark.parametrize(
    ("phase", "kind", "stream"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)],
)
def test_a_request_survives_the_death_of_its_engine(
    phase: str, kind: str, stream: bool, front: Front, home: Home
) -> None:
    ask = job(kind, stream)
    before = front.settled()["engine"]["restarts"]
    home.order(order_of(ask, phase))
    (seen,) = ask_all(front, ask)
    check(seen)
    assert accepted(home, ask) == (1 if phase == "done" else 2)
    front.event("ready", before + 2)
    status = front.settled()
    assert status["engine"]["restarts"] == before + 1
    assert status["requests"]["lost"] == 0
    assert status["requests"]["executed_twice"] == 0
    assert not home.pending()


@pytest.mark.parametrize(
    "act", ["segv", "abort", "exit", "sick", pytest.param("hang", marks=pytest.mark.slow)]
)
def test_however_it_ends(act: str, front: Front, home: Home) -> None:
    asks = [job(kind, stream) for kind in KINDS for stream in (True, False)]
    phase = "accepted" if act == "sick" else "words"
    home.order(Order(phase, act, name_of(asks[0]), 3 if phase == "words" else 0))
    for seen in ask_all(front, *asks):
        check(seen)
    assert not home.pending()
    assert front.settled()["requests"]["lost"] == 0


def test_it_dies_again_and_again_under_one_answer(front: Front, home: Home) -> None:
    ask = job("chat", True, 30)
    for words in (1, 4, 0, 7):
        home.order(Order("words", "kill", name_of(ask), words))
    (seen,) = ask_all(front, ask)
    check(seen, 30)
    assert len(seen.cuts) >= 3


def test_a_limit_of_tokens_holds_over_a_death(front: Front, home: Home) -> None:
    for kind in KINDS:
        for stream in (True, False):
            ask = job(kind, stream, 12, most=7)
            home.order(order_of(ask, "words5"))
            (seen,) = ask_all(front, ask)
            check(seen, 7)
            assert seen.finish in ("length", "limit", "max_tokens")


def test_a_dropped_connection_is_no_death(front: Front, home: Home) -> None:
    before = front.settled()["engine"]["restarts"]
    ask = job("chat", True)
    home.order(order_of(ask, "words5", "drop"))
    (seen,) = ask_all(front, ask)
    check(seen)
    assert front.settled()["engine"]["restarts"] == before


def test_sampled_answers_are_begun_again_only_if_nothing_was_sent(front: Front, home: Home) -> None:
    for kind in KINDS:
        early, late = job(kind, True, temperature=1.0), job(kind, True, temperature=1.0)
        whole = job(kind, False, temperature=1.0)
        home.order(order_of(early, "head"))
        home.order(order_of(late, "words5"))
        home.order(order_of(whole, "words5"))
        seen = [ask_all(front, ask)[0] for ask in (early, late, whole)]
        check(seen[0])
        check(seen[2])
        assert seen[1].outcome == "error_event", seen[1].raw
        assert not seen[1].wrong, (seen[1].wrong, seen[1].raw)
        assert text_of(name_of(late), 12).startswith(seen[1].text)


@pytest.mark.slow
def test_a_poisonous_request_takes_no_other_with_it(front: Front, home: Home) -> None:
    poison = job("chat", False)
    home.order(Order("prompt", "segv", name_of(poison), always=True))
    asks = [job(kind, stream) for kind in KINDS for stream in (True, False)]
    bad, *rest = sorted(ask_all(front, poison, *asks), key=lambda seen: seen.ask is not poison)
    for seen in rest:
        check(seen)
    assert bad.outcome == "refused", bad
    assert bad.status >= 500
    assert accepted(home, poison) <= 4


@pytest.mark.slow
def test_a_long_prompt_is_no_hang(front: Front, home: Home) -> None:
    before = front.settled()["engine"]["restarts"]
    ask = job("chat", True)
    home.order(Order("reading", "9", name_of(ask)))
    (seen,) = ask_all(front, ask)
    check(seen)
    assert front.settled()["engine"]["restarts"] == before
    assert accepted(home, ask) == 1


@pytest.mark.slow
def test_nothing_runs_twice_under_many_deaths(home: Home, model: Path, tmp_path: Path) -> None:
    asks = [job(kind, stream, 6) for _ in range(6) for kind in KINDS for stream in (True, False)]
    for ask, phase in zip(asks[::6], itertools.cycle(PHASES), strict=False):
        home.order(order_of(ask, phase))
    with Front(tmp_path, command(home, model, 4), NEVER_STOP) as front:
        for seen in ask_all(front, *asks):
            check(seen, 6)
        counts = front.settled()["requests"]
        assert counts["answered"] == len(asks)
        assert counts["executed_twice"] == counts["lost"] == 0
    twice(home, {*map(name_of, asks)})


def twice(home: Home, names: set[str]) -> None:
    """No request is given to an engine that has it, or that has answered it whole."""
    seen: set[tuple[int, str]] = set()
    done: set[str] = set()
    for line in home.ledger():
        if line.get("job") not in names:
            continue
        if line["what"] == "accepted":
            assert (line["pid"], line["job"]) not in seen, line
            assert line["job"] not in done, line
            seen.add((line["pid"], line["job"]))
        elif line["what"] == "done":
            done.add(line["job"])


def test_it_is_drained(home: Home, model: Path, tmp_path: Path) -> None:
    home.set(rate=20)
    try:
        with Front(tmp_path, command(home, model)) as front:
            engine = front.engine_pid()
            ask = job("chat", True, 20)

            async def drained() -> Seen:
                asked = asyncio.create_task(all_of(front.url, [ask], 1))
                while not accepted(home, ask):
                    await asyncio.sleep(0.02)
                front.signal(signal.SIGTERM)
                return (await asked)[0]

            check(asyncio.run(drained()), 20)
            assert front.wait() == 0
            assert front.events[-1]["event"] == "stopped"
            assert front.events[-1]["status"] == 0
            assert not psutil.pid_exists(engine)
    finally:
        home.set(rate=0)


def test_when_it_is_killed_no_engine_is_left(home: Home, model: Path, tmp_path: Path) -> None:
    with Front(tmp_path, command(home, model)) as front:
        engine = psutil.Process(front.engine_pid())
        front.kill()
        psutil.wait_procs([engine], timeout=20)
        assert not engine.is_running()
    with Front(tmp_path, command(home, model)) as front:
        check(ask_all(front, job("chat", True))[0])
