"""Where the parameters of a projector are, by the defaults that three builds really return."""

from __future__ import annotations

import pytest

from arriero.engine.oracle_child.layouts import PROJECTOR_LAYOUTS, Layout, fit_layout
from arriero.engine.oracle_child.refusal import NoAnswer

ROOM = 512
_OLD = (
    "0101000004000000 0000000000000000 74a02b93357f0000 ffffffff01000000 ffffffffffffffff"
    "0000000000000000 0000000000000000 0004000000000000 0000000000000000 0000000000000000"
)
_NEW = (
    "0100000000000000 0000000000000000 0100000004000000 0000000000000000 c0202221c67f0000"
    "ffffffff01000000 ffffffffffffffff 0000000000000000 0000000000000000 0004000000000000"
    "0000000000000000 0000000000000000"
)
RETURNED = {10068: _OLD, 10434: _OLD, 11434: _NEW}
PLACES = {
    10068: {"use_gpu": 0, "flash_attn_type": 24, "warmup": 28, "image_max_tokens": 36},
    10434: {"use_gpu": 0, "flash_attn_type": 24, "warmup": 28, "image_max_tokens": 36},
    11434: {"use_gpu": 0, "device": 8, "flash_attn_type": 40, "warmup": 44, "image_max_tokens": 52},
}


def fit(build: int, *, seen: bool = True, more: int = 0) -> Layout:
    blob = bytes.fromhex(RETURNED[build])
    end = len(blob) + more
    written = [at < end for at in range(ROOM)]
    return fit_layout(PROJECTOR_LAYOUTS, blob.ljust(ROOM, b"\0"), written if seen else None)


@pytest.mark.parametrize("seen", [True, False], ids=["holes seen", "holes unseen"])
@pytest.mark.parametrize("build", RETURNED)
def test_every_build_is_recognised(build: int, seen: bool) -> None:
    layout = fit(build, seen=seen)
    offsets = {name: offset for name, (offset, _) in layout.members.items()}
    assert offsets.items() >= PLACES[build].items()
    assert ("device" in offsets) is (build == 11434)
    assert len(layout.defaults) == len(bytes.fromhex(RETURNED[build]))


@pytest.mark.parametrize("build", RETURNED)
def test_a_member_more_is_refused(build: int) -> None:
    with pytest.raises(NoAnswer):
        fit(build, more=8)
