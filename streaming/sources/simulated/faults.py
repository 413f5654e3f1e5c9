"""Faults of a scenario, done to the model and its network: a row for each action."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.model.controller.change import Mode
from streaming.sources.simulated.scenario import Action, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from streaming.contracts.identifiers import TopicId
    from streaming.model.cluster.cluster import Cluster
    from streaming.model.messages.network import Link
    from streaming.sources.simulated.scenario import Scenario


def inflict(stage: Stage, fault: Fault) -> None:
    """Let a fault happen now."""
    if fault.action in _TO_A_PROCESS:
        for node in _nodes(stage, fault):
            _TO_A_PROCESS[fault.action](stage, node, fault)
    elif fault.link is not None:
        _TO_A_LINK[fault.action](stage, fault.link, fault)
    else:
        stage.administer(partial(_BY_AN_ADMINISTRATOR[fault.action], stage, fault))


def _nodes(stage: Stage, fault: Fault) -> list[BrokerId]:
    if fault.rack is not None:
        return [broker for broker in stage.scenario.brokers if stage.scenario.racks.get(broker) == fault.rack]
    controllers = stage.cluster.controllers
    if fault.controller == "active":
        return [] if controllers.active is None else [controllers.active]
    if fault.controller == "all":
        return list(controllers.nodes)
    node = fault.broker if fault.client is None else fault.client
    assert node is not None  # noqa: S101 - a checked fault names one subject
    return [node]


_TO_A_PROCESS: Final[dict[Action, Callable[[Stage, BrokerId, Fault], None]]] = {
    Action.KILL: lambda stage, node, _: stage.cluster.kill(node),
    Action.START: lambda stage, node, _: stage.start(node),
    Action.STOP: lambda stage, node, _: stage.cluster.stop(node),
    Action.PAUSE: lambda stage, node, _: stage.cluster.pause(node),
    Action.RESUME: lambda stage, node, _: stage.cluster.resume(node),
    Action.LOSE_POWER: lambda stage, node, _: stage.cluster.lose_power(node),
    Action.WIPE: lambda stage, node, _: stage.cluster.wipe(node),
    Action.FAIL_LOG_DIR: lambda stage, node, fault: stage.cluster.fail_log_dir(node, fault.directory or ""),
    Action.SLOW_DISK: lambda stage, node, fault: _slow_disk(stage, node, fault.records_per_second or 1),
    Action.MEND_DISK: lambda stage, node, _: _mend_disk(stage, node),
}


def _links_to(stage: Stage, node: BrokerId) -> Iterator[tuple[BrokerId, BrokerId]]:
    yield from ((other, node) for other in stage.scenario.brokers if other != node)


def _slow_disk(stage: Stage, node: BrokerId, records_per_second: int) -> None:
    """A follower writes slowly. Departs from life: what it is sent arrives slowly, each leader for itself."""
    for link in _links_to(stage, node):
        stage.network.slow(link, records_per_second)


def _mend_disk(stage: Stage, node: BrokerId) -> None:
    for link in _links_to(stage, node):
        stage.release(link)


_TO_A_LINK: Final[dict[Action, Callable[[Stage, tuple[BrokerId, BrokerId], Fault], None]]] = {
    Action.HOLD: lambda stage, link, _: stage.network.hold(link),
    Action.SLOW: lambda stage, link, fault: stage.network.slow(link, fault.records_per_second or 1),
    Action.RELEASE: lambda stage, link, _: stage.release(link),
    Action.CUT: lambda stage, link, _: _both(stage.network.hold, link),
    Action.MEND: lambda stage, link, _: _both(stage.release, link),
}


def _both(act: Callable[[tuple[BrokerId, BrokerId]], None], link: tuple[BrokerId, BrokerId]) -> None:
    act(link)
    act((link[1], link[0]))


def _partitions(stage: Stage, fault: Fault) -> list[TopicPartition]:
    """Give the partitions that a fault is about; none while its topic does not exist."""
    topic_id = stage.topic_ids.get(fault.topic or "")
    if topic_id is None:
        return []
    numbers = range(stage.partitions_of(topic_id)) if fault.partition is None else (fault.partition,)
    return [TopicPartition(topic_id, number) for number in numbers]


def _unregister(stage: Stage, fault: Fault) -> None:
    if fault.broker is not None:
        stage.cluster.admin.unregister_broker(fault.broker)


def _elect(stage: Stage, fault: Fault) -> None:
    mode = Mode.UNCLEAN if fault.election == "unclean" else Mode.PREFERRED
    stage.cluster.admin.elect_leaders(mode, _partitions(stage, fault))


def _reassign(stage: Stage, fault: Fault, replicas: tuple[BrokerId, ...] | None) -> None:
    stage.cluster.admin.alter_partition_reassignments(dict.fromkeys(_partitions(stage, fault), replicas))


def _alter_config(stage: Stage, fault: Fault) -> None:
    if fault.topic in stage.topic_ids:
        stage.cluster.admin.alter_config(fault.key or "", fault.value, topic=fault.topic)


_BY_AN_ADMINISTRATOR: Final[dict[Action, Callable[[Stage, Fault], None]]] = {
    Action.UNREGISTER: _unregister,
    Action.ELECT: _elect,
    Action.REASSIGN: lambda stage, fault: _reassign(stage, fault, fault.replicas),
    Action.CANCEL_REASSIGNMENT: lambda stage, fault: _reassign(stage, fault, None),
    Action.ALTER_CONFIG: _alter_config,
}


# The stage of a simulation as faults, producers and writers find it. An interface; ``simulation`` is the stage.


class Stage(Protocol):
    """A cluster under a scenario."""

    scenario: Scenario
    cluster: Cluster
    network: SimulatedNetwork
    topic_ids: dict[str, TopicId]

    def start(self, broker: BrokerId) -> None:
        """Operator starts a process."""

    def administer(self, request: Callable[[], object]) -> None:
        """Administrator asks, again and again while no controller is active."""

    def release(self, link: Link) -> None:
        """A held or slow link is itself again."""

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic that exists."""


