"""What is left at the peak of a run."""

from __future__ import annotations

import pytest

from arriero.base.words import LimitKind
from arriero.process import Limit
from arriero.record import Peak
from arriero.trial.conclude import headroom

GIB = 1 << 30
PEAK = Peak(address_space=9 * GIB, anonymous=3 * GIB, cgroup=4 * GIB, device={})
AS, CGROUP = LimitKind.ADDRESS_SPACE, LimitKind.CGROUP


@pytest.mark.parametrize(
    ("limit", "free", "left"),
    [
        (None, 20, 17),
        (None, None, None),
        (Limit(10 * GIB, CGROUP), 20, 6),
        (Limit(10 * GIB, AS), 20, 1),
        (Limit(1024 * GIB, CGROUP), 20, 17),
        (Limit(1024 * GIB, AS), 20, 17),
        (Limit(1024 * GIB, CGROUP), None, 1020),
    ],
)
def test_headroom_is_never_more_than_the_machine_has(
    limit: Limit | None, free: int | None, left: int | None
) -> None:
    host_free = None if free is None else free * GIB
    assert headroom(limit, host_free, PEAK) == (None if left is None else left * GIB)


def test_headroom_of_a_limit_whose_use_is_not_known_is_unknown() -> None:
    peak = Peak(address_space=None, anonymous=GIB, cgroup=None, device={})
    assert headroom(Limit(GIB, CGROUP), 20 * GIB, peak) is None
