"""Workers and devices of this machine, in the order in which the engine counts them."""

from __future__ import annotations

from dataclasses import replace

from arriero.gotchas.facts import Facts


def endpoints(facts: Facts) -> tuple[str, ...]:
    """The workers that ``--rpc`` names, without those that are known not to answer."""
    answers = facts.workers_or_none or {}
    return tuple(name for name in facts.launch.workers if answers.get(name, True))


def remote_count(facts: Facts) -> int:
    """How many devices the workers have: one each, unless the workers were asked."""
    listed = facts.devices_or_none or ()
    remote = sum(device.name.startswith("RPC") for device in listed)
    return remote or len(endpoints(facts))


def local_devices(facts: Facts) -> tuple[str, ...]:
    """The devices of this machine over which a model is spread if the command names none.

    Raises:
        MissingError: Nothing is known about them.
    """
    pools = [name for pool in facts.pools for name in pool.devices if name != "host"]
    if facts.devices_or_none is None and pools:
        names = pools
    else:
        names = [device.name for device in facts.devices]
    from arriero.memory.placement import chosen_devices
    from arriero.memory.pools import integrated

    local = [name for name in names if not name.startswith("RPC")]
    spread = replace(facts.launch.params, devices=None, split_mode="layer")
    return chosen_devices(spread, local, integrated(facts.pools))
