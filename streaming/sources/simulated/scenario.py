"""Scenario of a simulated cluster: brokers, topics, traffic, and faults with their times. Checked at birth."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import IncidentClass
from streaming.contracts.identifiers import BrokerId
from streaming.errors import ConfigurationError
from streaming.model.constants import Constants
from streaming.model.messages.network import CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class Placement(StrEnum):
    """Placement of replicas where a topic names none."""

    ROUND_ROBIN = "round_robin"
    """As with ZooKeeper, from the lowest id on: the same for every seed."""
    STRIPED = "striped"
    """As with KRaft, with random numbers of the seed; brokers that run and are registered at that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """One topic.

    Attributes:
        assignments: replicas of each partition; without them the scenario's ``placement`` decides.
        brokers: where its replicas may be; all brokers if it names none.
        cleanup_policy: ``delete``, ``compact`` or ``compact,delete``.
        min_insync_replicas: None: it has no value of its own, so that of the leader's file counts.
        acks: ``all`` or ``1``: whether writes are refused below ``min_insync_replicas``.
        create_at: seconds after the begin; None: it exists from the start.
        delete_at: seconds after the begin; None: never.
    """

    name: str
    partitions: int
    replication_factor: int = 3
    min_insync_replicas: int | None = 1
    unclean_leader_election: bool = False
    records_per_second: float = 0.0
    acks: str = "all"
    assignments: tuple[tuple[BrokerId, ...], ...] = ()
    brokers: tuple[BrokerId, ...] = ()
    cleanup_policy: str = "delete"
    create_at: float | None = None
    delete_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """One producer that waits for its answers.

    Attributes:
        id: a node of the network, for links; no broker has it.
        acks: ``all``, ``1`` or ``0``; an idempotent or transactional producer needs ``all``.
        transactional_id: makes it transactional.
        transaction_seconds: how long each of its transactions is open.
        gives_up: the application ends after a transaction that failed.
    """

    id: BrokerId
    topic: str
    records_per_second: float = 5.0
    acks: str = "all"
    idempotent: bool = True
    transactional_id: str = ""
    transaction_seconds: float = 1.0
    gives_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One consumer group.

    Attributes:
        id: the first member's node of the network; the others follow it. No broker and no producer has one of them.
        protocol: ``classic``, or ``consumer`` (KIP-848).
        reads_committed: its members skip aborted transactions and stop before open ones.
    """

    id: BrokerId
    name: str
    topics: tuple[str, ...]
    members: int = 1
    protocol: str = "classic"
    reads_committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueIncident:
    """One incident that really is one: its class, who is to blame, and when, in seconds of the scenario."""

    kind: IncidentClass
    suspects: tuple[BrokerId, ...]
    begin: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Ground truth: what a monitor ought to find out about one round of a scenario, and nothing else.

    Attributes:
        causes: of the ISR and leader changes, each at least once.
        alerts: that would be right.
        incidents: ordered by begin.
    """

    causes: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    incidents: tuple[TrueIncident, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster and its fate.

    Attributes:
        duration: seconds; the faults lie within.
        racks: of the brokers that have one.
        placement: how replicas are spread over brokers and racks.
        repeat: begin again after ``duration``, for ever; the cluster must then be healed at the end.
        truth: what a monitor ought to say of it.
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
    producers: tuple[ProducerPlan, ...] = ()
    groups: tuple[GroupPlan, ...] = ()
    faults: tuple[Fault, ...] = ()
    truth: Truth = field(default_factory=Truth)

    def __post_init__(self) -> None:
        """Refuse a scenario that cannot be played."""
        if len(set(self.brokers)) != len(self.brokers) or not self.brokers:
            raise ConfigurationError("brokers must be a list of different ids, for example [1, 2, 3]")
        strangers = self.racks.keys() - set(self.brokers)
        if strangers:
            raise ConfigurationError(f"racks names {min(strangers)}, which is not in brokers")
        for topic in self.topics:
            _check_topic(topic, self)
        for producer in self.producers:
            _check_producer(producer, self)
        for group in self.groups:
            _check_group(group, self)
        _check_nodes(self)
        for number, fault in enumerate(self.faults, start=1):
            _check_fault(fault, self, f"faults (number {number})")
        for incident in self.truth.incidents:
            _check_incident(incident, self)
        if self.repeat:
            check_healed(self.faults)


def _check_topic(topic: TopicPlan, scenario: Scenario) -> None:
    key = f"topics ({topic.name})"
    brokers = topic.brokers or scenario.brokers
    if not 1 <= topic.replication_factor <= len(brokers):
        raise ConfigurationError(
            f"{key}: replication_factor is {topic.replication_factor}; use 1 to {len(brokers)}, the brokers"
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
    assigned = {broker for replicas in topic.assignments for broker in replicas}
    for name, members in (("assignments", assigned), ("brokers", set(brokers))):
        if strangers := members - set(scenario.brokers):
            raise ConfigurationError(f"{key}: {name} names {min(strangers)}, which is not in brokers")


def _check_producer(producer: ProducerPlan, scenario: Scenario) -> None:
    key = f"producers ({producer.id})"
    if producer.topic not in {topic.name for topic in scenario.topics}:
        raise ConfigurationError(f"{key}: there is no topic {producer.topic}")
    if producer.acks not in {"all", "1", "0"}:
        raise ConfigurationError(f'{key}: acks is {producer.acks!r}; use "all", "1" or "0"')
    if producer.acks != "all" and (producer.idempotent or producer.transactional_id):
        raise ConfigurationError(f'{key}: an idempotent or transactional producer needs acks = "all"')


def _check_group(group: GroupPlan, scenario: Scenario) -> None:
    key = f"groups ({group.name})"
    strangers = set(group.topics) - {topic.name for topic in scenario.topics}
    if strangers or not group.topics:
        raise ConfigurationError(f"{key}: there is no topic {min(strangers, default='that it reads')}")
    if group.protocol not in {"classic", "consumer"}:
        raise ConfigurationError(f"{key}: protocol is {group.protocol!r}; use classic or consumer")
    if group.members < 1:
        raise ConfigurationError(f"{key}: members is {group.members}; it must be at least 1")


def _nodes(scenario: Scenario) -> Iterator[BrokerId]:
    yield from scenario.brokers
    yield from (producer.id for producer in scenario.producers)
    for group in scenario.groups:
        yield from (BrokerId(group.id + number) for number in range(group.members))


def _check_nodes(scenario: Scenario) -> None:
    nodes = list(_nodes(scenario))
    for node in nodes:
        if node < 0 or nodes.count(node) > 1:
            raise ConfigurationError(
                f"id {node} is used twice or below 0; brokers, producers and members of groups each need their own, "
                "for example 1001"
            )


def _check_fault(fault: Fault, scenario: Scenario, key: str) -> None:
    if not 0 <= fault.at < scenario.duration:
        raise ConfigurationError(f"{key}: at is {fault.at}; it must lie within the duration, {scenario.duration} s")
    fault.check(key)
    nodes = {
        node for node in (fault.broker, fault.client, *(fault.link or ()), *(fault.replicas or ())) if node is not None
    }
    strangers = nodes - {*_nodes(scenario), CONTROLLER}
    if strangers:
        raise ConfigurationError(f"{key}: there is no broker {min(strangers)} in {list(scenario.brokers)}")
    if fault.rack is not None and fault.rack not in scenario.racks.values():
        raise ConfigurationError(f"{key}: no broker is in the rack {fault.rack}; racks names them")
    plans = {topic.name: topic for topic in scenario.topics}
    if fault.topic is not None and fault.topic not in plans:
        raise ConfigurationError(f"{key}: there is no topic {fault.topic}")
    if fault.partition is not None and not 0 <= fault.partition < plans[fault.topic or ""].partitions:
        raise ConfigurationError(f"{key}: {fault.topic} has no partition {fault.partition}")


def _check_incident(incident: TrueIncident, scenario: Scenario) -> None:
    key = f"truth.incidents ({incident.kind})"
    if not 0 <= incident.begin <= incident.end <= scenario.duration:
        raise ConfigurationError(f"{key}: begin and end must lie within the duration, {scenario.duration} s")
    strangers = set(incident.suspects) - set(scenario.brokers)
    if strangers:
        raise ConfigurationError(f"{key}: suspects names {min(strangers)}, which is not in brokers")


# Events of a simulated cluster, as values: faults, repairs, and what administrators do.


class Action(StrEnum):
    """An event that may happen."""

    KILL = "kill"
    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    LOSE_POWER = "lose_power"
    WIPE = "wipe"
    SLOW_DISK = "slow_disk"
    MEND_DISK = "mend_disk"
    FAIL_LOG_DIR = "fail_log_dir"
    UNREGISTER = "unregister"
    HOLD = "hold"
    SLOW = "slow"
    RELEASE = "release"
    CUT = "cut"
    MEND = "mend"
    ELECT = "elect"
    REASSIGN = "reassign"
    CANCEL_REASSIGNMENT = "cancel_reassignment"
    ALTER_CONFIG = "alter_config"


class Need(NamedTuple):
    """Subject of an action, and the action that undoes it.

    Attributes:
        subjects: exactly one of these fields says to what it happens.
        also: these fields are needed, too.
        healed_by: the action that makes up for it, None where nothing needs to.
    """

    subjects: tuple[str, ...]
    also: tuple[str, ...] = ()
    healed_by: Action | None = None


_BROKERS: Final = ("broker", "rack")
_PROCESSES: Final = (*_BROKERS, "controller", "client")
NEEDS: Final[dict[Action, Need]] = {
    Action.KILL: Need(_PROCESSES, healed_by=Action.START),
    Action.START: Need(_PROCESSES),
    Action.STOP: Need(_PROCESSES, healed_by=Action.START),
    Action.PAUSE: Need(_PROCESSES, healed_by=Action.RESUME),
    Action.RESUME: Need(_PROCESSES),
    Action.LOSE_POWER: Need(_BROKERS, healed_by=Action.START),
    Action.WIPE: Need(_BROKERS),
    Action.SLOW_DISK: Need(_BROKERS, ("records_per_second",), healed_by=Action.MEND_DISK),
    Action.MEND_DISK: Need(_BROKERS),
    Action.FAIL_LOG_DIR: Need(("broker",), ("directory",)),
    Action.UNREGISTER: Need(("broker",)),
    Action.HOLD: Need(("link",), healed_by=Action.RELEASE),
    Action.SLOW: Need(("link",), ("records_per_second",), healed_by=Action.RELEASE),
    Action.RELEASE: Need(("link",)),
    Action.CUT: Need(("link",), healed_by=Action.MEND),
    Action.MEND: Need(("link",)),
    Action.ELECT: Need(("topic",), ("election",)),
    Action.REASSIGN: Need(("topic",), ("replicas",)),
    Action.CANCEL_REASSIGNMENT: Need(("topic",)),
    Action.ALTER_CONFIG: Need(("topic",), ("key",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that happens.

    Attributes:
        at: seconds after the begin of the scenario.
        action: what.
        broker: to which broker.
        rack: or to every broker of which rack.
        controller: or to which controllers: ``active`` is the one that is it then, ``all`` is all of them.
        client: or to which producer or member of a group, by its id.
        link: (sender, receiver): what the sender sends to the receiver; a node may be ``controller``.
        records_per_second: what a slow link or disk still carries.
        directory: which log directory fails.
        topic: whose partitions an administrator changes.
        partition: which of them; None: all.
        replicas: what a partition is reassigned to.
        election: ``preferred`` or ``unclean``.
        key: of the topic's configuration; ``value`` is the new one, None deletes it.
    """

    at: float
    action: Action
    broker: BrokerId | None = None
    rack: str | None = None
    controller: str | None = None
    client: BrokerId | None = None
    link: tuple[BrokerId, BrokerId] | None = None
    records_per_second: int | None = None
    directory: str | None = None
    topic: str | None = None
    partition: int | None = None
    replicas: tuple[BrokerId, ...] | None = None
    election: str | None = None
    key: str | None = None
    value: str | None = None

    def sentence(self) -> str:
        """Say it: ``kill broker 3``."""
        words = [self.action.replace("_", " ")]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in {"at", "action"} and value is not None:
                words.append(f"{item.name.replace('_', ' ')} {_said(value)}")
        return " ".join(words)

    @property
    def subject(self) -> tuple[str, object]:
        """Subject: (field, value)."""
        return next((name, value) for name in NEEDS[self.action].subjects if (value := getattr(self, name)) is not None)

    def check(self, key: str) -> None:
        """Refuse a fault that says too little or too much.

        Raises:
            ConfigurationError: names what is missing.
        """
        need = NEEDS[self.action]
        if sum(getattr(self, name) is not None for name in need.subjects) != 1:
            raise ConfigurationError(f"{key}: {self.action} needs {' or '.join(need.subjects)}")
        for name in need.also:
            if getattr(self, name) is None:
                raise ConfigurationError(f"{key}: {self.action} needs {name}")
        if self.records_per_second is not None and self.records_per_second < 1:
            raise ConfigurationError(f"{key}: {self.action} needs records_per_second of at least 1")
        if self.client is not None and self.action in {Action.START, Action.STOP}:
            raise ConfigurationError(
                f"{key}: a client is killed, paused or resumed; {self.action} needs broker or rack"
            )
        if self.controller not in {None, "active", "all"}:
            raise ConfigurationError(f"{key}: controller is {self.controller!r}; use active or all")
        if self.election not in {None, "preferred", "unclean"}:
            raise ConfigurationError(f"{key}: election is {self.election!r}; use preferred or unclean")


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join("controller" if node < 0 else str(node) for node in value)
    return str(value)


def check_healed(faults: Collection[Fault]) -> None:
    """Refuse faults that leave something broken at the end, for a scenario that begins again.

    Raises:
        ConfigurationError: names the repair that is missing.
    """
    sick: dict[object, Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.at):
        # The broker that is active when the fault comes is healed with all the others.
        subject = "controllers" if fault.controller else fault.subject
        if NEEDS[fault.action].healed_by is not None:
            sick[subject] = fault
        else:
            sick.pop(subject, None)
    for (kind, value), fault in ((fault.subject, fault) for fault in sick.values()):
        cure = NEEDS[fault.action].healed_by
        raise ConfigurationError(
            f"repeat needs a healed cluster at the end: add a fault {cure} for {kind} {_said(value)}"
        )
