"""Asks one ``libggml-cpu`` what it was compiled for: a program of its own, standard library only.

The functions return constants that its compiler wrote, so no instruction of the features runs. A
library that dies or hangs while it is loaded costs one child. Library in ``argv[1]``, names behind
it; the answer is one JSON object of those that it can tell.
"""

from __future__ import annotations

import ctypes
import json
import sys
from contextlib import suppress


def main(library: str, names: list[str]) -> None:
    loaded = ctypes.CDLL(library)
    found: dict[str, bool] = {}
    for name in names:
        with suppress(AttributeError):
            found[name] = bool(getattr(loaded, f"ggml_cpu_has_{name.lower()}")())
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
