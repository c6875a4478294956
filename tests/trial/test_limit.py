"""What the log calls the machine's fault is the limit's, where there is one."""

from __future__ import annotations

import pytest

from arriero.base.words import Kind, LimitKind
from arriero.logs import LogReader
from arriero.logs.model import Failure
from arriero.process import Limit
from arriero.trial.failure import at_the_limit

ADDRESS_SPACE = Limit(10 << 20, LimitKind.ADDRESS_SPACE)
LOADER = "llama-server: error while loading shared libraries: libc.so.6: "


def _named(line: str) -> Failure:
    reader = LogReader()
    reader.feed(line)
    failure = reader.readings(127)[0].failure
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    "reason",
    [
        "failed to map segment from shared object",
        "cannot create shared object descriptor: Cannot allocate memory",
    ],
)
def test_a_library_that_cannot_be_mapped_is_lack_of_address_space(reason: str) -> None:
    found = at_the_limit(_named(LOADER + reason), ADDRESS_SPACE)
    assert found.kind is Kind.RUNTIME_ALLOCATION
    assert "lack of memory" not in found.not_this


def test_a_library_that_is_missing_stays_the_machines_fault() -> None:
    missing = _named(LOADER + "cannot open shared object file: No such file or directory")
    assert at_the_limit(missing, ADDRESS_SPACE) is missing


def test_without_a_limit_on_address_space_nothing_is_guessed() -> None:
    named = _named(LOADER + "failed to map segment from shared object")
    assert at_the_limit(named, None) is named
    assert at_the_limit(named, Limit(10 << 20, LimitKind.CGROUP)) is named
