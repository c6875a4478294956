"""How the server arrives at tokens and slots."""

from __future__ import annotations

from collections.abc import Iterator

from arriero.record import Plan
from arriero.report.view import words as say


def context_words(doc: Plan) -> tuple[str, ...]:
    """How the server arrives at tokens and slots."""
    return tuple(_context(doc))


def _context(doc: Plan) -> Iterator[str]:
    context = doc.context
    if context is None:
        return
    slots, tokens, each = context.n_seq_max, context.n_ctx, context.n_ctx_seq
    told = f"-c {context.asked}" if context.asked else "no -c given"
    if slots > 1 and not context.kv_unified:
        told += f"{'' if context.asked else ','} -np {slots}"
    if tokens != context.asked:
        told += f" becomes {tokens} tokens" if context.asked else f": {tokens} tokens"
    if context.asked is None and tokens == doc.model.n_ctx_train:
        told += ", the model's training context"
    if slots == 1:
        yield f"{told}, one slot"
    elif not context.kv_unified:
        rounded = (
            " (each share is rounded up to a multiple of 256)"
            if tokens > (context.asked or tokens)
            else ""
        )
        yield f"{told}: {each} per slot{rounded}"
    else:
        why = "" if context.slots_given else " (the server's own choice without -np)"
        yield f"{told}, shared by {slots} slots{why}"
    trained = doc.model.n_ctx_train
    if trained and each > trained:
        yield f"a slot has more than the {trained} tokens that the model was trained on"
    if context.n_rs_seq:
        planes = say.count(context.n_rs_seq, "more plane")
        yield f"for drafted tokens each slot keeps {planes} of recurrent state"
