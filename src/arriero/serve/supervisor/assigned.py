"""A supervisor for what a server was told to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arriero.base.words import Kind, Recovery
from arriero.command import Command
from arriero.launch.caches import prompt_cache
from arriero.launch.placement import workers
from arriero.logs.model import Failure
from arriero.serve.assignment import Assignment
from arriero.serve.supervisor.log import RotatingLog
from arriero.serve.supervisor.options import Alternative, Choose, Connect, Hooks, Options
from arriero.serve.supervisor.policy import Policy, ends_in_a_save
from arriero.serve.supervisor.supervisor import Supervisor
from arriero.serve.supervisor.workers import silent, takes_connections


def supervisor_of(
    assignment: Assignment, connect: Connect, log: RotatingLog, hooks: Hooks
) -> Supervisor:
    """The supervisor of an assignment's engine; ``choose`` of the hooks is put in here.

    Raises:
        UsageError: The command cannot be started privately.
    """
    settings = assignment.settings
    options = Options(
        cwd=assignment.cwd,
        policy=Policy(restarts=settings.restarts.count, seconds=settings.restarts.seconds),
        hang_after=settings.hang_after,
        drain=settings.drain,
    )
    hooks = replace(hooks, choose=choice(assignment))
    return Supervisor(assignment.command, assignment.engine, connect, log, options, hooks)


def choice(assignment: Assignment, answers: Callable[[str], bool] | None = None) -> Choose:
    """Which command follows a lack of memory or the loss of a worker.

    Args:
        answers: Whether a worker (``host:port``) takes connections.
    """

    def choose(command: Command, failure: Failure) -> Alternative | None:
        gone = frozenset[str]()
        if failure.kind is Kind.RPC:
            gone = silent(workers(command), answers or takes_connections)
        if not gone and ends_in_a_save(failure):
            return without_saves(command)
        if failure.kind is Kind.RPC:
            found = assignment.without(command, gone) if gone else None
            recovery = Recovery.WITHOUT_WORKER
        else:
            found, recovery = assignment.smaller(command, failure), Recovery.SMALLER
        return None if found is None else Alternative(found.command, recovery, found.change)

    return choose


def without_saves(command: Command) -> Alternative | None:
    """The command that saves no prompts, after a save ended the engine; None if it saves none.

    The same command would end the same way: even Arriero's own completion after a start leaves a
    prompt in the slot, which the next request makes the engine save.
    """
    if prompt_cache(command) == 0 or not command.flags.knows("-cram"):
        return None
    return Alternative(command.with_value("-cram", "0"), Recovery.SMALLER, "-cram 0")
