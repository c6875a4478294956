"""The command line: parses and prints, nothing else. The work is in :mod:`arriero.jobs`.

Rooms are imported inside the commands so that ``arriero --help`` is quick.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

import click

from arriero import __version__
from arriero.base.errors import ArrieroError, UsageError
from arriero.base.sizes import parse_duration, parse_size

if TYPE_CHECKING:
    import msgspec

    from arriero.process import Limit
    from arriero.report.progress import Progress
    from arriero.store import Store

INTERRUPTED: Final = 130
_SEPARATOR: Final = "--"


class _Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else parse_size(value)


class _Duration(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        return value if isinstance(value, float) else parse_duration(value)


class Session:
    """What every command needs to print: the form of the output and the command after ``--``."""

    def __init__(self, words: list[str] | None) -> None:
        self.words = words
        self.json = False

    def show(self, document: msgspec.Struct, text: str) -> None:
        """The document as JSON, or its text for people."""
        if self.json:
            from arriero.record import encode

            sys.stdout.buffer.write(encode(document))
            sys.stdout.buffer.flush()
        else:
            click.echo(text.rstrip("\n"))

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def progress(self, allowed: float | None = None) -> Progress:
        from arriero.report.progress import Shown

        return Shown(sys.stderr, allowed=allowed).progress

    def store(self) -> Store:
        from arriero.store import Store

        return Store()

    def required(self, verb: str) -> list[str]:
        """The command after ``--``."""
        if not self.words:
            raise UsageError(
                "no llama-server command given",
                hint=f"write it after --, as in: arriero {verb} -- llama-server -m model.gguf",
            )
        return self.words


def _json_option(function: Any) -> Any:
    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.find_root().obj.json = value

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="One JSON document on standard output and nothing else there.",
    )(function)


def _limit_options(function: Any) -> Any:
    function = click.option(
        "--limit-kind",
        type=click.Choice(["address-space", "cgroup"]),
        default="address-space",
        show_default=True,
        help="What it counts. Address space is not RAM: thread arenas and mapped files count too.",
    )(function)
    return click.option(
        "--limit", type=_Size(), metavar="SIZE", help="Memory limit for the server, like 3.5GiB."
    )(function)


def _engine_option(function: Any) -> Any:
    return click.option(
        "--engine", metavar="PATH", help="The llama-server to use instead of the command's own."
    )(function)


def _limit(size: int | None, kind: str) -> Limit | None:
    from arriero.base.words import LimitKind
    from arriero.process import Limit

    return None if size is None else Limit(size, LimitKind(kind))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", message="arriero %(version)s")
def cli() -> None:
    """Make llama.cpp's llama-server fit in memory and stay up."""


