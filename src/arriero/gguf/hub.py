"""Models on Hugging Face, or on the server that ``MODEL_ENDPOINT`` names instead.

Branch and file are chosen as llama.cpp chooses them: ``get_repo_commit`` in common/hf-cache.cpp and
``find_best_model`` in common/download.cpp (build 11434). Only two requests to the hub are needed; a
client library would bring fifteen packages for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, quote, unquote

from arriero.base.errors import ModelError, NotFoundError, UsageError
from arriero.base.secret import without_secrets
from arriero.gguf.addresses import parsed
from arriero.gguf.client import Client
from arriero.gguf.ranges import RemoteSource
from arriero.gguf.reader import first_part
from arriero.gguf.source import Source

_HUB: Final = "https://huggingface.co/"
_SPEC: Final = re.compile(
    r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:pr|convert)/[^/:]+|[^/:]+))?"
    r"(?:/(?P<path>.+)|:(?P<quant>[\w.-]+))?\Z",
    re.ASCII | re.IGNORECASE,
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}\Z")
_COMPANIONS: Final = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
"""Parts of names of files that belong to a model but are not models."""
_DEFAULT_QUANTS: Final = ("Q4_K_M", "Q8_0")
_QUANT: Final = re.compile(r"[-.]([A-Za-z0-9_]+)(?:-\d{5}-of-\d{5})?\.gguf\Z")
_MAX_NAMED: Final = 8


def endpoint(environ: Mapping[str, str]) -> SplitResult:
    """The hub that llama.cpp would ask."""
    said = environ.get("MODEL_ENDPOINT") or environ.get("HF_ENDPOINT") or _HUB
    return parsed(said.rstrip("/") + "/")


def open_repository(spec: str, environ: Mapping[str, str]) -> Source:
    """Open ``hf://owner/repo[@revision]`` with a path, a quantisation or neither."""
    match = _SPEC.match(spec)
    if match is None:
        raise UsageError(
            f"{without_secrets(spec)} is not a model on Hugging Face",
            hint="write hf://owner/repo/file.gguf or hf://owner/repo:Q4_K_M",
        )
    hub, repo, path = endpoint(environ), match["repo"], match["path"]
    revision = unquote(match["revision"] or "")
    client = Client(hub, hub, environ)
    with client.closed_on_error():
        commit = revision or "main"
        if path is None:
            files, commit = _files(client, hub, repo, revision)
            path = _chosen(files, match["quant"], repo)
        directory, slash, name = path.rpartition("/")
        path = quote(directory + slash + first_part(name))
        url = _below(hub, f"{repo}/resolve/{quote(commit, safe='')}/{path}")
        at = f"@{revision}" if revision else ""
        return RemoteSource(client, url, without_secrets(f"hf://{repo}{at}/{path}"))


def _below(hub: SplitResult, path: str, query: str = "") -> SplitResult:
    return hub._replace(path=hub.path + path, query=query, fragment="")


def _files(client: Client, hub: SplitResult, repo: str, revision: str) -> tuple[list[str], str]:
    """The paths in a repository, in the hub's order, and their revision."""
    name = f"hf://{repo}"
    if not revision:
        refs = client.json(_below(hub, f"api/models/{repo}/refs"), name)
        branches = refs.get("branches") if isinstance(refs, dict) else None
        commits = {
            branch.get("name"): branch.get("targetCommit")
            for branch in (branches if isinstance(branches, list) else ())
            if isinstance(branch, dict) and _COMMIT.match(str(branch.get("targetCommit")))
        }
        revision = str(commits.get("main") or next(iter(commits.values()), ""))
        if not revision:
            raise ModelError(f"{name}: the hub names no branch of this repository")
    tree = _below(hub, f"api/models/{repo}/tree/{quote(revision, safe='')}", "recursive=true")
    files = client.json(tree, name)
    if not isinstance(files, list):
        raise ModelError(f"{name}: the hub's answer is not a list of files")
    paths = (f.get("path") for f in files if isinstance(f, dict) and f.get("type") == "file")
    return [path for path in paths if isinstance(path, str)], revision


def _chosen(paths: list[str], quant: str | None, repo: str) -> str:
    models = [path for path in paths if _is_model(path.rpartition("/")[2])]
    for tag in (quant,) if quant else _DEFAULT_QUANTS:
        pattern = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
        for path in models:
            if pattern.search(path):
                return path
    if not models:
        raise NotFoundError(f"hf://{repo} contains no GGUF model", hint="name another repository")
    if not quant:
        return models[0]
    tags = list(dict.fromkeys(found[1] for path in models if (found := _QUANT.search(path))))
    more = " and others" if len(tags) > _MAX_NAMED else ""
    raise NotFoundError(
        f"hf://{repo} contains no {quant} model",
        hint=f"choose one of {', '.join(tags[:_MAX_NAMED])}{more}",
    )


def _is_model(name: str) -> bool:
    return (
        name.endswith(".gguf")
        and first_part(name) == name
        and not any(word in name for word in _COMPANIONS)
    )
