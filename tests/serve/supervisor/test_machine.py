"""The state machine without an engine: what it promises after any events in any order."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.base.words import Evidence, Kind, Recovery
from arriero.logs.model import Failure
from arriero.serve.supervisor import machine as life
from arriero.serve.supervisor.interface import State
from arriero.serve.supervisor.machine import Machine, Phase
from arriero.serve.supervisor.policy import Lost, Policy, Tries, wants_another

LIMIT, WINDOW = 3, 100.0
KINDS = st.sampled_from([Kind.CRASH, Kind.KILLED, Kind.CONFIG, Kind.RPC, Kind.ALLOCATION])


def failure(kind: Kind, evidence: Evidence = Evidence.NAMED) -> Failure:
    return Failure(kind=kind, fatal=True, line=1, text="it broke", evidence=evidence)


class Life(RuleBasedStateMachine):
    """Plays the world: a process that runs or does not, and everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine(policy=Policy(restarts=LIMIT, seconds=WINDOW))
        self.now = 0.0
        self.running: int | None = None
        self.killed = False
        self.launched: list[int] = []
        self.announced: list[int] = []
        self.fruitless: list[float] = []
        self.wanted = False
        self.over = 0
        self.open = False

    def post(self, event: life.Event) -> None:
        self.machine, actions = self.machine.step(event, self.now)
        for action in actions:
            self.do(action)

    def do(self, action: life.Action) -> None:
        match action:
            case life.Launch(generation):
                assert self.running is None, "two engines at once"
                assert self.over == 0, "started after the end"
                self.running, self.killed = generation, False
                self.launched.append(generation)
            case life.Announce(generation):
                assert self.running == generation
                self.announced.append(generation)
                self.open = False
            case life.Kill(generation):
                assert self.running == generation
                self.killed = True
            case life.Examine(generation):
                assert self.running is None
                assert generation == self.launched[-1]
                self.open = True
            case life.Rest(seconds, recovery):
                assert self.open
                assert 0 <= seconds <= 30
                assert recovery is not Recovery.GIVE_UP
                if not self.wanted:
                    assert len([at for at in self.fruitless if self.now - at < WINDOW]) < LIMIT
                    self.fruitless.append(self.now)
            case life.GiveUp(why):
                assert why
                self.over += 1
            case life.Finish():
                assert self.running is None
                self.over += 1

    @rule()
    def begin(self) -> None:
        self.post(life.Begin())

    @precondition(lambda self: self.running is not None)
    @rule()
    def answered(self) -> None:
        self.post(life.Answered(self.running or 0))

    @precondition(lambda self: self.running is not None)
    @rule()
    def worked(self) -> None:
        if self.machine.phase is Phase.SERVING:
            self.fruitless = []
        self.post(life.Worked(self.running or 0))

    @precondition(lambda self: self.running is not None)
    @rule()
    def condemned(self) -> None:
        self.post(life.Condemned(self.running or 0))

    @precondition(lambda self: self.running is not None)
    @rule()
    def ended(self) -> None:
        generation, self.running = self.running or 0, None
        self.post(life.Ended(generation))

    @rule(kind=KINDS, served=st.booleans(), wanted=st.booleans())
    def examined(self, kind: Kind, served: bool, wanted: bool) -> None:
        self.wanted = wanted
        self.post(life.Examined(Lost(failure(kind), served, None, wanted)))

    @rule()
    def rested(self) -> None:
        self.post(life.Rested())

    @rule(back=st.integers(1, 3))
    def late(self, back: int) -> None:
        """What was on its way when its start was lost means nothing."""
        old = self.machine.generation - back
        before = self.machine
        for event in (life.Answered(old), life.Worked(old), life.Condemned(old), life.Ended(old)):
            self.post(event)
        assert self.machine == before

    @rule(seconds=st.floats(0, 60))
    def time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def stop(self) -> None:
        self.post(life.Stop())

    @invariant()
    def generations_count_up(self) -> None:
        assert self.launched == [*range(1, len(self.launched) + 1)]
        assert self.announced == sorted({*self.announced})

    @invariant()
    def it_serves_only_what_runs_and_has_answered(self) -> None:
        if self.machine.state is State.READY:
            assert self.running == self.machine.generation == self.announced[-1]

    @invariant()
    def it_never_forgets_an_engine_that_runs(self) -> None:
        """With a process there is somebody who waits for its end; without one there is a next."""
        waits = self.machine.phase in (Phase.LOADING, Phase.SERVING, Phase.ENDING)
        assert waits is (self.running is not None)

    @invariant()
    def it_ends_for_a_reason(self) -> None:
        if self.machine.phase is Phase.OVER:
            assert self.over
            assert self.machine.stopping or self.machine.gave_up

    def teardown(self) -> None:
        """From any state a stop comes to its end."""
        self.post(life.Stop())
        if self.running is not None:
            self.ended()
        assert self.machine.phase is Phase.OVER


TestLife = Life.TestCase


