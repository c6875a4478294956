"""Access to the bytes of a model. A header needs few of them, wherever the file is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

from arriero.base.errors import ModelError, NotFoundError


class Source(Protocol):
    """Random access to the bytes of one file."""

    @property
    def name(self) -> str:
        """The name for messages; its last component names the part of a split set."""
        ...

    @property
    def size(self) -> int:
        """Total number of bytes."""
        ...

    @property
    def requests(self) -> int:
        """Number of requests to a server, for this file and its siblings; 0 for a local file."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes that servers sent for this file and its siblings; 0 for a local file."""
        ...

    def read(self, offset: int, length: int, ahead: int = 0) -> bytes:
        """The requested bytes, fewer only at the end of the file.

        Up to ``ahead`` more may be read if they cost nothing.
        """
        ...

    def sibling(self, name: str) -> Source:
        """The file of that name in the same place.

        Raises:
            NotFoundError: There is no such file.
        """
        ...

    def close(self) -> None:
        """Close the file or connection."""
        ...


class LocalSource:
    """A regular file on this machine.

    Raises:
        NotFoundError: There is no such file.
        ModelError: It is not a regular file or cannot be read.
    """

    requests = 0
    bytes_read = 0

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # asked before opening: opening a pipe would wait for a writer
            mode = path.stat().st_mode
            if stat.S_ISREG(mode):
                self._file = path.open("rb", buffering=0)
                self.size = os.fstat(self._file.fileno()).st_size
                return
        except FileNotFoundError:
            raise NotFoundError(
                f"there is no model file {path}", hint="check the path, from this directory"
            ) from None
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}: {error}") from error
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise ModelError(f"{path} is {what}", hint="give the .gguf file itself")

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self, offset: int, length: int, ahead: int = 0) -> bytes:
        try:
            self._file.seek(offset)
            return self._file.read(length + ahead)
        except OSError as error:
            raise ModelError(f"cannot read {self.path}: {error}") from error

    def sibling(self, name: str) -> LocalSource:
        return LocalSource(self.path.with_name(name))

    def close(self) -> None:
        self._file.close()