# The network of the simulated cluster: random latency, links that keep their order, holds and slow links.


LATENCY_MS: Final = (1, 4)


class SimulatedNetwork:
    """Implements ``streaming.model.cluster.cluster.Network``.

    Args:
        random: where latencies come from, and nothing else does.
        latency_ms: shortest and longest way of a message.
    """

    def __init__(self, random: Random, latency_ms: tuple[int, int] = LATENCY_MS) -> None:
        self._random = random
        self._latency_ms = latency_ms
        self._last_arrival: dict[tuple[BrokerId, BrokerId], int] = {}
        self._held: set[tuple[BrokerId, BrokerId]] = set()
        self._records_per_second: dict[tuple[BrokerId, BrokerId], int] = {}

    def arrival(self, now: int, sender: BrokerId, receiver: BrokerId, records: int) -> int | None:
        """Give the time of arrival in ms; a message never overtakes another on the same link. None: held."""
        link = (sender, receiver)
        if link in self._held:
            return None
        at = now + self._random.randint(*self._latency_ms)
        if link in self._records_per_second:
            at += records * 1_000 // self._records_per_second[link]
        at = max(at, self._last_arrival.get(link, 0))
        self._last_arrival[link] = at
        return at

    def is_held(self, link: tuple[BrokerId, BrokerId]) -> bool:
        """Return whether nothing passes this link."""
        return link in self._held

    def hold(self, link: tuple[BrokerId, BrokerId]) -> None:
        """Nothing passes this link any more; nothing is lost either."""
        self._held.add(link)

    def slow(self, link: tuple[BrokerId, BrokerId], records_per_second: int) -> None:
        """Records pass this link at this rate only."""
        self._records_per_second[link] = records_per_second

    def release(self, link: tuple[BrokerId, BrokerId]) -> None:
        """The link is itself again."""
        self._held.discard(link)
        self._last_arrival.pop(link, None)
        self._records_per_second.pop(link, None)
