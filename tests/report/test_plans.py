"""Plans in every output: what is said first, what is never claimed, what stays readable."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise

import pytest

from arriero.base.redact import Redactor
from arriero.base.sizes import MIB
from arriero.base.words import Component, Cost, Method
from arriero.record import FrontierPoint, Plan, PlanGrowth, PlanNote
from arriero.report.markdown.syntax import prose
from arriero.report.view.plan import plan_view
from arriero.report.view.text import cells, command
from arriero.report.view.verdict import Tone
from tests.report.laid_out import html, markdown, terminal
from tests.report.plans import example, made, plans
from tests.report.test_html import Page
from tests.report.test_markdown import outside_code, tables
from tests.report.variants import HOSTILE, with_

WIDTHS = (40, 60, 80, 120)
PLANS = plans()
WORDS = {
    "example": "DOES NOT FIT",
    "ladder": "DOES NOT FIT",
    "card": "FITS AS FAR AS KNOWN",
    "card, too much": "DOES NOT FIT",
    "moved by fit": "FITS AS FAR AS KNOWN",
    "two cards": "FITS AS FAR AS KNOWN",
    "idle card": "FITS AS FAR AS KNOWN",
    "unified": "FITS",
    "workers": "FITS AS FAR AS KNOWN",
    "unknown architecture": "UNKNOWN",
    "unknown, host only": "UNKNOWN",
    "refused": "REFUSED",
    "unusable": "UNKNOWN",
    "host not given": "UNKNOWN",
    "fits": "FITS",
    "grows too much": "STARTS, CAN OUTGROW",
    "frontier": "FITS",
    "calibrated": "FITS",
    "no id, no command": "FITS",
    "hostile": "DOES NOT FIT",
}


def flat(text: str) -> str:
    return " ".join(text.split())


def commands(doc: Plan, width: int) -> set[str]:
    """The lines that are to be pasted: they may be longer than the terminal."""
    facts = plan_view(doc)
    prove = ("arriero", "verify", "--", *facts.prove)
    shown = (command(argv, {}, width=width, indent="  ") for argv in (facts.copy, prove))
    return {line for lines in shown for line in lines}


def block(text: str, title: str) -> list[str]:
    """The words of the command under a title as a shell reads them."""
    lines = text.splitlines()
    start = end = next(i for i, line in enumerate(lines) if line.startswith(title)) + 1
    while lines[end].endswith(" \\"):
        end += 1
    script = "printf '%s\\0' " + "\n".join(lines[start : end + 1])
    out = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    return out.stdout.decode().split("\0")[:-1]


# --- the terminal ------------------------------------------------------------------------------


def test_every_plan_is_judged_here() -> None:
    assert PLANS.keys() == WORDS.keys()


@pytest.mark.parametrize("name", PLANS)
def test_the_verdict_is_what_the_plan_says_and_no_more(name: str) -> None:
    doc = PLANS[name]
    finding = plan_view(doc).verdict
    assert finding.word == WORDS[name]
    assert (doc.fits is True) == (finding.word == "FITS")
    assert (doc.fits is False) == (finding.tone is Tone.BAD)


def test_plans_as_they_are_made_now_read_well() -> None:
    for doc in made().values():
        finding = plan_view(doc).verdict
        assert (doc.fits is True) == (finding.word == "FITS")
        assert all(cells(line) <= 80 for line in terminal(doc).splitlines())
        assert Page(html(doc)).open == []
        assert prose(finding.sentence) in markdown(doc)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PLANS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    exact = commands(PLANS[name], width)
    for line in terminal(PLANS[name], width=width).splitlines():
        assert cells(line) <= width or line in exact, line


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in PLANS if name != "refused"])
def test_every_line_of_the_plan_is_there_with_its_method(name: str, width: int) -> None:
    doc = PLANS[name]
    text = terminal(doc, width=width)
    known = "|".join(method.value for method in Method)
    methods = re.findall(rf"(?m)^  (?:[a-z]+(?: [a-z]+)?|KV|RS)  .*?\S  ({known})\b", text)
    assert sorted(methods) == sorted(b.method.value for b in doc.buffers)
    assert text.count(" ?  unknown") == sum(b.bytes is None for b in doc.buffers)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_any_terminal_can_print_it(name: str, encoding: str) -> None:
    text = terminal(PLANS[name], encoding=encoding)
    text.encode(encoding)
    assert "\x1b" not in text


def test_colour_is_only_added() -> None:
    text = terminal(example(), colour=True)
    assert "\x1b[1;31mDOES NOT FIT\x1b[0m" in text
    assert re.sub(r"\x1b\[[\d;]*m", "", text) == terminal(example())


def test_verdict_pools_changes_and_commands_come_in_this_order() -> None:
    text = terminal(example())
    marks = [
        "DOES NOT FIT",
        "-c 131072",
        "--fit would move",
        "CUDA0  23755",
        "→ 1493 MiB too much",
        "host  31169",
    ]
    marks += ["FIX, cheapest first", "ALSO", "COPY", "PROVE", "arriero report"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_the_example_says_what_a_person_needs() -> None:
    text = flat(terminal(example()))
    assert "on CUDA0 (NVIDIA GeForce RTX 3090): 1493 MiB too much. Nothing was loaded." in text
    assert "-c 131072, shared by 4 slots (the server's own choice without -np)" in text
    assert "RS 4 slots × 149.63 598.5 exact" in text
    assert "checkpoints 4 × 32 × 149.63 up to 19152.6 exact" in text
    assert "3142 MiB left with full caches, 935 MiB of it as safety margin" in text
    assert "-np 1 −1044 concurrency; not enough alone" in text
    assert "→ -np 1 -c 98304 1004 context" in text
    assert "ALSO -ctxcp 8: up to 14364 MiB less on host; costs prompt reuse" in text
    assert "PROVE arriero verify -- <that>" in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["example", "ladder", "card, too much", "hostile"])
def test_the_recommended_command_pastes_as_it_is(name: str, width: int) -> None:
    best = next(advice for advice in PLANS[name].advice if advice.recommended)
    assert tuple(block(terminal(PLANS[name], width=width), "COPY")) == best.argv


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["card", "fits", "unknown architecture"])
def test_what_may_fit_is_to_be_proved(name: str, width: int) -> None:
    words = block(terminal(PLANS[name], width=width), "PROVE")
    assert tuple(words) == ("arriero", "verify", "--", *PLANS[name].argv)


@pytest.mark.parametrize("name", ["refused", "no id, no command"])
def test_there_is_nothing_to_prove_without_a_command_that_may_run(name: str) -> None:
    assert "PROVE" not in terminal(PLANS[name])
    assert "verify" not in markdown(PLANS[name])


def test_a_plan_that_fits_is_short() -> None:
    text = terminal(PLANS["fits"])
    assert len(text.splitlines()) <= 16
    assert "FIX" not in text
    assert "COPY" not in text


def test_no_change_that_is_enough_is_said() -> None:
    doc = example()
    weak = tuple(with_(one, fits=False, recommended=False) for one in doc.advice[:3])
    text = flat(terminal(with_(doc, advice=weak)))
    assert "None of these is enough" in text
    assert "COPY" not in text
    assert text.count("not enough alone") == 3


def test_changes_for_several_pools_say_which() -> None:
    doc = example()
    first, *others = doc.advice[:3]
    text = terminal(with_(doc, advice=(with_(first, pool="host"), *others)))
    assert "host −1044" in text
    assert "CUDA0 1004" in text


def test_what_stands_on_another_change_is_no_change_of_its_own() -> None:
    doc = example()
    _, best, quality, _ = doc.advice
    more = with_(best, recommended=False, change="-ub 64", argv=(*best.argv, "-ub", "64"))
    alone = with_(quality, change="-c 8192", argv=(*doc.argv[:3], "-c", "8192"), cost=Cost.FREE)
    facts = plan_view(with_(doc, advice=(best, quality, more, alone)))
    assert [fix.change for fix in facts.fixes] == ["-c 8192", best.change, quality.change]
    assert [fix.change for fix in facts.beside] == ["-ub 64"]


def test_a_narrow_screen_keeps_every_change() -> None:
    text = flat(terminal(example(), width=40))
    assert "-np 1: leaves −1044 MiB on CUDA0; costs concurrency; not enough alone" in text
    assert "→ -np 1 -c 98304: leaves 1004 MiB on CUDA0" in text
    assert "exact; 4 slots × 149.63" in text


# --- what is said of a pool --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_start", "growth", "verdict"),
    [
        (900, 0, "starts with 100 MiB left, less than the safety margin of 200 MiB"),
        (700, 0, "300 MiB left, 200 MiB of it as safety margin"),
        (500, 200, "300 MiB left with full caches, 200 MiB of it as safety margin"),
        (1100, 0, "100 MiB too much"),
        (1100, 400, "100 MiB too much at the start, 500 MiB with full caches"),
        (
            *(500, 400),
            "starts with 500 MiB left, but full caches would cut the safety margin of 200 MiB to",
        ),
        (
            *(500, 700),
            "starts with 500 MiB left, but full caches would take 200 MiB more than there is",
        ),
        (
            *(900, 400),
            "starts with 100 MiB left, but full caches would take 300 MiB more than there is",
        ),
    ],
)
def test_start_and_growth_are_told_apart(at_start: int, growth: int, verdict: str) -> None:
    doc = example()
    left = 1000 - at_start - growth
    pool = with_(
        doc.pools[1],
        free=1000 * MIB,
        at_start=at_start * MIB,
        planned=(at_start + growth) * MIB,
        margin=200 * MIB,
        headroom=left * MIB,
        surely=at_start * MIB,
        starts=at_start <= 1000,
        outgrows=growth > 0 and left < 0,
        fits=False if at_start > 1000 else True if left >= 200 else None,
    )
    known = tuple(b for b in doc.buffers if b.bytes is not None)
    found = plan_view(
        with_(
            doc,
            pools=(pool,),
            buffers=known,
            fits=pool.fits,
            starts=pool.starts,
            outgrows=pool.outgrows,
        )
    )
    assert found.pools[0].verdict.startswith(verdict)
    if left < 200:
        assert verdict in found.verdict.sentence


def test_where_only_a_bound_is_too_much_both_sums_are_shown() -> None:
    doc = example()
    sizes = {"free": 1000 * MIB, "surely": 900 * MIB, "at_start": 1100 * MIB}
    pool = with_(
        doc.pools[1], **sizes, planned=1100 * MIB, headroom=-100 * MIB, fits=None, starts=None
    )
    known = tuple(b for b in doc.buffers if b.bytes is not None)
    changed = with_(doc, pools=(pool,), buffers=known, fits=None)
    finding = plan_view(changed).verdict
    assert (finding.word, finding.tone) == ("MAY NOT START", Tone.OPEN)
    assert "at least 900 MiB and at most 1100 MiB; 1000 MiB are free" in finding.sentence
    assert "FIX" in terminal(changed)


def test_what_fills_a_pool_is_told_with_its_flag() -> None:
    doc = PLANS["grows too much"]
    grown = PlanGrowth(
        component=Component.CHECKPOINTS,
        device="CPU",
        most=9000 * MIB,
        each=800 * MIB,
        per="turn of a chat",
        enough=5,
        flag="-ctxcp",
    )
    (pool,) = doc.pools
    text = flat(terminal(with_(doc, pools=(with_(pool, growth=(*pool.growth, grown)),))))
    assert "STARTS, CAN OUTGROW" in text
    assert "saved prompts of 4096 tokens (-cram caps it) or after 5 turns of a chat (-ctxcp" in text


def test_sizes_are_rounded_to_the_safe_side() -> None:
    doc = example()
    pool = doc.pools[1]
    over = with_(pool, headroom=-1, at_start=pool.free or 0, planned=(pool.free or 0) + 1)
    assert "1 MiB" in plan_view(with_(doc, pools=(over,))).pools[0].verdict
    kept = with_(pool, headroom=2 * MIB - 1, margin=0, fits=None, at_start=0, planned=0)
    assert plan_view(with_(doc, pools=(kept,), fits=None)).pools[0].verdict.startswith("1 MiB left")


def test_memory_that_is_one_is_shown_as_one() -> None:
    text = flat(terminal(PLANS["unified"], width=120))
    assert "one memory for host and Vulkan0" in text
    assert "GTT size (ttm.pages_limit, amdgpu.gttsize)" in text
    assert "weights CPU_Mapped" in text
    assert "weights Vulkan0" in text


def test_a_limit_that_can_be_moved_says_how_where_room_is_wanting() -> None:
    doc = PLANS["unified"]
    knob = {"knob": "ttm.pages_limit", "move_with": "amd-ttm --set GIB"}
    (pool,) = (with_(pool, **knob) for pool in doc.pools)
    told = "the limit is ttm.pages_limit: amd-ttm --set GIB"
    assert told not in terminal(with_(doc, pools=(pool,)))
    short = with_(doc, fits=False, pools=(with_(pool, fits=False, headroom=-MIB),))
    assert told in flat(terminal(short))
    assert prose(told) in markdown(short)
    assert told in Page(html(short)).text


def test_what_a_driver_cannot_mean_is_not_used() -> None:
    text = flat(terminal(PLANS["unusable"]))
    assert (
        "its reported size is not usable: the driver reports more free (31.00 GiB) than there is"
        in text
    )
    page = html(PLANS["unusable"])
    bar = re.search(r"<svg[^>]*><title>CUDA0</title>.*?</svg>", page, re.DOTALL)
    assert bar
    assert "hatch-margin" not in bar[0]


@pytest.mark.parametrize("fits", [True, False, None])
def test_a_plan_of_nothing_is_no_traceback(fits: bool | None) -> None:
    doc = with_(example(), pools=(), buffers=(), advice=(), context=None, fits=fits)
    assert terminal(doc)
    assert markdown(doc)
    assert Page(html(doc)).open == []


def test_memory_of_no_pool_is_not_lost() -> None:
    doc = example()
    text = terminal(with_(doc, pools=doc.pools[:1], fits=None))
    assert "in no known pool" in text
    assert "15621.0" in text


def test_what_is_unknown_names_itself() -> None:
    text = flat(terminal(PLANS["unknown architecture"]))
    assert "KV, RS, compute and output are unknown" in text
    assert "unknown architecture 'camelid'" in text


def test_what_runs_showed_is_said() -> None:
    text = flat(terminal(PLANS["calibrated"]))
    assert "calibrated +12.50" in text
    assert "estimated, +3.25 from runs; similar runs took more" in text
    assert "its header took 7 requests, 3 MiB" in text


def test_what_fit_will_change_is_told_with_the_context() -> None:
    text = terminal(PLANS["moved by fit"])
    assert text.index("--fit ") < text.index("CUDA0  ")
    assert "NOTE" not in text


def test_an_unused_card_takes_one_line() -> None:
    text = terminal(PLANS["idle card"])
    assert text.count("CUDA1") == 1
    assert "unused" in text


def test_an_interrupted_plan_says_so_first() -> None:
    doc = with_(example(), complete=False)
    assert terminal(doc).index("INTERRUPTED") < terminal(doc).index("DOES NOT FIT")
    assert "INTERRUPTED" in markdown(doc)
    assert "INTERRUPTED" in Page(html(doc)).text


# --- context and frontier ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "argv", "told"),
    [
        (
            {"n_ctx": 16384, "n_ctx_seq": 256, "n_seq_max": 64, "kv_unified": False, "asked": 4096},
            "-c 4096 -np 64",
            (
                "-c 4096 -np 64 becomes 16384 tokens: 256 per slot (each share is rounded up to a "
                "multiple of 256)"
            ),
        ),
        (
            {"n_ctx": 8192, "n_ctx_seq": 2048, "n_seq_max": 4, "kv_unified": False, "asked": 8192},
            "-c 8192 -np 4",
            "-c 8192 -np 4: 2048 per slot",
        ),
        (
            {"n_ctx": 8192, "n_ctx_seq": 8192, "n_seq_max": 4, "kv_unified": True, "asked": 8192},
            "-c 8192 -np 4 -kvu",
            "-c 8192, shared by 4 slots",
        ),
        (
            {"n_ctx": 8192, "n_ctx_seq": 8192, "n_seq_max": 1, "kv_unified": False, "asked": 8000},
            "-c 8000 -np 1",
            "-c 8000 becomes 8192 tokens, one slot",
        ),
        (
            {"n_ctx": 262144, "n_ctx_seq": 262144, "n_seq_max": 1, "kv_unified": False},
            "-np 1",
            "no -c given: 262144 tokens, the model's training context, one slot",
        ),
        (
            {"n_ctx": 5120, "n_ctx_seq": 5120, "n_seq_max": 4, "kv_unified": True},
            "",
            "no -c given: 5120 tokens, shared by 4 slots (the server's own choice without -np)",
        ),
        (
            {"n_ctx": 524288, "n_ctx_seq": 524288, "n_seq_max": 1, "kv_unified": False},
            "-np 1",
            "a slot has more than the 262144 tokens that the model was trained on",
        ),
        (
            {"n_ctx": 512, "n_ctx_seq": 512, "n_seq_max": 1, "kv_unified": False, "n_rs_seq": 3},
            "-np 1",
            "each slot keeps 3 more planes of recurrent state",
        ),
    ],
)
def test_the_arithmetic_of_the_context_is_told(
    context: dict[str, int], argv: str, told: str
) -> None:
    doc = example()
    base = with_(doc.context, asked=None)
    doc = with_(doc, context=with_(base, **context), argv=("llama-server", *argv.split()))
    assert told in "; ".join(plan_view(doc).context)


@pytest.mark.parametrize(
    ("checkpoints", "detail"),
    [
        (32, "4 × 32 × 149.63"),
        (8, "4 × 8 × 598.52"),
        (9, "4 slots × 4788.16"),
        (None, "4 slots × 4788.16"),
    ],
)
def test_a_product_is_only_claimed_where_it_is_whole(checkpoints: int | None, detail: str) -> None:
    doc = example()
    doc = with_(doc, context=with_(doc.context, checkpoints=checkpoints))
    shares = [share for one in plan_view(doc).pools for share in one.shares]
    kept = next(share for share in shares if share.buffer.component is Component.CHECKPOINTS)
    assert kept.detail == detail


def test_the_frontier_says_how_far_and_why() -> None:
    doc = PLANS["frontier"]
    text = terminal(doc)
    assert re.search(r"\n +1 +131072 +131072 +training context\n", text)
    assert re.search(r"\n +64 +\d+ +\d+ +host, \d+ MiB left\n", text)
    assert re.search(r"\n +16 .* ← now 4096\n", text)
    for point in doc.frontier:
        for width in WIDTHS:
            assert f" {point.n_ctx} " in terminal(doc, width=width)


def test_no_context_at_all_is_said() -> None:
    points = (
        FrontierPoint(n_seq_max=1, kv_unified=True, n_ctx=4096, n_ctx_seq=4096, limited_by=None),
        FrontierPoint(n_seq_max=2, kv_unified=True, n_ctx=512, n_ctx_seq=512, limited_by="CUDA0"),
        FrontierPoint(
            n_seq_max=4,
            kv_unified=True,
            n_ctx=None,
            n_ctx_seq=None,
            limited_by="host",
            headroom=-5 * MIB,
        ),
    )
    doc = with_(example(), frontier=points)
    assert re.search(r"4 +none fits +– +host, 5 MiB too much", terminal(doc))
    assert re.search(r"2 +512 +shared +CUDA0", terminal(doc))
    assert "no context fits" in Page(html(doc)).text
    assert "| 4 | none fits |" in markdown(doc)


# --- Markdown and HTML -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_all_outputs_tell_the_same_verdict(name: str) -> None:
    finding = plan_view(PLANS[name]).verdict
    told = f"{finding.word} {finding.sentence}"
    assert flat(told) in flat(terminal(PLANS[name], width=200))
    assert prose(finding.sentence) in markdown(PLANS[name])
    assert flat(told) in flat(Page(html(PLANS[name])).text)


@pytest.mark.parametrize("name", PLANS)
def test_markdown_has_every_line_in_whole_tables(name: str) -> None:
    doc = PLANS[name]
    text = markdown(doc)
    for rows in tables(text):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    shares = [share for one in plan_view(doc).pools for share in one.shares]
    shown = sum(f"| {share.size} | {share.method} |" in text for share in shares)
    assert shown == len(shares)


def test_strangers_text_cannot_become_markup() -> None:
    bare = outside_code(markdown(PLANS["hostile"]))
    assert not re.search(r"(?<!\\)<(?!!-- -->)", bare)
    page = html(PLANS["hostile"])
    assert "<script" not in page
    assert "<img" not in page
    for text in (bare, page, terminal(PLANS["hostile"])):
        assert not set(text) & {"\x1b", "\u202e"}


@pytest.mark.parametrize("name", PLANS)
def test_every_page_is_whole_and_every_picture_has_a_title(name: str) -> None:
    text = html(PLANS[name])
    page = Page(text)
    assert page.open == []
    assert page.untitled == 0
    tags = {tag for tag, _ in page.seen}
    assert not tags & {"script", "img", "link", "iframe", "a", "form"}
    for _, attributes in page.seen:
        assert not {key for key in attributes if key.startswith("on") or key in ("src", "style")}


@pytest.mark.parametrize("name", [name for name in PLANS if name != "refused"])
def test_bars_stay_in_their_picture_and_stand_end_to_end(name: str) -> None:
    text = html(PLANS[name])
    for bar in re.findall(r'<svg width="100%" height="48".*?</svg>', text, re.DOTALL):
        parts = re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%"[^>]*class="fill-', bar)
        ends = [(float(x), float(x) + float(width)) for x, width in parts]
        assert all(end <= 99.01 for _, end in ends)
        assert all(abs(before[1] - after[0]) < 0.01 for before, after in pairwise(ends))


def test_a_picture_says_in_words_what_it_shows() -> None:
    page = Page(html(example()))
    labels = [a.get("aria-label") or "" for tag, a in page.seen if a.get("role") == "img"]
    assert any("RS 598.52 (exact)" in label and "1493 MiB too much" in label for label in labels)
    labels = [a.get("aria-label") or "" for _, a in Page(html(PLANS["frontier"])).seen]
    assert any("16 slots: 524288 tokens, 32768 a slot, limited by host" in told for told in labels)
    assert any("as given: 16 slots, 4096 tokens" in told for told in labels)


def test_how_a_size_is_known_is_hatched_and_said() -> None:
    text = html(PLANS["calibrated"])
    for hatch in ("estimated", "calibrated", "grows", "margin"):
        assert f'id="hatch-{hatch}"' in text
        assert text.count(f"url(#hatch-{hatch})") >= 2, "on the bar and in the key"
    assert "? not known, not drawn" in Page(html(PLANS["card"])).text


def test_growth_beyond_all_measure_does_not_hide_the_rest() -> None:
    text = html(PLANS["ladder"])
    state = re.search(r'width="([\d.]+)%"[^>]*class="fill-rs"', text)
    assert state
    assert float(state[1]) > 20
    assert re.search(r"… on to \d+ MiB", text)


@pytest.mark.parametrize(("points", "pictures"), [(0, 0), (1, 0), (2, 1), (7, 1)])
def test_a_frontier_of_one_point_is_no_picture(points: int, pictures: int) -> None:
    doc = PLANS["frontier"]
    page = Page(html(with_(doc, frontier=doc.frontier[:points])))
    assert page.text.count("(both scales double)") == pictures


# --- for sharing -------------------------------------------------------------------------------


def test_a_shared_plan_tells_nothing_about_its_owner() -> None:
    doc = example()
    worker = "RPC0[10.0.69.2:50052]"
    argv = ("llama-server", "-m", "/srv/acme/q.gguf", "--api-key", "sk-verysecret12345")
    rpc = ("--rpc", "10.0.69.2:50052,atlas77.acme.lan:50052", "-c", "131072")
    texts = (
        "cannot be asked: /home/maribel/llama.cpp/llama-server: permission denied",
        "no record was kept: cannot write /home/maribel/.local/share/arriero/history.db",
        "http://files.acme.lan/models/q.gguf?token=hf_abcdefghijklmnopqrstuvwx answered 401",
        "atlas77.acme.lan:50052 does not answer",
    )
    doc = with_(
        doc,
        model=with_(doc.model, path="http://files.acme.lan/maribel/q.gguf"),
        argv=(*argv, *rpc),
        notes=tuple(PlanNote(id="engine", text=text) for text in texts),
        buffers=(*doc.buffers, with_(doc.buffers[0], device=worker, reason=texts[0])),
        pools=(
            *doc.pools,
            with_(
                doc.pools[0],
                name=worker,
                devices=(worker,),
                limited_by="what the worker at 10.0.69.2:50052 reports",
                note=texts[3],
            ),
        ),
        advice=tuple(with_(one, argv=(*one.argv, *argv[1:])) for one in doc.advice),
        frontier=(
            FrontierPoint(
                n_seq_max=1, kv_unified=False, n_ctx=512, n_ctx_seq=512, limited_by=worker
            ),
        ),
        engine=with_(doc.engine, path="/home/maribel/llama.cpp/llama-server"),
    )
    planted = ("10.0.69.2", "atlas77", "acme", "maribel", "/home", "/srv", "sk-very", "hf_abc")
    shared = Redactor().scrub(doc, share=True)
    for text in (markdown(shared), html(shared)):
        assert [word for word in planted if word in text] == []
        for wanted in ("q.gguf", "CUDA0", "15621.00", "-c 131072", "worker-1", "b10434"):
            assert wanted in text


def test_texts_of_strangers_keep_their_words() -> None:
    assert "window.hacked=1" in Page(html(PLANS["hostile"])).text
    assert HOSTILE.split("\x1b")[0] in html_unescaped(PLANS["hostile"])


def html_unescaped(doc: Plan) -> str:
    return Page(html(doc)).text
