"""The context that ``--fit`` settles on where the command sets none (common/fit.cpp, steps 1, 2).

What it does next, moving layers and experts to the host, is not simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Used = Callable[[int], Sequence[int] | None]
"""Bytes by device (the host alone if there is none) at a context; null where nobody can say."""


def fitted_context(
    used: Used,
    *,
    maximum: int,
    minimum: int,
    step: int,
    free: Sequence[int],
    target: int,
    waste: int = 0,
) -> int | None:
    """Tokens of all slots; null where it cannot be said.

    Args:
        maximum: What the model was trained for, for each separate slot where the build does so.
        minimum: ``--fit-ctx``, likewise.
        step: Rounded down to a multiple of it.
        free: Bytes by device; the total of the host if there is none.
        target: Bytes to keep free on each device.
        waste: Bytes that the engine expects to lose to whole layers on several devices.
    """
    full = used(maximum)
    if full is None or len(full) != len(free):
        return None
    surplus = [room - taken - target for room, taken in zip(free, full, strict=True)]
    if sum(surplus) >= 0 or maximum <= minimum:
        return maximum
    smallest = used(minimum)
    if smallest is None:
        return None
    aim, least = sum(free) - target * len(free) - waste, sum(smallest)
    if aim <= least:
        return minimum
    tokens = minimum + (maximum - minimum) * (aim - least) // (sum(full) - least)
    return max(tokens - tokens % step, minimum)
