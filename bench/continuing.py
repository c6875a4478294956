"""Answers cut at many places and continued, against the undisturbed ones, API by API.

A real engine with one slot and a small model answers; its stream is cut after some pieces of
text, and what ``arriero serve`` would ask for then is asked of it. Equal is an answer that has the
undisturbed one's events, field by field. Of the others (the engine rounds otherwise where it reads
many tokens at once) each must go on as the engine does that is given, at ``/completion``, the
prompt and the text that was sent: exactly so, or but for ties, two tokens that are as likely.

    python bench/continuing.py [--builds 10068 10092 10434] [--most 48]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.serve.cutting import APIS, Cut, Cutter, question
from tests.serve.direct import direct, engine_of
from tests.serve.load import Ask
from tests.serve.model import small_model

PROMPTS: Final = (
    "Write three short lines about the sea, one per line.",
    "Say hello in five languages.",
    "Say 𓀀𓀁𓀂 漢字 and 🐫.",
)
CUTS: Final = (0, 1, 10, 25)
OF_WHOLE: Final = (10,)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--builds", type=int, nargs="+", default=[10068, 10092, 10434])
    arguments.add_argument("--most", type=int, default=48, help="tokens of an answer")
    arguments.add_argument("--apis", nargs="+", default=list(APIS))
    options = arguments.parse_args()
    heads = ("build", "API", "cuts", "equal", "as the engine", "but for ties", "neither")
    print("| " + " | ".join((*heads, "whole answers", "equal to the engine's")) + " |")
    print("|" + "---|" * 9, flush=True)
    words: list[str | Path] = ["-m", small_model(), "-c", "4096", "-np", "1"]
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        for build in options.builds:
            log = Path(directory) / f"{build}.log"
            with direct(engine_of(build), words, log) as (url, _):
                for api in options.apis:
                    failed |= run(url, f"{build} | {api}", api, options.most)
    sys.exit(failed)


def run(url: str, name: str, api: str, most: int) -> bool:
    """Cut the answers of one API; whether anything is not as it must be."""
    of_tokens = "prompt" in dict(APIS[api].extra)
    asks = [question(api, prompt, most) for prompt in PROMPTS[: 1 if of_tokens else None]]
    cuts: list[Cut] = []
    whole = []
    for ask in asks:
        cuts += cuts_of(Cutter(url, ask), CUTS)
        if "stream_options" in dict(ask.extra):
            continue  # a whole answer has its usage anyway
        inside = Cutter(url, replace(ask, stream=False))
        mine, own = inside.whole()
        whole.append(mine == own)
        if mine != own:
            tell(ask, f"whole {mine}\n  of the engine {own}")
        cuts += cuts_of(inside, OF_WHOLE)
    same = sum(cut.same for cut in cuts)
    goes_on = sum(cut.right and not cut.same and cut.ties == 0 for cut in cuts)
    tied = sum(cut.right and not cut.same and cut.ties != 0 for cut in cuts)
    neither = [cut for cut in cuts if not cut.right]
    print(
        f"| {name} | {len(cuts)} | {same} | {goes_on} | {tied} | {len(neither)} "
        f"| {len(whole)} | {sum(whole)} |",
        flush=True,
    )
    for cut in neither:
        tell(cut.ask, f"after {cut.sent!r}: {cut.after!r} {cut.wrong}")
    return bool(neither) or not all(whole)


def cuts_of(cutter: Cutter, places: Sequence[int]) -> Sequence[Cut]:
    """At each of the places that its answer has."""
    return [cutter.cut(at) for at in places if at < len(cutter.pieces)]


def tell(ask: Ask, what: str) -> None:
    print(f"  {ask.path} stream={ask.stream} {ask.prompt!r} {what}", file=sys.stderr)


if __name__ == "__main__":
    main()
