"""The command line: parses and prints, nothing else. The work is in :mod:`arriero.jobs`.

Rooms are imported inside the commands so that ``arriero --help`` is quick.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

import click

from arriero import __version__
from arriero.base.errors import ArrieroError, NotFoundError, RecordError, UsageError
from arriero.base.sizes import parse_duration, parse_size
from arriero.base.words import LimitKind

if TYPE_CHECKING:
    import msgspec

    from arriero.machine import Pool
    from arriero.process import Limit
    from arriero.record import Diagnosis, Plan
    from arriero.report.progress import Progress
    from arriero.store import Store

_F = TypeVar("_F", bound=Callable[..., Any])

_SEPARATOR: Final = "--"
_TAKES_COMMAND: Final = frozenset({"diagnose", "verify", "plan", "check"})
_SERVERS: Final = frozenset({"llama-server", "llama-server.exe", "llama-server-vulkan"})
_SWITCHES: Final = frozenset({"--json", "--as-given", "--help"})
_PRINTED: Final = frozenset({"-h", "--help", "--version"})
"""What click itself answers on standard output."""
_INTERRUPTED: Final = "interrupted; every process that was started has ended"
_CLEAN_UP_SECONDS: Final = 2.0
"""A second signal within this time is the same wish to stop, not the wish to stop faster."""


class _InterruptedError(ArrieroError):
    exit_code = 130
    default_id = "interrupted"


class _OutputError(ArrieroError):
    default_id = "output"

    def __init__(self, error: OSError) -> None:
        reason = error.strerror or error
        super().__init__(
            f"cannot write to standard output: {reason}",
            hint="where does it go? is the disk full there?",
        )


class Session:
    """What every command needs: its arguments, the form of its output, the history."""

    def __init__(self, own: list[str], words: list[str] | None, *, bare: bool = False) -> None:
        self.own = own
        """Arriero's own arguments."""
        self.words = words
        """The command after ``--``; None where there is no ``--``."""
        self.bare = bare
        """The words are a model and options of llama-server, without ``--`` and the program."""
        self.json = "--json" in own
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        from arriero.store import Store

        self._store = self._store or Store()
        return self._store

    def show(self, document: msgspec.Struct, text: Callable[[], str]) -> None:
        """The document as JSON, or its text for people."""
        if self._store is not None and self._store.moved_aside is not None:
            self.note(f"the history was damaged: it is now {self._store.moved_aside}")
        if self._store is not None and self._store.open_to_others is not None:
            import shlex

            place = self._store.open_to_others
            self.note(f"others can read the directory {place}: chmod 700 {shlex.quote(str(place))}")
        if self.json:
            from arriero.record import encode

            self.write(encode(document))
        else:
            self.write(text().rstrip("\n").encode(sys.stdout.encoding, "backslashreplace") + b"\n")

    def write(self, data: bytes) -> None:
        """To standard output; a reader that has gone (``| head -1``) changes nothing else.

        Raises:
            _OutputError: It takes nothing.
        """
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        except BrokenPipeError:
            self.drop()
        except OSError as error:
            self.drop()
            raise _OutputError(error) from None

    def drop(self) -> None:
        """Let what is still to be written to standard output go nowhere."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def note(self, text: str) -> None:
        """One line beside the output."""
        click.echo(f"arriero: {self.line(text)}", err=True)

    def leave_echo(self) -> None:
        """Begin a new line after the ``^C`` that a terminal shows."""
        if sys.stderr.isatty():
            click.echo(err=True)

    def line(self, text: str) -> str:
        """The text on one line, without secrets and without anything that moves the cursor."""
        from arriero.base.redact import Redactor
        from arriero.base.secret import secrets_of

        redactor = Redactor(secrets=secrets_of([*self.own, *(self.words or ())], os.environ))
        return "".join(
            char if char.isprintable() else repr(char)[1:-1] for char in redactor.secrets(text)
        )

    def progress(self, allowed: float | None = None) -> Progress:
        from arriero.report.progress import Shown

        return Shown(sys.stderr, allowed=allowed).progress

    def required(self, verb: str) -> list[str]:
        """The command after ``--``."""
        if not self.words:
            raise UsageError(
                "no llama-server command given",
                hint=f"write it after --, as in: arriero {verb} -- llama-server -m model.gguf",
            )
        return self.words


# --- options that several commands have --------------------------------------------------------


def _read(parse: Callable[[str], Any]) -> Any:
    """A callback that reads an option's value and names the option if it cannot."""

    def callback(_: click.Context, option: click.Parameter, value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except UsageError as error:
            raise UsageError(f"{option.opts[-1]}: {error.message}", hint=error.hint) from None

    return callback


def _together(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """Several options as one decorator."""

    def decorate(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_json_option = click.option(
    "--json", is_flag=True, expose_value=False,
    help="One JSON document on standard output and nothing else there.",
)  # fmt: skip
_trial_options = _together(
    click.option(
        "--limit", metavar="SIZE", callback=_read(parse_size),
        help="Memory limit for the server, like 3.5GiB.",
    ),
    click.option(
        "--limit-kind", type=click.Choice([kind.value for kind in LimitKind]),
        default=LimitKind.ADDRESS_SPACE.value, show_default=True,
        help="What it counts. Address space is not RAM: thread arenas and mapped files count too.",
    ),
    click.option(
        "--engine", metavar="PATH", help="The llama-server to use instead of the command's own."
    ),
)  # fmt: skip
_load_options = _together(
    click.option(
        "--requests", type=click.IntRange(1, 100_000), metavar="N", default=64, show_default=True,
        help="Requests that must be served at least.",
    ),
    click.option(
        "--request-timeout", metavar="TIME", default="120s", show_default=True,
        callback=_read(parse_duration), help="How long one request may go unanswered.",
    ),
)  # fmt: skip


def _limit(size: int | None, kind: str) -> Limit | None:
    from arriero.process import Limit

    if size == 0:
        raise UsageError("--limit: must be above zero", hint="write it like 3.5GiB")
    return None if size is None else Limit(size, LimitKind(kind))


# --- commands ----------------------------------------------------------------------------------


class _Formatter(click.HelpFormatter):
    """Help that also fits a narrow terminal; click's own stops at 50 columns."""

    def __init__(self, width: int | None = None, max_width: int | None = None) -> None:
        import shutil  # late: only help is laid out here

        columns = min(shutil.get_terminal_size().columns, max_width or 80)
        super().__init__(width=width or max(columns - 2, 30))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        super().write_dl(list(rows), min(col_max, self.width // 3 + 4), col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(click.Command):
    context_class = _Context


class _Group(click.Group):
    context_class = _Context
    command_class = _Command


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "--version", message="arriero %(version)s")
def cli() -> None:
    """Make llama.cpp's llama-server fit in memory and stay up."""


@cli.command(
    short_help="Why a command does not run, and the smallest fix.",
    options_metavar="[OPTIONS] -- llama-server ...",
)
@_trial_options
@click.option(
    "--from-log", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the failure from this log instead of starting the command as given.",
)  # fmt: skip
@click.option(
    "--as-given", is_flag=True,
    help="Start the command as given even if it could take the machine down.",
)  # fmt: skip
@click.option(
    "--max-time", metavar="TIME", callback=_read(parse_duration),
    help="Bound on the whole, like 10m.",
)  # fmt: skip
@click.option(
    "--max-launches", type=click.IntRange(1, 200), metavar="N", default=24, show_default=True,
    help="Most starts of the server.",
)  # fmt: skip
@_load_options
@click.option(
    "--stall-timeout", metavar="TIME", default="60s", show_default=True,
    callback=_read(parse_duration), help="How long a loading server may do nothing at all.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Write the record and reports, redacted for sharing, into this directory.",
)  # fmt: skip
@_json_option
@click.pass_obj
def diagnose(
    session: Session,
    limit: int | None,
    limit_kind: str,
    engine: str | None,
    from_log: Path | None,
    as_given: bool,
    max_time: float | None,
    max_launches: int,
    requests: int,
    request_timeout: float,
    stall_timeout: float,
    out: Path | None,
) -> int:
    """Find out why a llama-server command does not run.

    Write the command after --, exactly as you type it:

    \b
        arriero diagnose -- llama-server -m model.gguf -c 65536 -np 8

    It is started small, then as given; the first allocation that failed is named; the boundaries of
    slots and context are found in a handful of starts; the smallest change that makes it serve is
    proved with a load. Everything is kept as a record (arriero history).
    """
    words = session.required("diagnose")

    from arriero.jobs import diagnose as job
    from arriero.jobs import share
    from arriero.report import terminal
    from arriero.trial import Patience

    options = job.Options(
        engine=engine,
        limit=_limit(limit, limit_kind),
        from_log=from_log,
        max_time=max_time,
        max_launches=max_launches,
        as_given=as_given,
        requests=requests,
        patience=Patience(request_s=request_timeout, stall_s=stall_timeout),
    )
    if out is not None:
        share.prepare(out)
    document = job.diagnose(
        words, options, store=session.store, progress=session.progress(max_time)
    )
    session.show(document, lambda: terminal.diagnosis(document, **terminal.options(sys.stdout)))
    if out is not None and (status := _write_out(session, document, out)):
        return status
    if document.interrupted:
        session.note(_INTERRUPTED)
        return _InterruptedError.exit_code
    served = document.verdict is None and document.recommendation is not None
    return 0 if served and document.complete else 1


def _write_out(session: Session, document: Diagnosis | Plan, out: Path) -> int:
    """Record and reports into a directory; the exit status if they cannot be written."""
    from arriero.base.redact import Redactor
    from arriero.jobs import share

    try:
        for path in share.write_all(document, out, Redactor.for_this_machine()):
            session.note(f"wrote {path}")
    except RecordError as error:  # the answer has been given; this is beside it
        session.note(error.message)
        return error.exit_code
    return 0


def _budget(text: str) -> Any:
    from arriero.memory import parse_pools

    return parse_pools(text)


@cli.command(
    short_help="What a command will take of memory; nothing is loaded.",
    options_metavar="[OPTIONS] MODEL [llama-server options]",
)
@click.option(
    "--budget", metavar="POOLS", callback=_read(_budget),
    help="Memory to plan for instead of this machine's, like CUDA0=24GiB,host=64GiB.",
)  # fmt: skip
@click.option("--frontier", is_flag=True, help="Also the largest context for 1, 2, 4 … slots.")
@click.option("--engine", metavar="PATH", help="The llama-server to ask for sizes it alone knows.")
@click.option(
    "--assume-build", type=click.IntRange(1, 1_000_000), metavar="N",
    help="Ask no engine; take the rules of this llama.cpp build.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Write the plan and reports, redacted for sharing, into this directory.",
)  # fmt: skip
@_json_option
@click.pass_obj
def plan(
    session: Session,
    budget: tuple[Pool, ...] | None,
    frontier: bool,
    engine: str | None,
    assume_build: int | None,
    out: Path | None,
) -> int:
    """Say what a llama-server command will take, before it is started.

    \b
        arriero plan m.gguf -c 8192 -np 4
        arriero plan -- llama-server ...

    Every buffer with where its size comes from, what is left of each pool of memory, what to change
    if it does not fit. MODEL is a file, any part of a split set, or an http(s):// or hf:// address,
    of which only the header is read.
    """
    from arriero.jobs import plan as job
    from arriero.report import terminal

    if engine is not None and assume_build is not None:
        raise UsageError("--engine and --assume-build exclude each other")
    options = job.Options(
        engine=engine,
        budget=budget,
        frontier=frontier,
        assume_build=assume_build,
        bare=session.bare,
    )
    if out is not None:
        from arriero.jobs import share

        share.prepare(out)
    document = job.plan(
        session.words or [], options, store=session.store, progress=session.progress()
    )
    session.show(document, lambda: terminal.plan(document, **terminal.options(sys.stdout)))
    if out is not None and (status := _write_out(session, document, out)):
        return status
    if not document.complete:
        session.leave_echo()
        session.note("interrupted: advice or frontier are missing")
        return _InterruptedError.exit_code
    return 1 if document.starts is False or document.failure is not None else 0


@cli.command(short_help="What a log says: the first failure, not the last error.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@_json_option
@click.pass_obj
def explain(session: Session, logs: tuple[str, ...]) -> int:
    """Name the failure in a log of any era; - reads standard input."""
    from arriero.jobs import explain as job
    from arriero.record import Explanations
    from arriero.report import terminal

    found = tuple(
        job.explain_stream(_standard_input(session), "-")
        if log == "-"
        else job.explain_file(Path(log))
        for log in logs
    )
    complete = all(explanation.complete for explanation in found)
    if not complete:
        session.leave_echo()
    document = found[0] if len(found) == 1 else Explanations(explanations=found)
    session.show(document, lambda: terminal.explanation(document, **terminal.options(sys.stdout)))
    if not complete:
        session.note("interrupted: this is what had been read by then")
        return _InterruptedError.exit_code
    parts = [part for whole in found for part in (whole.children or (whole,))]
    return 1 if any(part.failure is not None and part.failure.fatal for part in parts) else 0


def _standard_input(session: Session) -> Any:
    if sys.stdin is None:
        raise NotFoundError("standard input is closed", hint="arriero explain FILE", id="no-log")
    if sys.stdin.isatty():
        session.note("reading the log from this terminal; end it with Ctrl-D")
    return sys.stdin.buffer


@cli.command(short_help="Load a server and see whether it gets through.")
@click.argument("url", required=False, metavar="(URL | -- llama-server ...)")
@_trial_options
@_load_options
@click.option(
    "--api-key", envvar="LLAMA_API_KEY", metavar="KEY",
    help="Key of the server at URL.  [env: LLAMA_API_KEY]",
)  # fmt: skip
@_json_option
@click.pass_obj
def verify(
    session: Session,
    url: str | None,
    limit: int | None,
    limit_kind: str,
    engine: str | None,
    requests: int,
    request_timeout: float,
    api_key: str | None,
) -> int:
    """Load a running server (URL), or start a command (after --), load it and end it."""
    from arriero.jobs import verify as job
    from arriero.report import terminal
    from arriero.trial import Patience

    options = job.Options(
        engine=engine,
        limit=_limit(limit, limit_kind),
        requests=requests,
        api_key=api_key,
        patience=Patience(request_s=request_timeout),
    )
    if (url is None) == (session.words is None):
        raise UsageError(
            "give either the address of a running server or a command after --",
            hint="arriero verify http://127.0.0.1:8080   or   arriero verify -- llama-server -m …",
        )
    if url is not None:
        document = job.verify_url(url, options, store=session.store)
    else:
        document = job.verify_command(
            session.required("verify"),
            options,
            store=session.store,
            progress=session.progress(),
        )
    session.show(document, lambda: terminal.verification(document, **terminal.options(sys.stdout)))
    if not document.complete:
        session.note(_INTERRUPTED)
        return _InterruptedError.exit_code
    return 0 if document.failure is None else 1


@cli.command(short_help="Records of earlier runs.")
@click.argument("id", required=False)
@click.option(
    "-n", "--number", type=click.IntRange(1, 10_000), metavar="N", default=20, show_default=True,
    help="How many records to list.",
)  # fmt: skip
@_json_option
@click.pass_obj
def history(session: Session, id: str | None, number: int) -> int:
    """List records, newest first, or show one again by its ID."""
    from arriero.jobs import history as job
    from arriero.report import terminal

    options = terminal.options(sys.stdout)
    if id is None:
        entries = job.entries(session.store, number)
        session.show(entries, lambda: terminal.history(entries.entries, **options))
    else:
        document = job.document(session.store, id)
        session.show(document, lambda: job.text(document, options))
    return 0


@cli.command(short_help="A record made fit for sharing: Markdown, HTML, issue text.")
@click.argument("id")
@click.option(
    "--format", "form", type=click.Choice(["markdown", "html", "upstream"]), default="markdown",
    show_default=True, help="upstream is the text for an issue at llama.cpp.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write it into this file instead of standard output.",
)  # fmt: skip
@_json_option
@click.pass_obj
def report(session: Session, id: str, form: str, out: Path | None) -> int:
    """Write a record for others to read: secrets, paths, names and prompts are taken out.

    With --json it is the record itself, redacted in the same way.
    """
    from arriero.base.redact import Redactor
    from arriero.jobs import history as job
    from arriero.jobs import share
    from arriero.record import encode, write_whole
    from arriero.report.sharing import shared

    document = job.document(session.store, id)
    redactor = Redactor.for_this_machine()
    if session.json:
        data = encode(shared(document, redactor))
    else:
        data = share.render(document, form, redactor).encode()
    if out is None:
        session.write(data)
    else:
        write_whole(out, data)
        session.note(f"wrote {out}")
    return 0


@cli.command(short_help="The JSON Schema of a document.")
@click.argument("name")
@_json_option
@click.pass_obj
def schema(session: Session, name: str) -> int:
    """Print the JSON Schema of a document: diagnosis, explanation, verification, error, …"""
    import msgspec

    from arriero.record import json_schema

    session.write(msgspec.json.format(msgspec.json.encode(json_schema(name)), indent=2) + b"\n")
    return 0


@cli.command(short_help="Write a model without weights that takes the same memory.")
@click.argument("model", required=False)
@click.option(
    "--arch", metavar="NAME", help="Architecture as GGUF names it, tiny: qwen35, mamba2 …"
)
@click.option(
    "--preset", metavar="NAME", help="A named shape instead: ladder-hybrid, llama-3.1-8b …"
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    required=True, help="The model file to write.",
)  # fmt: skip
@click.option("--shrink", is_flag=True, help="Of MODEL: fewer layers, experts and tokens too.")
@click.option(
    "--verbatim", is_flag=True, help="Of MODEL: keep names, texts and tokens; not for sharing."
)
@click.option(
    "--weights", type=click.Choice(["random", "zeros"]),
    help="Of --arch or --preset; zeros leave a sparse file that takes no disk.",
)  # fmt: skip
@click.option(
    "--set", "dimensions", multiple=True, metavar="NAME=N", help="One dimension, like layers=12."
)
@_json_option
@click.pass_obj
def skeleton(
    session: Session,
    model: str | None,
    arch: str | None,
    preset: str | None,
    output: Path,
    shrink: bool,
    verbatim: bool,
    weights: Literal["random", "zeros"] | None,
    dimensions: tuple[str, ...],
) -> int:
    """Write the header of MODEL without its weights: it loads, takes the same memory, is nobody's.

    MODEL is a file, any part of a split set, or an address (https://, hf://). Names, texts and
    tokens are replaced, weights are zeros that take no disk. Without MODEL, --arch or --preset
    makes a model from nothing that answers with printable nonsense.
    """
    from arriero.jobs import skeleton as job

    if model is not None:
        if arch or preset or weights or dimensions:
            raise UsageError("--arch, --preset, --weights and --set do not go with a model")
        record = job.write_of(model, output, shrink=shrink, verbatim=verbatim)
    else:
        if shrink or verbatim:
            raise UsageError("--shrink and --verbatim need a model")
        record = job.write(
            output, arch=arch, preset=preset, weights=weights, dimensions=_dimensions(dimensions)
        )
    session.show(record, lambda: job.text(record))
    return 0


def _dimensions(words: tuple[str, ...]) -> dict[str, int]:
    changes = {}
    for word in words:
        name, _, number = word.partition("=")
        if not number.isdecimal() or len(number) > 9:
            raise UsageError(f"not a dimension: {word}", hint="write it like --set layers=12")
        changes[name] = int(number)
    return changes


@cli.command(
    short_help="What is known to break about a command, before it is started.",
    options_metavar="[OPTIONS]",
)
@click.argument("file", required=False, metavar="(FILE | -- llama-server ...)")
@click.option(
    "--budget", metavar="POOLS", callback=_read(_budget),
    help="Memory to check against instead of this machine's, like CUDA0=24GiB,host=64GiB.",
)  # fmt: skip
@click.option("--engine", metavar="PATH", help="The llama-server whose flags and build count.")
@click.option(
    "--assume-build", type=click.IntRange(1, 1_000_000), metavar="N",
    help="Ask no engine; take flags and rules of this llama.cpp build.",
)  # fmt: skip
@click.option("--probe", is_flag=True, help="Let the engine contact the workers of --rpc.")
@click.option("--fix", is_flag=True, help="Print only the corrected command line.")
@_json_option
@click.pass_obj
def check(
    session: Session,
    file: str | None,
    budget: tuple[Pool, ...] | None,
    engine: str | None,
    assume_build: int | None,
    probe: bool,
    fix: bool,
) -> int:
    """Find what is known to go wrong with a llama-server command, without starting it.

    FILE is a shell script, a systemd unit or Quadlet container, a Dockerfile, a compose, llama-swap
    or Kubernetes file, a models preset (INI) or a JSON array of arguments. Nothing in it is run or
    filled in from the environment.
    """
    from arriero.jobs import check as job
    from arriero.report import checks, screen

    if engine is not None and assume_build is not None:
        raise UsageError("--engine and --assume-build exclude each other")
    if (file is None) == (session.words is None):
        raise UsageError(
            "give either a file with commands or a command after --",
            hint="arriero check start.sh   or   arriero check -- llama-server -m …",
        )
    options = job.Options(engine=engine, budget=budget, assume_build=assume_build, probe=probe)
    document = (
        job.check_file(Path(file), options)
        if file is not None
        else job.check_command(session.required("check"), options)
    )
    if fix and not session.json:
        for note in job.fixed_notes(document):
            session.note(note)
        lines = job.fixed_lines(document)
        session.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
    else:
        session.show(document, lambda: checks.check(document, **screen.options(sys.stdout)))
    return 1 if job.worst(document) == "error" else 0


@cli.command(short_help="What is known to break: list, show ID, verify on this engine.")
@click.argument("action", type=click.Choice(["list", "show", "verify"]))
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--engine", metavar="PATH", help="The llama-server to verify on.")
@click.option("--worker-engine", metavar="PATH", help="Another build, for workers to be refused.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Keep the verdicts in this directory instead of with the records.",
)  # fmt: skip
@_json_option
@click.pass_obj
def gotchas(
    session: Session,
    action: Literal["list", "show", "verify"],
    ids: tuple[str, ...],
    engine: str | None,
    worker_engine: str | None,
    out: Path | None,
) -> int:
    """List what is known to break, show one, or reproduce them on an engine.

    verify runs the reproduction of each (of those given, else of all) and its control with the
    workaround, and keeps what they showed. Only verdicts decide what a gotcha's status is.
    """
    from arriero.jobs import gotchas as job
    from arriero.report import checks, screen

    options = screen.options(sys.stdout)
    if action == "verify":
        told = job.Options(engine, out, worker_engine)
        verdicts = job.verify(ids, told, progress=session.progress())
        session.show(verdicts, lambda: checks.verdicts(verdicts, **options))
        if not verdicts.complete:
            session.note(_INTERRUPTED)
            return _InterruptedError.exit_code
        ran = [v for v in verdicts.verdicts if v.verdict != "could not run"]
        return 0 if ran or not verdicts.verdicts else 1
    if action == "list":
        if ids:
            raise UsageError("list takes no ID", hint=f"arriero gotchas show {ids[0]}")
        every = job.entries()
        session.show(every, lambda: checks.gotchas(every, **options))
        return 0
    if len(ids) != 1:
        raise UsageError("show takes one ID", hint="arriero gotchas list shows all")
    one = job.entry(ids[0])
    session.show(one, lambda: checks.gotcha(one, **options))
    return 0


# --- from arguments to an exit status ------------------------------------------------------------


def _session(argv: list[str]) -> Session:
    """Arriero's own arguments apart from the command that some of its commands take."""
    verb = next((word for word in argv if not word.startswith("-")), None)
    if verb not in _TAKES_COMMAND:
        return Session(argv, None)
    if _SEPARATOR in argv:
        at = argv.index(_SEPARATOR)
        return Session(argv[:at], argv[at + 1 :])
    if verb != plan.name:
        return Session(argv, None)
    own, words = _apart(argv)
    return Session(own, words, bare=not (words and Path(words[0]).name in _SERVERS))


def _apart(argv: list[str]) -> tuple[list[str], list[str]]:
    """The options of ``arriero plan`` by their exact names; all others are llama-server's."""
    from arriero.command import builtin_flags

    takes = {
        name: not p.is_flag for p in plan.params if isinstance(p, click.Option) for name in p.opts
    }
    takes |= {"-h": False, "--help": False}
    flags, at = builtin_flags(), argv.index(str(plan.name))
    own, words = argv[: at + 1], list[str]()
    while (at := at + 1) < len(argv):
        name, equals, _ = argv[at].partition("=")
        if name in takes:
            end = at + 1 + (takes[name] and not equals)
            own += argv[at:end]
        else:
            flag = flags.get(argv[at])
            end = at + 1 + (flag.arity if flag else 0)
            words += argv[at:end]
        at = end - 1
    return own, words


def _misused(error: click.ClickException, session: Session) -> UsageError:
    """What click found wrong, with a hint that fits."""
    own = session.own
    verb = own[0] if own else ""
    message = error.format_message().removesuffix(".")
    if verb not in _TAKES_COMMAND or session.words is not None:
        at = f"{verb} " if verb in cli.commands else ""
        return UsageError(message, hint=f"arriero {at}--help")
    import shlex

    # `arriero diagnose llama-server -m x`: the commonest slip gets its own answer.
    for i, (before, word) in enumerate(pairwise(own), start=1):
        is_value = before.startswith("--") and before not in _SWITCHES
        if ("llama" in word or "server" in word) and not (word.startswith("-") or is_value):
            return UsageError(
                "the command to look at must come after --",
                hint=f"arriero {shlex.join([*own[:i], _SEPARATOR, *own[i:]])}",
                id="no-separator",
            )
    return UsageError(
        message, hint=f"a llama-server command goes after --: arriero {verb} -- llama-server …"
    )


def _fail(error: ArrieroError, session: Session) -> int:
    """The one place where an error becomes text and a status."""
    message, hint = session.line(error.message), session.line(error.hint)
    if session.json and not isinstance(error, _OutputError):
        from arriero.record import ErrorBody, ErrorDocument, encode

        body = ErrorBody(id=error.id, message=message, hint=hint)
        session.write(encode(ErrorDocument(error=body)))
    else:
        click.echo(f"arriero: {message}", err=True)
        if hint:
            click.echo(f"  try: {hint}", err=True)
    return error.exit_code


def _unforeseen(error: Exception) -> ArrieroError:
    """A mistake of Arriero's own. ``python -X dev -m arriero`` shows all of it."""
    import traceback

    if sys.flags.dev_mode:
        traceback.print_exception(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return ArrieroError(
        f"a mistake in arriero: {type(error).__name__}: {error}"
        f" ({Path(frame.filename).name}:{frame.lineno})",
        hint="python -X dev -m arriero … shows where; please report it",
        id="internal",
    )


def run(argv: list[str]) -> int:
    """Run one command and return its exit status."""
    session = _session(argv)
    try:
        return _run(session)
    except _OutputError as error:
        return _fail(error, session)


def _run(session: Session) -> int:
    try:
        with cli.make_context("arriero", list(session.own), obj=session) as context:
            status = cli.invoke(context)
    except click.exceptions.Exit as done:  # --help, --version
        return done.exit_code
    except ArrieroError as error:
        return _fail(error, session)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        return _fail(_misused(error, session), session)
    except KeyboardInterrupt:
        session.leave_echo()
        return _fail(_InterruptedError(_INTERRUPTED), session)
    except BrokenPipeError:
        session.write(b"")  # what is still to be written goes nowhere
        return 0
    except OSError as error:
        if not (error.filename or _PRINTED.isdisjoint(session.own)):
            session.drop()
            return _fail(_OutputError(error), session)
        where = f": {os.fsdecode(error.filename)}" if error.filename else ""
        return _fail(ArrieroError(f"{error.strerror or error}{where}", id="system"), session)
    except Exception as error:  # noqa: BLE001 - the one place that ends the program
        return _fail(_unforeseen(error), session)
    return status if isinstance(status, int) else 0


_STOPPING: Final = [signal.SIGINT, signal.SIGTERM]
"""Signals that end the program."""
if sys.platform != "win32":
    _STOPPING.append(signal.SIGALRM)  # only ever its own
_stopped_at = float("-inf")


def _stop(_number: int, _frame: object) -> None:
    """End by a KeyboardInterrupt, also on SIGTERM: what is open gets closed on the way out."""
    global _stopped_at
    now = time.monotonic()
    if now - _stopped_at > _CLEAN_UP_SECONDS:
        _stopped_at = now
        # asyncio would log a traceback of the task that the interrupt happened to meet.
        if asyncio_log := sys.modules.get("asyncio.log"):
            asyncio_log.logger.disabled = True
        raise KeyboardInterrupt


def _lost(lost: sys.UnraisableHookArgs) -> None:
    """Interrupt again, soon, where an interrupt met a finalizer, in which Python drops it."""
    global _stopped_at
    if sys.platform != "win32" and issubclass(lost.exc_type, KeyboardInterrupt):
        _stopped_at = float("-inf")
        signal.setitimer(signal.ITIMER_REAL, 0.001)
    else:
        sys.__unraisablehook__(lost)


def main() -> NoReturn:
    """The ``arriero`` command; the one place that ends the program."""
    for stream in (sys.stdout, sys.stderr):
        # A name that is not UTF-8, or a terminal that is not, must not end in an exception.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.unraisablehook = _lost
    for number in _STOPPING:
        signal.signal(number, _stop)
    status = run(sys.argv[1:])
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if status == _InterruptedError.exit_code:
        # CPython dies of SIGINT if the interrupt went through an exec() of text, as in a dataclass.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
