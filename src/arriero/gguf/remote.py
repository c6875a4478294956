"""Open a model from a file, a part of a split set, an address or a repository."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from arriero.base.errors import UsageError
from arriero.base.paths import StrPath
from arriero.gguf.reader import first_part
from arriero.gguf.source import LocalSource, Source

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def open_model(
    spec: StrPath, *, cwd: StrPath | None = None, environ: Mapping[str, str] | None = None
) -> Source:
    """Open a model; for a split set open the first part, whichever part is named.

    Do not open a remote model inside a running event loop.

    Args:
        spec: A path, an ``http(s)://`` address, ``hf://owner/repo[@revision]/path/file.gguf``, or
            ``hf://owner/repo[@revision][:QUANT]``, for which the file is chosen as
            ``llama-server -hf owner/repo:QUANT`` does. A :class:`~pathlib.Path` is always a file.
        cwd: The directory for relative paths.
        environ: ``MODEL_ENDPOINT`` or ``HF_ENDPOINT``, ``HF_TOKEN`` and the proxies; this
            process's own if not given.

    Raises:
        UsageError: The address has a scheme that cannot be read.
        NotFoundError: There is no such file, repository or quantisation.
        ModelError: It cannot be read; the message says why and contains no credentials.
    """
    scheme = _SCHEME.match(spec) if isinstance(spec, str) else None
    if scheme is None:
        path = Path(cwd or "") / spec
        first = first_part(path.name)
        return LocalSource(path if first == path.name else path.with_name(first))
    # aiohttp takes 0.2 s to import, and a local model needs none of it
    from arriero.gguf import hub, ranges

    environ = os.environ if environ is None else environ
    match scheme[1].lower():
        case "http" | "https":
            return ranges.open_url(str(spec), hub.endpoint(environ), environ)
        case "hf":
            return hub.open_repository(str(spec), environ)
        case other:
            raise UsageError(
                f"cannot read a model over {other}://",
                hint="give a file, http://, https:// or hf://owner/repo/file.gguf",
            )