@cli.command(short_help="Why a command does not run, and the smallest change that makes it.")
@_limit_options
@_engine_option
@click.option(
    "--from-log", type=click.Path(path_type=Path), metavar="FILE",
    help="Take the failure from this log instead of starting the command as given.",
)  # fmt: skip
@click.option(
    "--as-given", is_flag=True,
    help="Start the command as given even if it could take the machine down.",
)  # fmt: skip
@click.option("--max-time", type=_Duration(), metavar="TIME", help="Bound on the whole, like 10m.")
@click.option(
    "--max-launches", type=click.IntRange(1, 200), default=24, show_default=True,
    help="Most starts of the server.",
)  # fmt: skip
@click.option(
    "--requests", type=click.IntRange(1, 100_000), default=64, show_default=True,
    help="Requests that the recommendation must serve.",
)  # fmt: skip
@click.option(
    "--request-timeout", type=_Duration(), default=120.0, metavar="TIME",
    help="How long one request may go unanswered.  [default: 120s]",
)  # fmt: skip
@click.option(
    "--stall-timeout", type=_Duration(), default=60.0, metavar="TIME",
    help="How long a loading server may do nothing at all.  [default: 60s]",
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

        arriero diagnose --limit 3.5GiB -- llama-server -m model.gguf -c 65536 -np 8

    It is started small, then as given; the first allocation that failed is named; the boundaries of
    slots and context are found in a handful of starts; the smallest change that makes it serve is
    proved with a load. Everything is kept as a record (arriero history).
    """
    from arriero.jobs import diagnose as job
    from arriero.report import terminal
    from arriero.trial import Patience

    words = session.required("diagnose")
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
    document = job.diagnose(
        words, options, store=session.store(), progress=session.progress(max_time)
    )
    if out is not None:
        from arriero.base.redact import Redactor
        from arriero.jobs.share import write_all

        for path in write_all(document, out, Redactor.for_this_machine()):
            session.note(f"wrote {path}")
    session.show(document, terminal.diagnosis(document, **terminal.options(sys.stdout)))
    if document.interrupted:
        return INTERRUPTED
    return 0 if document.verdict is None and document.complete else 1


@cli.command(short_help="What a log says: the first allocation that failed, not the last error.")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@_json_option
@click.pass_obj
def explain(session: Session, logs: tuple[str, ...]) -> int:
    """Name the failure in a log of any era; - reads standard input."""
    from arriero.jobs import explain as job
    from arriero.record import Explanations
    from arriero.report import terminal

    found = tuple(
        job.explain_stream(sys.stdin.buffer, "-") if log == "-" else job.explain_file(Path(log))
        for log in logs
    )
    options = terminal.options(sys.stdout)
    texts = [terminal.explanation(e, **options) for e in found]
    if len(found) == 1:
        session.show(found[0], texts[0])
    else:
        session.show(Explanations(explanations=found), "\n\n".join(texts))
    parts = [part for e in found for part in (e.children or (e,))]
    return 1 if any(p.failure is not None and p.failure.fatal for p in parts) else 0


@cli.command(short_help="Load a server and see whether it gets through.")
@click.argument("url", required=False)
@_limit_options
@_engine_option
@click.option(
    "--requests", type=click.IntRange(1, 100_000), default=64, show_default=True,
    help="How many requests at least.",
)  # fmt: skip
@click.option(
    "--request-timeout", type=_Duration(), default=120.0, metavar="TIME",
    help="How long one request may go unanswered.  [default: 120s]",
)  # fmt: skip
@click.option("--api-key", envvar="LLAMA_API_KEY", help="Key of the server at URL.")
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
        document = job.verify_url(url, options, store=session.store())
    else:
        document = job.verify_command(
            session.required("verify"),
            options,
            store=session.store(),
            progress=session.progress(),
        )
    session.show(document, terminal.verification(document, **terminal.options(sys.stdout)))
    return 0 if document.failure is None else 1


@cli.command(short_help="Records of earlier runs.")
@click.argument("id", required=False)
@click.option("--limit", "count", type=click.IntRange(1, 10_000), default=20, show_default=True)
@_json_option
@click.pass_obj
def history(session: Session, id: str | None, count: int) -> int:  # noqa: A002 - the argument's name
    """List records, newest first, or show one again by its ID."""
    from arriero.jobs import history as job
    from arriero.report import terminal

    options = terminal.options(sys.stdout)
    if id is None:
        entries = job.entries(session.store(), count)
        session.show(entries, terminal.history(entries.entries, **options))
        return 0
    document = job.document(session.store(), id)
    session.show(document, job.text(document, options))
    return 0


@cli.command(short_help="A record as Markdown, HTML or the text of an upstream issue.")
@click.argument("id")
@click.option(
    "--format", "form", type=click.Choice(["markdown", "html", "upstream"]), default="markdown",
    show_default=True,
)  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.pass_obj
def report(session: Session, id: str, form: str, out: Path | None) -> int:  # noqa: A002
    """Write a report that is fit for sharing: secrets, paths, names and prompts are redacted."""
    from arriero.base.redact import Redactor
    from arriero.jobs import history as job
    from arriero.jobs.share import render
    from arriero.record import write_whole

    text = render(job.document(session.store(), id), form, Redactor.for_this_machine())
    if out is None:
        click.echo(text.rstrip("\n"))
    else:
        write_whole(out, text.encode())
        session.note(f"wrote {out}")
    return 0


@cli.command(short_help="The JSON Schema of a document.")
@click.argument("name")
@click.pass_obj
def schema(session: Session, name: str) -> int:
    """Print the JSON Schema of a document of the machine contract, such as diagnosis."""
    del session
    import msgspec

    from arriero.record import json_schema

    click.echo(msgspec.json.format(msgspec.json.encode(json_schema(name)), indent=2).decode())
    return 0


@cli.command(short_help="Write a small or weightless model of an architecture.")
@click.option(
    "--arch", metavar="NAME", help="Architecture as GGUF names it, tiny: qwen35, mamba2 …"
)
@click.option("--preset", metavar="NAME", help="A named shape instead, such as ladder-hybrid.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option(
    "--weights", type=click.Choice(["random", "zeros"]), default="random", show_default=True,
    help="Zeros leave a sparse file that takes no disk.",
)  # fmt: skip
@click.option(
    "--set", "dimensions", multiple=True, metavar="NAME=N", help="One dimension, like layers=12."
)
@_json_option
@click.pass_obj
def skeleton(
    session: Session,
    arch: str | None,
    preset: str | None,
    output: Path,
    weights: Literal["random", "zeros"],
    dimensions: tuple[str, ...],
) -> int:
    """Write a model that loads and answers with printable nonsense, to reproduce a case with."""
    from arriero.jobs import skeleton as job

    changes = {}
    for text in dimensions:
        name, _, number = text.partition("=")
        if not number.isdigit():
            raise UsageError(f"not a dimension: {text}", hint="write it like --set layers=12")
        changes[name] = int(number)
    record = job.write(output, arch=arch, preset=preset, weights=weights, dimensions=changes)
    session.show(record, job.text(record))
    return 0


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Arriero's own words and the command after ``--``."""
    if _SEPARATOR not in argv:
        return argv, None
    at = argv.index(_SEPARATOR)
    return argv[:at], argv[at + 1 :]


def _no_separator(own: list[str]) -> UsageError | None:
    """``arriero diagnose llama-server -m x``: the commonest slip gets its own answer."""
    if len(own) < 2 or own[0] not in {"diagnose", "verify"}:
        return None
    for at, word in enumerate(own[1:], start=1):
        if not word.startswith("-") and ("llama" in word or "server" in word) and "://" not in word:
            line = " ".join([*own[:at], _SEPARATOR, *own[at:]])
            return UsageError(
                "the command to look at must come after --",
                hint=f"arriero {line}",
                id="no-separator",
            )
    return None


def _fail(error: ArrieroError, session: Session) -> int:
    """The one place where an error becomes text and a status."""
    if session.json:
        from arriero.record import ErrorBody, ErrorDocument, encode

        body = ErrorBody(id=error.id, message=error.message, hint=error.hint)
        sys.stdout.buffer.write(encode(ErrorDocument(error=body)))
        sys.stdout.buffer.flush()
    else:
        click.echo(f"arriero: {error.message}", err=True)
        if error.hint:
            click.echo(f"  try: {error.hint}", err=True)
    return error.exit_code


def _terminate(_number: int, _frame: object) -> NoReturn:
    # Once is enough: a second signal must not break the clean-up of the first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def run(argv: list[str]) -> int:
    """Run one command and return its exit status."""
    own, words = _split(argv)
    session = Session(words)
    session.json = "--json" in own
    try:
        if words is None and (slip := _no_separator(own)) is not None:
            raise slip
        status = cli.main(own, prog_name="arriero", standalone_mode=False, obj=session)
    except ArrieroError as error:
        return _fail(error, session)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        return _fail(UsageError(error.format_message(), hint="see arriero --help"), session)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; every process it started has ended", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123 - the exit flushes it
        return 0
    except OSError as error:
        return _fail(
            ArrieroError(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")), session
        )
    return status if isinstance(status, int) else 0


def main() -> NoReturn:
    """Entry point of the ``arriero`` command; the one place that ends the program."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _terminate)
    sys.exit(run(sys.argv[1:]))
