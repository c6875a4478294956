"""``arriero check``: what is known to break about a command, before it is started."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from arriero.base.errors import UsageError
from arriero.base.paths import StrPath, texts
from arriero.base.redact import Redactor
from arriero.command import builtin_flags, parse_command
from arriero.command.place import is_server
from arriero.command.spelling import respelled
from arriero.gotchas import Registry, match, registry, repair
from arriero.gotchas.matching import Said
from arriero.gotchas.verdicts import on
from arriero.jobs._engine import engine_record
from arriero.jobs._source import Source, behind
from arriero.jobs._surroundings import CheckOptions, Engines, Survey
from arriero.record import Check, Checks, Finding

if TYPE_CHECKING:
    from arriero.command.inputs.model import Written

if TYPE_CHECKING:
    pass

__all__ = ["CheckOptions", "check", "check_file", "fixed_lines", "fixed_notes", "worst"]


def check(
    words: Sequence[StrPath],
    options: CheckOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: StrPath | None = None,
) -> Check:
    """Check one command, also one that ``docker run``, ``sudo`` or the like would start.

    Raises:
        UsageError: It is no llama-server command.
        NotFoundError: The engine named by ``--engine`` is not there.
    """
    words, environ = texts(words), dict(os.environ if environ is None else environ)
    if not any(words):
        raise UsageError("no llama-server command to check", id="no-command")
    checking = _Checking.of(options, cwd)
    try:
        source = Source(words, environ)
        program = parse_command(words, builtin_flags(), environ).program
        if not is_server(program) and (inner := behind(words)) is not None:
            source = inner
        return checking.check(source)
    except UsageError as error:
        found = behind(words) if error.id == "wrapper-refused" else None
        if found is None:
            raise
    return checking.check(found)


def check_file(
    path: StrPath, options: CheckOptions | None = None, *, cwd: StrPath | None = None
) -> Check | Checks:
    """Check every command of a file. The environment of this process has no part in it.

    Raises:
        NotFoundError: There is no such file.
        UsageError: It holds no command, or cannot be read.
    """
    from arriero.command.inputs import read_commands  # late: it reads YAML

    found = read_commands(Path(path), builtin_flags())
    checking = _Checking.of(options, cwd)
    checks = tuple(map(checking.check_written, found))
    return checks[0] if len(checks) == 1 else Checks(checks=checks)


@dataclass
class _Checking:
    """What the checks of several commands share: the rules, their verdicts and the engines."""

    options: CheckOptions
    cwd: Path
    engines: Engines
    rules: Registry = field(default_factory=registry)
    said: Said = field(default_factory=lambda: functools.cache(on))

    @classmethod
    def of(cls, options: CheckOptions | None, cwd: StrPath | None) -> _Checking:
        options, cwd = options or CheckOptions(), Path(cwd or Path.cwd())
        return cls(options, cwd, Engines(options, cwd))

    def check_written(self, written: Written) -> Check:
        try:
            return self.check(
                Source(written.words, written.env, written, written.notes, may_run=False)
            )
        except UsageError as error:
            where = f"{written.path}:{written.line}"
            raise UsageError(f"{where}: {error.message}", hint=error.hint, id=error.id) from None

    def check(self, source: Source) -> Check:
        survey = Survey(source, self.options, self.cwd, self.engines, list(source.notes))
        facts = survey.facts()
        command = facts.command
        found = match(
            facts, self.rules, self.said,
            locate=lambda flag: source.locate(command, flag),
        )  # fmt: skip
        fixed, applied = repair(facts, self.rules, self.said)
        first = {_mended(finding) for finding in found.findings}
        changed = fixed.words != command.words
        redactor = Redactor.for_this_machine(secrets=set(command.secrets()))
        spelled, otherwise = respelled(fixed, source.written, redactor.secrets)
        check = redactor.scrub(
            Check(
                argv=command.safe_argv(),
                findings=found.findings,
                fixed_argv=fixed.safe_argv() if changed else None,
                later=tuple(one for one in applied if _mended(one) not in first),
                where=source.locate(command, None),
                build=facts.build,
                engine=engine_record(facts.engine) if facts.engine else None,
                unchecked=found.unchecked,
                notes=tuple(dict.fromkeys(survey.notes)),
            )
        )
        # Each text is scrubbed already, and "$KEY" behind --api-key tells no key.
        return msgspec.structs.replace(check, spelled=spelled, spelled_otherwise=otherwise)


def _mended(finding: Finding) -> tuple[str, ...]:
    """What a finding's edit is about: a gotcha may ask for several, one after the other."""
    return (finding.id, *(edit.flag for edit in finding.edit or ()))


def worst(document: Check | Checks) -> str | None:
    """The highest severity among all findings."""
    checks = document.checks if isinstance(document, Checks) else (document,)
    found = {finding.severity for check in checks for finding in check.findings}
    return next((level for level in ("error", "warning", "info") if level in found), None)


def fixed_lines(document: Check | Checks) -> tuple[str, ...]:
    """The repaired command of each check as it would be written; as it was if nothing changed."""
    checks = document.checks if isinstance(document, Checks) else (document,)
    return tuple(" ".join(check.spelled) for check in checks)


def fixed_notes(document: Check | Checks) -> tuple[str, ...]:
    """Where those are not what the file has, with the place if there are several."""
    if isinstance(document, Check):
        return document.spelled_otherwise
    return tuple(
        f"{one.where}: {note}" for one in document.checks for note in one.spelled_otherwise
    )
