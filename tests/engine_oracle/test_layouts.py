"""Layouts are recognised by the default values that libraries of many builds really return."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.engine.oracle_child.layouts import (
    CONTEXT_LAYOUTS,
    MODEL_LAYOUTS,
    Field,
    Layout,
    fit_layout,
)
from arriero.engine.oracle_child.refusal import NoAnswer

LAYOUTS = {"model": MODEL_LAYOUTS, "context": CONTEXT_LAYOUTS}
RETURNED = json.loads((Path(__file__).parent / "data" / "defaults.json").read_text("utf-8"))
"""By build, what the default-params functions wrote; ``..`` is a byte they left alone."""
CASES = [(build, kind) for build in RETURNED for kind in LAYOUTS]
ROOM = 512

# Offsets from the declarations of the first build that had them.
PLACES = {
    ("model", 8508): {"n_gpu_layers": 16, "main_gpu": 24, "tensor_split": 32, "no_alloc": 71},
    ("model", 10133): {"load_mode": 24, "main_gpu": 28, "tensor_split": 32, "no_alloc": 68},
    ("model", 10335): {"load_mode": 24, "no_alloc": 68, "load_mtp": 69},
    ("model", 10796): {"lazy_mode": 28, "main_gpu": 32, "tensor_split": 40, "no_alloc": 76},
    ("context", 8508): {"n_seq_max": 12, "flash_attn_type": 36, "type_k": 88, "kv_unified": 117},
    ("context", 9209): {"n_rs_seq": 16, "flash_attn_type": 44, "type_k": 96, "kv_unified": 125},
    ("context", 9733): {"n_outputs_max": 20, "flash_attn_type": 48, "kv_unified": 133},
    ("context", 10434): {"n_outputs_max_per_seq": 24, "flash_attn_type": 52, "kv_unified": 133},
    ("context", 11548): {"type_k": 104, "moe_cache_size": 112, "kv_unified": 141},
}


def returned(build: str, kind: str) -> tuple[bytes, list[bool]]:
    text = RETURNED[build][kind].replace(" ", "")
    pairs = [text[i : i + 2] for i in range(0, len(text), 2)]
    written = [pair != ".." for pair in pairs]
    blob = bytes(int(pair, 16) if pair != ".." else 0 for pair in pairs)
    return blob.ljust(ROOM, b"\0"), written + [False] * (ROOM - len(written))


def fit(build: str, kind: str, *, seen: bool = True) -> Layout:
    blob, written = returned(build, kind)
    return fit_layout(LAYOUTS[kind], blob, written if seen else None)


@pytest.mark.parametrize("seen", [True, False], ids=["holes seen", "holes unseen"])
@pytest.mark.parametrize(("build", "kind"), CASES)
def test_every_build_is_recognised(build: str, kind: str, seen: bool) -> None:
    layout = fit(build, kind, seen=seen)
    since = max(b for k, b in PLACES if k == kind and b <= int(build))
    offsets = {name: offset for name, (offset, _) in layout.members.items()}
    assert offsets.items() >= PLACES[kind, since].items()
    assert len(layout.defaults) % 8 == 0


def test_a_filled_struct_differs_only_where_asked() -> None:
    layout = fit("10434", "context")
    filled = layout.filled({"n_seq_max": 64, "kv_unified": True})
    changed = [i for i, (a, b) in enumerate(zip(filled, layout.defaults, strict=True)) if a != b]
    assert changed == [12, 133]


@pytest.mark.parametrize("values", [{"no_such": 1}, {"n_ctx": -1}, {"n_ctx": 1 << 32}])
def test_what_cannot_be_set_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(NoAnswer):
        fit("10434", "context").filled(values)


@pytest.mark.parametrize(("build", "kind"), CASES)
def test_a_member_more_at_the_end_is_refused(build: str, kind: str) -> None:
    blob, written = returned(build, kind)
    end = max(i for i, w in enumerate(written) if w)
    beyond = -(-(end + 1) // 8) * 8
    written[beyond : beyond + 8] = [True] * 8
    with pytest.raises(NoAnswer):
        fit_layout(LAYOUTS[kind], blob, written)


@pytest.mark.parametrize("at", [0, 8, 16, 24, 32])
def test_a_member_more_in_front_is_refused(at: int) -> None:
    blob, written = returned("10434", "context")
    blob = blob[:at] + (77).to_bytes(4, "little") + blob[at:]
    with pytest.raises(NoAnswer):
        fit_layout(CONTEXT_LAYOUTS, blob, written[:at] + [True] * 4 + written[at:])


def test_several_that_disagree_are_refused() -> None:
    one = (Field("a", "i"), Field("b", "i"))
    with pytest.raises(NoAnswer, match="ambiguous"):
        fit_layout({1: one, 2: one[::-1]}, bytes(ROOM), None)


@given(st.sampled_from(CASES), st.integers(0, 159), st.integers(1, 255))
def test_one_changed_byte_is_refused_or_moves_no_place(
    case: tuple[str, str], at: int, change: int
) -> None:
    blob, written = returned(*case)
    damaged = bytearray(blob)
    damaged[at] ^= change
    try:
        layout = fit_layout(LAYOUTS[case[1]], bytes(damaged), written)
    except NoAnswer:
        return
    # A member that cannot be told from padding may be left out, never looked for elsewhere.
    assert layout.members.items() <= fit(*case).members.items()
