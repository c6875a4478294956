"""What every command needs: its arguments, the form of its output, the history."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from arriero.base.errors import ArrieroError, UsageError
from arriero.cli._argv import Argv
from arriero.cli._errors import OutputError, StoppedError

if TYPE_CHECKING:
    from arriero.report.progress import Progress
    from arriero.report.terminal import Shown
    from arriero.store import Store


class Session:
    """One run of ``arriero``: where its output goes and in which form."""

    def __init__(self, argv: Argv) -> None:
        self.argv = argv
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        from arriero.store import Store

        self._store = self._store or Store()
        return self._store

    def required(self, verb: str) -> list[str]:
        """The command after ``--``."""
        if not self.argv.words:
            raise UsageError(
                "no llama-server command given",
                hint=f"write it after --, as in: arriero {verb} -- llama-server -m model.gguf",
            )
        return self.argv.words

    def show(self, document: Shown) -> None:
        """The document as JSON, or laid out for people."""
        if self._store is not None:
            self._tell_of(self._store)
        if self.argv.json:
            from arriero.record import encode

            self.write(encode(document))
        else:
            from arriero.report.terminal import TerminalLayout

            text = TerminalLayout.on(sys.stdout).render(document).rstrip("\n")
            self.write(text.encode(sys.stdout.encoding, "backslashreplace") + b"\n")

    def _tell_of(self, store: Store) -> None:
        if store.moved_aside is not None:
            self.note(f"the history was damaged; it was moved to {store.moved_aside}")
        if store.open_to_others is not None:
            import shlex

            place = store.open_to_others
            self.note(f"others can read the directory {place}: chmod 700 {shlex.quote(str(place))}")

    def write(self, data: bytes) -> None:
        """To standard output; a reader that has gone (``| head -1``) changes nothing else.

        Raises:
            OutputError: It takes nothing.
        """
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
        except BrokenPipeError:
            self.drop()
        except OSError as error:
            self.drop()
            raise OutputError(error) from None

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

        words = [*self.argv.own, *(self.argv.words or ())]
        redactor = Redactor(secrets=secrets_of(words, os.environ))
        return "".join(
            char if char.isprintable() else repr(char)[1:-1] for char in redactor.secrets(text)
        )

    def progress(self, allowed: float | None = None) -> Progress:
        from arriero.report.progress import Shown

        return Shown(sys.stderr, allowed=allowed).progress

    def stopped(self, note: str = "") -> int:
        """Say that the document before this is not whole; the exit status for it."""
        error = StoppedError()
        self.note(note or error.message)
        return error.exit_code

    def fail(self, error: ArrieroError) -> int:
        """The one place where an error becomes text and a status."""
        message, hint = self.line(error.message), self.line(error.hint)
        if self.argv.json and not isinstance(error, OutputError):
            from arriero.record import ErrorBody, ErrorDocument, encode

            body = ErrorBody(id=error.id, message=message, hint=hint)
            self.write(encode(ErrorDocument(error=body)))
        else:
            click.echo(f"arriero: {message}", err=True)
            if hint:
                click.echo(f"  try: {hint}", err=True)
        return error.exit_code
