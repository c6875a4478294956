"""``arriero gotchas``: what is known to break, and whether it does on this engine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from arriero.base.paths import StrPath
from arriero.engine import Engine, find_engine
from arriero.experiment.reproduction import Lab
from arriero.gotchas import Entry, Standing, registry
from arriero.gotchas.verdicts import merged, own, own_directory, shipped, write
from arriero.process import scratch_directory, sweep, temporary_directory
from arriero.record import GotchaEntry, Gotchas, GotchaVerdict, Verdicts
from arriero.report.progress import Progress, Silent


def entries() -> Gotchas:
    """All gotchas with their standing, without the text of their verdicts."""
    verdicts = merged(shipped(), own())
    return Gotchas(gotchas=tuple(_entry(entry, verdicts) for entry in registry().entries))


def shipped_entries() -> Gotchas:
    """All gotchas with the verdicts that come with Arriero: what its documentation is made of."""
    verdicts = shipped()
    every = (_entry(entry, verdicts, whole=True) for entry in registry().entries)
    return Gotchas(gotchas=tuple(every))


def entry(id_: str) -> GotchaEntry:
    """One gotcha with its verdicts.

    Raises:
        NotFoundError: There is none of that id.
    """
    return _entry(registry().get(id_), merged(shipped(), own()), whole=True)


def _entry(entry: Entry, verdicts: Sequence[GotchaVerdict], *, whole: bool = False) -> GotchaEntry:
    standing = Standing(tuple(v for v in verdicts if v.gotcha == entry.id))
    head = entry.head
    return GotchaEntry(
        id=entry.id,
        title=entry.title,
        bundle=entry.bundle,
        kind=head.kind.value,
        severity=head.severity.value,
        status=standing.status,
        confidence=standing.confidence,
        builds=standing.builds,
        not_builds=standing.not_builds,
        updated=head.updated,
        concepts=head.concepts,
        affects=asdict(head.affects),
        log=head.log,
        reporters=head.reporters,
        provenance=asdict(head.provenance),
        related=head.related,
        reproductions=tuple(r.name for r in entry.reproductions),
        sections=entry.sections,
        verdicts=standing.verdicts if whole else (),
    )


@dataclass(frozen=True)
class ReproduceOptions:
    """What ``arriero gotchas verify`` can be told; ``out`` is where verdicts are kept.

    ``worker_engine`` is another build, for reproductions with a worker that the engine refuses.
    """

    engine: StrPath | None = None
    out: StrPath | None = None
    worker_engine: StrPath | None = None


def verify(
    ids: Sequence[str],
    options: ReproduceOptions | None = None,
    *,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
) -> Verdicts:
    """Run the reproductions of these gotchas (of all without ids) on an engine, keep the verdicts.

    Each verdict is kept as soon as it is known: an interruption costs only the one at work, and the
    document then is not ``complete``.

    Raises:
        NotFoundError: There is no such gotcha, or no engine.
        EngineError: The engine cannot be used.
        RecordError: The verdicts cannot be kept.
    """
    options, cwd = options or ReproduceOptions(), Path(cwd or Path.cwd())
    rules = registry()
    chosen = [rules.get(id_) for id_ in ids] or list(rules.entries)
    sweep(temporary_directory())
    engine, other = _engines(options, environ, cwd)
    directory = Path(options.out or own_directory())
    write(directory, ())  # before minutes of work: a directory that cannot be made
    watch = progress or Silent()
    found: list[GotchaVerdict] = []
    complete = False
    watch.begin(2 * sum(len(one.reproductions) for one in chosen))
    try:
        with scratch_directory(temporary_directory()) as scratch:
            lab = Lab(engine, scratch, on_step=watch.step, worker_engine=other)
            for verdict in _reproduced(lab, chosen):
                write(directory, [verdict])
                found.append(verdict)
        complete = True
    except KeyboardInterrupt:
        pass
    finally:
        watch.end()
    return Verdicts(
        build=engine.build,
        verdicts=tuple(found),
        without=tuple(one.id for one in chosen if not one.reproductions),
        complete=complete,
    )


def _engines(
    options: ReproduceOptions, environ: Mapping[str, str] | None, cwd: Path
) -> tuple[Engine, Engine | None]:
    """The engine to run them on, and the other build if one was named."""
    environ = dict(os.environ if environ is None else environ)
    engine = find_engine(None, option=options.engine, environ=environ, cwd=cwd)
    if options.worker_engine is None:
        return engine, None
    return engine, find_engine(None, option=options.worker_engine, environ=environ, cwd=cwd)


def _reproduced(lab: Lab, chosen: Iterable[Entry]) -> Iterator[GotchaVerdict]:
    for one in chosen:
        for reproduction in one.reproductions:
            yield lab.reproduce(one.id, reproduction)
