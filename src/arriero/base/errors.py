"""Errors that end a command. Each says what is wrong, what to do, and the exit status."""

from __future__ import annotations


class ArrieroError(Exception):
    """A problem that the user is told in one line.

    Args:
        message: What is wrong and where, in one line.
        hint: What to do about it, in one line; may be empty.
        id: A stable word for programs, e.g. ``model-truncated``.
    """

    exit_code = 1
    default_id = "failure"

    def __init__(self, message: str, *, hint: str = "", id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.id = id or self.default_id


class UsageError(ArrieroError):
    """The command line given to Arriero cannot be used as it is."""

    exit_code = 2
    default_id = "usage"


class NotFoundError(ArrieroError):
    """There is no engine, model, log or worker at the place that was named."""

    exit_code = 3
    default_id = "not-found"


class ModelError(ArrieroError):
    """A model file exists but cannot be read."""

    default_id = "model"


class EngineError(ArrieroError):
    """An engine exists but cannot be used."""

    default_id = "engine"


class RecordError(ArrieroError):
    """A record cannot be written or read back."""

    default_id = "record"
