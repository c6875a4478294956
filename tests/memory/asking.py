"""A program: the caches of a model made of a header alone, as an engine's library reports them.

No command of an engine does this: a file without tensors is refused. ``argv`` is the library, the
header and the requests as JSON; standard output gets one list of [context bytes, bytes of recurrent
state], with a reason in place of what was refused. An assertion of the engine ends the program.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from arriero.engine.oracle_child.context import run_context
from arriero.engine.oracle_child.dry_engine import DryEngine
from arriero.engine.oracle_child.raw import by_value
from arriero.engine.oracle_child.refusal import NoAnswer


class _Reading(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p))


_SET_TENSOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def load(engine: DryEngine, header: str) -> int:
    """A model without weights, every tensor as the engine itself would have it."""
    metadata = engine.library.call(
        "gguf_init_from_file",
        ctypes.c_void_p,
        os.fsencode(header),
        _Reading(True, None),
        types=(ctypes.c_char_p, _Reading),
    )
    values = {"no_alloc": True, "use_extra_bufts": False}
    mapping = "load_mode" if "load_mode" in engine.model_params.members else "use_mmap"
    params = by_value(engine.model_params.filled({**values, mapping: 0}))
    nothing = _SET_TENSOR(lambda _tensor, _data: None)
    model = engine.library.call(
        "llama_model_init_from_user",
        ctypes.c_void_p,
        metadata,
        nothing,
        None,
        params,
        types=(ctypes.c_void_p, _SET_TENSOR, ctypes.c_void_p, type(params)),
    )
    if not model:
        raise NoAnswer(engine.account.complaint("no model"))
    return int(model)


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what the engine prints must not mix with the answers
    engine = DryEngine(sys.argv[1])
    answers: list[list[int] | str] = []
    try:
        model = load(engine, sys.argv[2])
        for request in json.loads(sys.argv[3]):
            try:
                buffers = run_context(engine, model, request)["buffers"]
                answers.append([sum(b[k] for b in buffers) for k in ("context", "rs")])
            except NoAnswer as refusal:
                answers.append(str(refusal))
    except NoAnswer as refusal:
        answers.append(str(refusal))
    os.write(out, json.dumps(answers).encode())


if __name__ == "__main__":
    main()
