"""Documents as files: written whole or not at all, read back by their schema tag."""

from __future__ import annotations

import errno
import os
import pkgutil
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from arriero.base import limits
from arriero.base.errors import NotFoundError, RecordError
from arriero.base.sizes import human

_TAG: Final = re.compile(r"arriero\.([a-z-]{1,32})/(\d{1,6})\Z")
_HINTS: Final = {
    errno.ENOSPC: "free some space there, or write it elsewhere",
    errno.EDQUOT: "the quota is used up: free some space there, or write it elsewhere",
    errno.EFBIG: "a file size limit is set here (ulimit -f)",
    errno.EROFS: "the file system is read-only: write it elsewhere",
    errno.EACCES: "no permission there: write it elsewhere",
    errno.EPERM: "no permission there: write it elsewhere",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "does the directory exist?",
    errno.EISDIR: "name a file, not a directory",
}


SCHEMAS: Final = {
    "check": "check:Check",
    "checks": "check:Checks",
    "diagnosis": "diagnosis:Diagnosis",
    "error": "error:ErrorDocument",
    "event": "event:Event",
    "explanation": "explanation:Explanation",
    "explanations": "explanation:Explanations",
    "export": "export:Export",
    "gotcha": "gotchas:GotchaEntry",
    "gotchas": "gotchas:Gotchas",
    "history": "history:History",
    "incident": "incident:Incident",
    "incidents": "incident:Incidents",
    "plan": "plan:Plan",
    "probe": "probe:Probe",
    "run": "run:Run",
    "skeleton": "skeleton:SkeletonRecord",
    "status": "status:Status",
    "verdicts": "gotchas:Verdicts",
    "verification": "verification:Verification",
}
"""Name of a document (``diagnosis``) → module and type in this room."""


def document_type(name: str) -> type[msgspec.Struct]:
    """The type of a document in ``SCHEMAS``, imported only now: few commands need more than one."""
    kind: type[msgspec.Struct] = pkgutil.resolve_name(f"arriero.record.{SCHEMAS[name]}")
    return kind


def _version(kind: type[msgspec.Struct]) -> int:
    """The version of a document: the number in what its ``schema`` is by default."""
    # The types of all fields are not needed for it.
    given = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=False))
    return int(str(given["schema"]).rpartition("/")[2])


class _Tagged(msgspec.Struct, frozen=True):
    schema: str


def encode(document: msgspec.Struct) -> bytes:
    """The document as JSON for people and programs: indented, members in the contract's order."""
    try:
        data = msgspec.json.encode(document)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_as_unicode(msgspec.to_builtins(document)))
    return msgspec.json.format(data, indent=2) + b"\n"


def _as_unicode(value: Any) -> Any:
    """File names and arguments need not be UTF-8, JSON must be: other bytes become visible."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_unicode(key): _as_unicode(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_unicode(part) for part in value]
    return value


def decode(data: bytes, where: str) -> msgspec.Struct:
    """The document in ``data``; ``where`` names its source in errors.

    Raises:
        RecordError: It is damaged, of an unknown kind, or of a newer version.
    """
    try:
        tag = _TAG.match(msgspec.json.decode(data, type=_Tagged).schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(
            f"{where} is damaged or no Arriero document: {error}", id="record-damaged"
        ) from None
    if tag is None or tag[1] not in SCHEMAS:
        raise RecordError(
            f"{where} is a document that this Arriero does not know",
            hint=f"known are {', '.join(SCHEMAS)}",
            id="record-unknown",
        )
    kind = document_type(tag[1])
    version = _version(kind)
    if int(tag[2]) != version:
        raise RecordError(
            f"{where} is a {tag[1]} of version {tag[2]}; this Arriero reads version {version}",
            hint="use the Arriero that wrote it, or a newer one",
            id="record-version",
        )
    from arriero.record.older import completed  # late: it needs most documents

    try:
        return completed(msgspec.json.decode(data, type=kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{where} is damaged: {error}", id="record-damaged") from None


def read_document(path: Path) -> msgspec.Struct:
    """Read one document of any kind.

    Raises:
        NotFoundError: There is no such file.
        RecordError: It cannot be read, or is damaged, unknown, or of a newer version.
    """
    try:
        with limits.open_regular(path) as file:
            data = file.read(limits.DOCUMENT + 1)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no record {path}", hint="check the path, from this directory"
        ) from None
    except (OSError, ValueError) as error:
        raise _told("read", path, error) from None
    if len(data) > limits.DOCUMENT:
        raise RecordError(f"{path} is larger than any Arriero document ({human(limits.DOCUMENT)})")
    return decode(data, str(path))


def write_document(path: Path, document: msgspec.Struct) -> None:
    """Write one document: at any moment the file holds the old one whole or the new one whole.

    Raises:
        RecordError: It cannot be written; the old one, if any, is still there.
    """
    write_whole(path, encode(document))


def write_whole(path: Path, data: bytes) -> None:
    """Replace the content of a file in one step, surviving a kill or a power cut at any moment.

    Raises:
        RecordError: It cannot be written; the old file, if any, is still there.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _replace(path, data)
    except (OSError, ValueError) as error:
        raise _told("write", path, error) from None


def _replace(path: Path, data: bytes) -> None:
    temporary = path.parent / f".arriero-{os.urandom(6).hex()}.tmp"
    try:
        if not _write_nameless(temporary, data):
            with temporary.open("xb") as file:
                _write_through(file, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # the rename too must survive a power cut
        with suppress(OSError):
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)


def _write_nameless(target: Path, data: bytes) -> bool:
    """Write a file that gets its name only when it is complete; False where that cannot be done.

    Until then it is gone with its process, so that even SIGKILL leaves nothing behind.
    """
    nameless = getattr(os, "O_TMPFILE", 0)
    if not nameless:
        return False
    try:
        descriptor = os.open(target.parent, os.O_WRONLY | nameless, 0o666)
    except OSError:
        return False
    with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
        _write_through(file, data)
        try:
            # Given a directory descriptor, link(2) follows the link to the nameless file.
            os.link(f"/proc/self/fd/{descriptor}", target, src_dir_fd=descriptor)
        except OSError:
            return False
    return True


def _write_through(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _told(verb: str, path: Path, error: OSError | ValueError) -> RecordError:
    number = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error)
    return RecordError(f"cannot {verb} {path}: {reason}", hint=_HINTS.get(number or 0, ""))
