"""Ask one ``libggml-cpu`` what it was compiled for: a separate program, standard library only.

The functions return compile-time constants, so no instruction of these features runs. A library
that dies or hangs while loading costs one child process. ``argv[1]`` is the library, the other
arguments are names of features; the answer is one JSON object with those that it knows.
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
