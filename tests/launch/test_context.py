"""The server's context arithmetic, against figures that real servers logged."""

from __future__ import annotations

import pytest

from arriero.launch.context import context, context_step


@pytest.mark.parametrize(
    ("tokens", "slots", "unified", "n_ctx", "n_ctx_seq"),
    [
        (1000, 3, False, 1536, 512),
        (4096, 256, False, 65536, 256),
        (4096, 64, False, 16384, 256),
        (4096, 4, True, 4096, 4096),
        (4096, 4, False, 4096, 1024),
        (1, 1, False, 256, 256),
    ],
)
def test_as_the_server_computes_it(
    tokens: int, slots: int, unified: bool, n_ctx: int, n_ctx_seq: int
) -> None:
    found = context(tokens, slots, unified=unified)
    assert (found.n_ctx, found.n_ctx_seq) == (n_ctx, n_ctx_seq)


def test_a_step_is_never_rounded_away() -> None:
    for slots in (1, 3, 8):
        step = context_step(slots, unified=False)
        assert context(4096 + step, slots, unified=False) != context(4096, slots, unified=False)