def deaths(machine: Machine, lost: Lost, *, answers: bool, between: float = 0.0) -> tuple[int, str]:
    """How often it is started when each start ends so, and why no more; at most 20 times."""
    now = 0.0
    machine, actions = machine.step(life.Begin(), now)
    for count in range(1, 21):
        if lost.served:
            machine, actions = machine.step(life.Answered(count), now)
        if answers:
            machine, actions = machine.step(life.Worked(count), now)
        machine, actions = machine.step(life.Ended(count), now)
        machine, actions = machine.step(life.Examined(lost), now)
        if isinstance(actions[0], life.GiveUp):
            return count, actions[0].why
        now += between
        machine, actions = machine.step(life.Rested(), now)
    return 20, ""


CRASH = Lost(failure(Kind.CRASH, Evidence.INFERRED), served=True)


def test_it_is_started_so_often_without_an_answer_and_no_more() -> None:
    count, why = deaths(Machine(policy=Policy(restarts=4, seconds=60)), CRASH, answers=False)
    assert count == 5
    assert "restarted 4 times in 60 s without an answered request in between" in why


def test_answers_and_time_are_reasons_to_go_on() -> None:
    policy = Policy(restarts=4, seconds=60)
    assert deaths(Machine(policy=policy), CRASH, answers=True) == (20, "")
    assert deaths(Machine(policy=policy), CRASH, answers=False, between=20) == (20, "")
    assert deaths(Machine(policy=policy), CRASH, answers=False, between=14)[0] < 20


def test_no_restarts_means_none() -> None:
    count, why = deaths(Machine(policy=Policy(restarts=0)), CRASH, answers=True)
    assert count == 1
    assert "--restarts 0" in why


def test_a_load_that_fails_is_tried_as_often_as_it_may_help() -> None:
    def tries(kind: Kind, evidence: Evidence) -> int:
        lost = Lost(failure(kind, evidence), served=False)
        return deaths(Machine(policy=Policy(restarts=9)), lost, answers=False)[0]

    assert tries(Kind.MODEL, Evidence.NAMED) == 1
    assert tries(Kind.CONFIG, Evidence.NAMED) == 1
    assert tries(Kind.ALLOCATION, Evidence.NAMED) == 2
    assert tries(Kind.CRASH, Evidence.INFERRED) == 3
    assert tries(Kind.KILLED, Evidence.INFERRED) == 10
    assert tries(Kind.RPC, Evidence.NAMED) == 10


def test_what_has_worked_once_is_not_hopeless() -> None:
    machine = Machine(policy=Policy(restarts=9))
    machine, _ = machine.step(life.Begin(), 0)
    machine, _ = machine.step(life.Answered(1), 0)
    machine, _ = machine.step(life.Ended(1), 0)
    machine, actions = machine.step(life.Examined(CRASH), 0)
    for generation in range(2, 6):
        assert isinstance(actions[0], life.Rest)
        machine, _ = machine.step(life.Rested(), 0)
        machine, _ = machine.step(life.Ended(generation), 0)
        lost = Lost(failure(Kind.ALLOCATION), served=False)
        machine, actions = machine.step(life.Examined(lost), 0)
    assert isinstance(actions[0], life.Rest)


def test_pauses_grow_and_end() -> None:
    machine = Machine(policy=Policy(restarts=9, seconds=10_000))
    machine, _ = machine.step(life.Begin(), 0)
    pauses = []
    for generation in range(1, 9):
        machine, _ = machine.step(life.Answered(generation), 0)
        machine, _ = machine.step(life.Ended(generation), 0)
        machine, actions = machine.step(life.Examined(CRASH), 0)
        (rest,) = actions
        assert isinstance(rest, life.Rest)
        pauses.append(rest.seconds)
        machine, _ = machine.step(life.Rested(), 0)
    assert pauses == [0, 1, 2, 4, 8, 16, 30, 30]


def test_another_command_is_taken_where_there_is_one() -> None:
    machine = Machine()
    machine, _ = machine.step(life.Begin(), 0)
    machine, _ = machine.step(life.Ended(1), 0)
    lost = Lost(failure(Kind.ALLOCATION), served=False, alternative=Recovery.SMALLER)
    machine, (rest,) = machine.step(life.Examined(lost), 0)
    assert isinstance(rest, life.Rest)
    assert rest.recovery is Recovery.SMALLER
    assert "memory" in rest.why


def test_one_that_worked_is_made_smaller_only_if_memory_runs_out_again() -> None:
    policy = Policy(seconds=600)

    def wants(tries: Tries, *, worked: bool, now: float, memory: bool = True) -> bool:
        return wants_another(policy, tries, memory=memory, worker=False, worked=worked, now=now)

    short = Lost(failure(Kind.RUNTIME_ALLOCATION), served=True, memory=True)
    assert wants(Tries(), worked=False, now=0)
    assert not wants(Tries(), worked=True, now=0)
    once = Tries().after(short, 0).worked()
    assert wants(once, worked=True, now=599)
    assert not wants(once, worked=True, now=601)
    assert not wants(once, worked=True, now=599, memory=False)
    changed = Lost(short.failure, served=True, alternative=Recovery.SMALLER, memory=True)
    assert not wants(once.after(changed, 10).worked(), worked=True, now=20), "of another command"
