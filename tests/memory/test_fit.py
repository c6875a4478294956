"""The context that fit settles on."""

from __future__ import annotations

from collections.abc import Sequence

from arriero.memory.fit import fitted_context


def fitted(
    free: Sequence[int], *, fixed: int = 1000, per_token: int = 2, waste: int = 0
) -> int | None:
    return fitted_context(
        lambda tokens: [fixed + per_token * tokens for _ in free],
        maximum=65536,
        minimum=4096,
        step=256,
        free=free,
        target=100,
        waste=waste,
    )


def test_what_fits_stays() -> None:
    assert fitted([1000 + 2 * 65536 + 100]) == 65536


def test_less_room_is_less_context_rounded_down() -> None:
    assert fitted([1000 + 2 * 65536 + 99]) == 65536 - 256
    assert fitted([1000 + 2 * 20000 + 100]) == 20000 // 256 * 256


def test_the_least_context_is_kept_however_little_room_there_is() -> None:
    assert fitted([10]) == 4096


def test_devices_are_taken_together() -> None:
    room = 1000 + 2 * 20000 + 100
    assert fitted([room + 5000, room - 5000]) == 20000 // 256 * 256
    assert (fitted([room, room], waste=10000) or 0) < 20000 - 2000


def test_nothing_is_said_where_nothing_is_known() -> None:
    nothing = fitted_context(lambda _: None, maximum=9, minimum=1, step=1, free=[1], target=0)
    assert nothing is None
