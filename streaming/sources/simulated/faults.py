"""How each fault of a scenario is done to the model and its network, a row an action."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.model.controller.election import Mode
from streaming.sources.simulated.fault import Action, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.sources.simulated.simulation import Simulation


def inflict(simulation: Simulation, fault: Fault) -> None:
    """Let a fault happen now."""
    if fault.action in _TO_A_PROCESS:
        for node in _nodes(simulation, fault):
            _TO_A_PROCESS[fault.action](simulation, node, fault)
    elif fault.link is not None:
        _TO_A_LINK[fault.action](simulation, fault.link, fault)
    else:
        simulation.administer(partial(_BY_AN_ADMINISTRATOR[fault.action], simulation, fault))


def _nodes(it: Simulation, fault: Fault) -> list[BrokerId]:
    if fault.rack is not None:
        return [broker for broker in it.scenario.brokers if it.scenario.racks.get(broker) == fault.rack]
    controllers = it.cluster.controllers
    if fault.controller == "active":
        return [] if controllers.active is None else [controllers.active]
    if fault.controller == "all":
        return list(controllers.nodes)
    node = fault.broker if fault.client is None else fault.client
    assert node is not None  # noqa: S101 - a checked fault names one subject
    return [node]


_TO_A_PROCESS: Final[dict[Action, Callable[[Simulation, BrokerId, Fault], None]]] = {
    Action.KILL: lambda it, node, _: it.cluster.kill(node),
    Action.START: lambda it, node, _: it.start(node),
    Action.STOP: lambda it, node, _: it.cluster.stop(node),
    Action.PAUSE: lambda it, node, _: it.cluster.pause(node),
    Action.RESUME: lambda it, node, _: it.cluster.resume(node),
    Action.LOSE_POWER: lambda it, node, _: it.cluster.lose_power(node),
    Action.WIPE: lambda it, node, _: it.cluster.wipe(node),
    Action.FAIL_LOG_DIR: lambda it, node, fault: it.cluster.fail_log_dir(node, fault.directory or ""),
    Action.SLOW_DISK: lambda it, node, fault: _slow_disk(it, node, fault.records_per_second or 1),
    Action.MEND_DISK: lambda it, node, _: _mend_disk(it, node),
}


def _links_to(it: Simulation, node: BrokerId) -> Iterator[tuple[BrokerId, BrokerId]]:
    yield from ((other, node) for other in it.scenario.brokers if other != node)


def _slow_disk(it: Simulation, node: BrokerId, records_per_second: int) -> None:
    """A follower writes slowly. Departs from life: what it is sent arrives slowly, each leader for itself."""
    for link in _links_to(it, node):
        it.network.slow(link, records_per_second)


def _mend_disk(it: Simulation, node: BrokerId) -> None:
    for link in _links_to(it, node):
        it.release(link)


_TO_A_LINK: Final[dict[Action, Callable[[Simulation, tuple[BrokerId, BrokerId], Fault], None]]] = {
    Action.HOLD: lambda it, link, _: it.network.hold(link),
    Action.SLOW: lambda it, link, fault: it.network.slow(link, fault.records_per_second or 1),
    Action.RELEASE: lambda it, link, _: it.release(link),
    Action.CUT: lambda it, link, _: _both(it.network.hold, link),
    Action.MEND: lambda it, link, _: _both(it.release, link),
}


def _both(act: Callable[[tuple[BrokerId, BrokerId]], None], link: tuple[BrokerId, BrokerId]) -> None:
    act(link)
    act((link[1], link[0]))


def _partitions(it: Simulation, fault: Fault) -> list[TopicPartition]:
    """Give the partitions that a fault is about; none while its topic does not exist."""
    topic_id = it.topic_ids.get(fault.topic or "")
    if topic_id is None:
        return []
    numbers = range(it.partitions_of(topic_id)) if fault.partition is None else (fault.partition,)
    return [TopicPartition(topic_id, number) for number in numbers]


def _unregister(it: Simulation, fault: Fault) -> None:
    if fault.broker is not None:
        it.cluster.admin.unregister_broker(fault.broker)


def _elect(it: Simulation, fault: Fault) -> None:
    mode = Mode.UNCLEAN if fault.election == "unclean" else Mode.PREFERRED
    it.cluster.admin.elect_leaders(mode, _partitions(it, fault))


def _reassign(it: Simulation, fault: Fault, replicas: tuple[BrokerId, ...] | None) -> None:
    it.cluster.admin.alter_partition_reassignments(dict.fromkeys(_partitions(it, fault), replicas))


def _alter_config(it: Simulation, fault: Fault) -> None:
    if fault.topic in it.topic_ids:
        it.cluster.admin.alter_config(fault.key or "", fault.value, topic=fault.topic)


_BY_AN_ADMINISTRATOR: Final[dict[Action, Callable[[Simulation, Fault], None]]] = {
    Action.UNREGISTER: _unregister,
    Action.ELECT: _elect,
    Action.REASSIGN: lambda it, fault: _reassign(it, fault, fault.replicas),
    Action.CANCEL_REASSIGNMENT: lambda it, fault: _reassign(it, fault, None),
    Action.ALTER_CONFIG: _alter_config,
}
