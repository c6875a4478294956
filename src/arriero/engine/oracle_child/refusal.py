"""The one exception that becomes an answer."""


class NoAnswer(Exception):  # noqa: N818 - an answer in itself, not a defect
    """Why a question has no answer, in one line."""
