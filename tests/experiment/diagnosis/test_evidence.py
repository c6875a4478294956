"""What makes a trial prove nothing, and what a boundary may claim."""

from __future__ import annotations

import msgspec
import pytest

from arriero.base.words import TrialOutcome
from arriero.command import builtin_flags, parse_command
from arriero.experiment.diagnosis.evidence import boundary_of, difference, what_moved
from arriero.experiment.diagnosis.search import Search
from arriero.logs.model import Effective
from arriero.record import Trial
from tests.examples import example_trials


def trial_with(**effective: object) -> Trial:
    return msgspec.structs.replace(
        example_trials()[0],
        effective=Effective(**effective),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("flags", "effective", "says"),
    [
        ("-np 4 -c 4096", {"n_seq_max": 4, "n_ctx": 4096}, None),
        ("-np 64 -c 4096", {"n_seq_max": 64, "n_ctx": 16384}, None),
        ("-np 4 -c 4096", {"n_seq_max": 2, "n_ctx": 4096}, "-np 4 became 2 slots"),
        ("-np 1 -c 65536", {"n_seq_max": 1, "n_ctx": 4096}, "-c 65536 became 4096"),
        ("-np 1", {"n_seq_max": 1, "n_ctx": 4096}, None),
        ("-np 1", {"n_seq_max": 1, "n_gpu_layers": 20}, "33 layers were offloaded before, now 20"),
    ],
)
def test_another_effective_value_proves_nothing(
    flags: str, effective: dict[str, int], says: str | None
) -> None:
    command = parse_command(["llama-server", "-m", "x.gguf", *flags.split()], builtin_flags(), {})
    found = what_moved(trial_with(**effective), command, 33)
    assert (found is None) is (says is None)
    assert says is None or (found or "").startswith(says)


def test_a_difference_names_each_flag_once() -> None:
    def command(flags: str) -> object:
        return parse_command(["llama-server", *flags.split()], builtin_flags(), {})

    before, after = command("-np 8 -c 100"), command("-np 4 --ctx-size 100 -cram 0")
    assert difference(before, after) == {"-np": (8, 4), "-cram": (None, 0)}  # type: ignore[arg-type]


def test_a_boundary_claims_what_was_seen_and_no_more() -> None:
    search = Search(1, 64)
    seen = []
    for value, outcome in ((20, TrialOutcome.SERVED), (24, TrialOutcome.FAILED)):
        search.observe(value, outcome)
        seen.append((value, example_trials()[1]))
    edge = boundary_of(search, seen, {})
    assert edge.served is None, "seen serving once only"
    assert (edge.ready, edge.fails) == (20, 24)
    search.observe(20, TrialOutcome.SERVED)
    edge = boundary_of(search, seen, {})
    assert edge.served == 20
    assert "between 20 and 24" in edge.note
