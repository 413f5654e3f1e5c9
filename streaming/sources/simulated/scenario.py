"""What happens to a simulated cluster: brokers, topics, traffic, and faults with their times. Checked at birth."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from streaming.contracts.identifiers import BrokerId
from streaming.errors import ConfigurationError
from streaming.model.constants import Constants


class Action(StrEnum):
    """What may happen."""

    KILL = "kill"
    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    HOLD = "hold"
    SLOW = "slow"
    RELEASE = "release"


class Placement(StrEnum):
    """How replicas are placed where a topic does not say it."""

    ROUND_ROBIN = "round_robin"
    """As with ZooKeeper, from the lowest id on: the same for every seed."""
    STRIPED = "striped"
    """As with KRaft, with random numbers of the seed; brokers that run and are registered at that time."""


_OF_LINKS: Final = frozenset({Action.HOLD, Action.SLOW, Action.RELEASE})
_HEALED_BY: Final = {
    Action.KILL: Action.START,
    Action.STOP: Action.START,
    Action.PAUSE: Action.RESUME,
    Action.HOLD: Action.RELEASE,
    Action.SLOW: Action.RELEASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens.

    Attributes:
        at: seconds after the begin of the scenario.
        action: what.
        broker: to which broker, for kill, start, stop, pause, resume.
        link: (leader, follower): what the leader sends to the follower, for hold, slow, release.
        records_per_second: what a slow link still carries.
    """

    at: float
    action: Action
    broker: BrokerId | None = None
    link: tuple[BrokerId, BrokerId] | None = None
    records_per_second: int | None = None

    def sentence(self) -> str:
        """Say it: ``kill broker 3``."""
        told = [str(self.action)]
        if self.broker is not None:
            told.append(f"broker {self.broker}")
        if self.link is not None:
            told.append(f"link {self.link[0]} -> {self.link[1]}")
        if self.records_per_second is not None:
            told.append(f"to {self.records_per_second} records/s")
        return " ".join(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic.

    Attributes:
        assignments: replicas of each partition; without them the scenario's ``placement`` decides.
        acks: ``all`` or ``1``: whether writes are refused below ``min_insync_replicas``.
        create_at: seconds after the begin; None: it exists from the start.
        delete_at: seconds after the begin; None: never.
    """

    name: str
    partitions: int
    replication_factor: int = 3
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    records_per_second: float = 0.0
    acks: str = "all"
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    create_at: float | None = None
    delete_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster and its fate.

    Attributes:
        duration: seconds; the faults lie within.
        racks: of the brokers that have one.
        placement: how replicas are spread over brokers and racks.
        repeat: begin again after ``duration``, for ever; the cluster must then be healed at the end.
    """

    name: str
    description: str = ""
    brokers: tuple[BrokerId, ...]
    racks: dict[BrokerId, str] = field(default_factory=dict)
    placement: Placement = Placement.ROUND_ROBIN
    duration: float = 60.0
    repeat: bool = False
    constants: Constants = field(default_factory=Constants)
    topics: tuple[TopicPlan, ...]
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a scenario that cannot be played."""
        if len(set(self.brokers)) != len(self.brokers) or not self.brokers:
            raise ConfigurationError("brokers must be a list of different ids, for example [1, 2, 3]")
        strangers = self.racks.keys() - set(self.brokers)
        if strangers:
            raise ConfigurationError(f"racks names {min(strangers)}, which is not in brokers")
        for topic in self.topics:
            _check_topic(topic, self)
        for number, fault in enumerate(self.faults, start=1):
            _check_fault(fault, self, f"faults (number {number})")
        if self.repeat:
            _check_healed(self.faults)


def _check_topic(topic: TopicPlan, scenario: Scenario) -> None:
    key = f"topics ({topic.name})"
    if not 1 <= topic.replication_factor <= len(scenario.brokers):
        raise ConfigurationError(
            f"{key}: replication_factor is {topic.replication_factor}; use 1 to {len(scenario.brokers)}, the brokers"
        )
    if topic.partitions < 1:
        raise ConfigurationError(f"{key}: partitions is {topic.partitions}; it must be at least 1")
    if topic.acks not in {"all", "1"}:
        raise ConfigurationError(f'{key}: acks is {topic.acks!r}; use "all" or "1"')
    if topic.assignments and len(topic.assignments) != topic.partitions:
        raise ConfigurationError(f"{key}: assignments must list the replicas of each of {topic.partitions} partitions")
    lengths = {len(replicas) if len(set(replicas)) == len(replicas) else 0 for replicas in topic.assignments}
    if len(lengths) > 1 or 0 in lengths:
        raise ConfigurationError(f"{key}: assignments must list equally many different brokers for each partition")
    strangers = {broker for replicas in topic.assignments for broker in replicas} - set(scenario.brokers)
    if strangers:
        raise ConfigurationError(f"{key}: assignments names {min(strangers)}, which is not in brokers")


def _check_fault(fault: Fault, scenario: Scenario, key: str) -> None:
    if not 0 <= fault.at < scenario.duration:
        raise ConfigurationError(f"{key}: at is {fault.at}; it must lie within the duration, {scenario.duration} s")
    subject = "link" if fault.action in _OF_LINKS else "broker"
    named: tuple[BrokerId | None, ...] = (fault.broker,) if subject == "broker" else fault.link or (None,)
    if not set(named) <= set(scenario.brokers):
        raise ConfigurationError(f"{key}: {fault.action} needs {subject} with ids out of {list(scenario.brokers)}")
    if fault.action is Action.SLOW and (fault.records_per_second or 0) < 1:
        raise ConfigurationError(f"{key}: slow needs records_per_second of at least 1")


def _check_healed(faults: tuple[Fault, ...]) -> None:
    sick: dict[object, Fault] = {}
    for fault in sorted(faults, key=lambda it: it.at):
        subject: object = fault.link or fault.broker
        if fault.action in _HEALED_BY:
            sick[subject] = fault
        else:
            sick.pop(subject, None)
    for subject, fault in sick.items():
        cure = _HEALED_BY[fault.action]
        raise ConfigurationError(f"repeat needs a healed cluster at the end: add a fault {cure} for {subject}")
