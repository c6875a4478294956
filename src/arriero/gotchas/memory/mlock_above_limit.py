"""`--mlock` may fail without stopping the server: its weights are then not locked in memory

Symptom
-------
The log warns `warning: failed to mlock N-byte buffer (after previously locking M bytes): Cannot
allocate memory`, and the server starts as if nothing were wrong. Later the kernel pushes weights
out of memory, and requests stall while they are read again.

Root cause
----------
A process without the right to lock any amount may lock only what `ulimit -l` allows, often a few
MiB. llama-server logs the refusal as a warning and continues with pages that the kernel may take
away.

Workaround
----------
Raise the limit before the start: `ulimit -l unlimited` as root, `LimitMEMLOCK=infinity` in a
systemd unit, `--ulimit memlock=-1` for a container. Only the missing warning shows that it worked.

Better fix
----------
The server could refuse to start when it cannot lock its memory as told.
"""

from __future__ import annotations

from collections.abc import Iterator

from arriero.base.sizes import human
from arriero.gotchas.facts import Facts
from arriero.gotchas.model import Affects, Applies, Class, Found, Gotcha, Provenance, Severity, Sign

GOTCHA = Gotcha(
    kind=Class.CONFIGURATION,
    severity=Severity.INFO,
    updated="2026-11-30",
    concepts=("weights", "memory"),
    affects=Affects(flags=("--mlock", "--load-mode")),
    log=("failed to mlock", "Try increasing RLIMIT_MEMLOCK"),
    signs=(Sign(notice="mlock_refused", sure=True),),
    provenance=Provenance(
        builds="seen on 10068, 10092 and 10434", hardware="CPU", command="--mlock, ulimit -l 64"
    ),
)


def detect(facts: Facts) -> Iterator[Found]:
    if not facts.launch.mlock:
        return
    flag = "--mlock" if facts.command.has("--mlock") else "--load-mode"
    size = facts.model.file_bytes
    yield Found(
        because=f"{flag} locks the weights, {human(size)}; if `ulimit -l` allows less, the server"
        " only warns",
        applies=Applies.MAYBE,
        missing=("the limit (`ulimit -l`) under which the server will be started",),
        flag=flag,
    )
