"""What went wrong, as a document."""

from __future__ import annotations

from typing import Literal

import msgspec


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    message: str
    hint: str


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["arriero.error/1"] = "arriero.error/1"
    error: ErrorBody
