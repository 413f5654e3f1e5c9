"""The state of a cluster's metadata, and the effect of each metadata record on it.

Pure; depends on metadata records only. Merging follows ``PartitionRegistration.merge``, ``ClusterControlManager`` and
``ReplicationControlManager`` of Apache Kafka (KIP-631; ELR fields KIP-966).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, fields, replace
from functools import singledispatchmethod
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.contracts.codec import UNDECODABLE
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import (
    DISKLESS,
    DISKLESS_KEYS,
    MIN_ISR,
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Observation,
    PartitionObserved,
    TopicRemoved,
    is_true,
)
from streaming.contracts.records import (
    ELR_VERSION,
    METADATA_VERSION,
    RECOVERING,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    EndPoint,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
    UndecodableRecord,
    UnregisterBroker,
    UnregisterController,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.identifiers import Offset, TopicId
    from streaming.sources.metadata_log.causes import Explanation

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
CONFIG_KEYS: Final = frozenset({MIN_ISR, UNCLEAN_ELECTION, *DISKLESS_KEYS})
_4_0_IV0: Final = 22  # level of metadata.version


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """A partition was created (``before`` is None) or took one step."""

    topic: str
    before: Partition | None
    after: Partition


@dataclass(frozen=True, slots=True)
class BrokerStep:
    """A broker changed; ``broker`` is its registration afterwards; ``is_amended``: by the same process as before."""

    broker: RegisterBroker
    registered: bool = True
    is_amended: bool = False


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic was deleted."""

    topic: str
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class ConfigStep:
    """A configuration that matters to replication was set or unset; ``topic`` "" is the cluster's default."""

    topic: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class MinimaStep:
    """The minima that are set for single brokers, by id, all of them; -1 for what is no number."""

    minima: dict[BrokerId, int]


@dataclass(frozen=True, slots=True)
class CauseRevision:
    """The earlier step of a partition at this offset is proven to belong to a controlled shutdown of a broker."""

    topic: str
    topic_id: TopicId
    partition: int
    offset: Offset
    broker: BrokerId


@dataclass(frozen=True, slots=True)
class ControllersStep:
    """The registered controllers changed: the newest metadata.version that each supports, 0 for unknown, by id."""

    leader: LeaderChange
    levels: dict[int, int]


Effect = (
    PartitionStep
    | BrokerStep
    | TopicDeleted
    | ConfigStep
    | MinimaStep
    | CauseRevision
    | LeaderChange
    | ControllersStep
    | UndecodableRecord
)


class MetadataState:
    """Topics, partitions, brokers, the levels of features and the configurations of ``CONFIG_KEYS``.

    Invariant: ``topics``, ``partitions`` and ``_ids`` always hold the same topics.
    """

    def __init__(self) -> None:
        self.topics: dict[TopicId, str] = {}
        self.partitions: dict[TopicId, dict[int, Partition]] = {}
        self.brokers: dict[BrokerId, RegisterBroker] = {}
        # Directories of the present registrations that failed since. Of those before a restart of the collector nothing
        # is known: an assignment to one of them is older than that.
        self._failed: dict[BrokerId, frozenset[str]] = {}
        self.configs: dict[tuple[str, str], str] = {}
        # By broker. None: a checkpoint of an older program had none, so it is unknown which were set before.
        self.minima: dict[BrokerId, str] | None = {}
        self.features: dict[str, int] = {}
        self.controller: LeaderChange | None = None
        self.controller_end_points: dict[int, tuple[EndPoint, ...]] = {}
        self.controllers: dict[int, int] = {}
        self._ids: dict[str, TopicId] = {}
        self._advertised: Mapping[int, tuple[str, int]] = {}
        self._listener: str | None = None

    def shutting_down(self) -> frozenset[BrokerId]:
        """Return the brokers in controlled shutdown."""
        return frozenset(broker for broker, state in self.brokers.items() if state.in_controlled_shutdown)

    def log_dirs(self) -> dict[BrokerId, frozenset[str]]:
        """Return the directories that each broker has registered, those that failed since included."""
        return {
            broker: frozenset(state.log_dirs) | self._failed.get(broker, frozenset())
            for broker, state in self.brokers.items()
        }

    def unclean_enabled(self, topic_id: TopicId) -> bool:
        """Return whether the log enables unclean elections for a topic (it does not contain static broker defaults)."""
        topic = self.topics.get(topic_id, "")
        return is_true(self.configs.get((topic, UNCLEAN_ELECTION), self.configs.get(("", UNCLEAN_ELECTION))))

    def reported_configs(self) -> dict[tuple[str, str], str]:
        """Return every configuration that is set, as it is reported."""
        keys = dict.fromkeys((topic, _reported_as(key)) for topic, key in self.configs)
        return {(topic, key): value for topic, key in keys if (value := self._config(topic, key)) is not None}

    def of_minima(self) -> list[Effect]:
        """Return the minima that are set for single brokers; none while they are not known."""
        minima = None if self.minima is None else sorted(self.minima.items())
        return [] if minima is None else [MinimaStep({one: int(n) if n.isdecimal() else -1 for one, n in minima})]

    def _config(self, topic: str, key: str) -> str | None:
        """Return one configuration; one that has two names is true if it is by either."""
        names = DISKLESS_KEYS if key == DISKLESS else (key,)
        values = [self.configs[topic, name] for name in names if (topic, name) in self.configs]
        return next(filter(is_true, values), values[0] if values else None)

    def is_4_0(self) -> bool:
        """Return whether the controllers are proven to be of 4.0 or newer; older ones cannot raise these features."""
        return self.features.get(METADATA_VERSION, 0) >= _4_0_IV0 or self.features.get(ELR_VERSION, 0) > 0

    def of_controllers(self) -> list[Effect]:
        """Return who leads, with the controllers that are registered; these are none below 3.7-IV0."""
        if self.controller is None:
            return []
        return [ControllersStep(self.controller, dict(self.controllers)) if self.controllers else self.controller]

    def may_have_elr(self) -> bool:
        """Return whether eligible leader replicas are on, or no record has said the level of any feature."""
        return not self.features or self.features.get(ELR_VERSION, 0) > 0

    def add_topic(self, topic_id: TopicId, topic: str) -> None:
        """Add a topic without partitions."""
        self.topics[topic_id] = topic
        self.partitions[topic_id] = {}
        self._ids[topic] = topic_id

    @singledispatchmethod
    def apply(self, record: MetadataRecord) -> list[Effect]:
        """Apply one record and return its effects; records that do not concern replication have none.

        A record that contradicts the state is returned as ``UndecodableRecord`` with the reason.
        """
        del record
        return []

    @apply.register
    def _(self, record: Topic) -> list[Effect]:
        if not record.topic or not record.topic_id:
            return [_rejected(record, "topic without name or id")]
        self.add_topic(record.topic_id, record.topic)
        return []

    @apply.register
    def _(self, record: RemoveTopic) -> list[Effect]:
        topic = self.topics.pop(record.topic_id, None)
        if topic is None:
            return [_rejected(record, "removal of an unknown topic")]
        del self.partitions[record.topic_id]
        self._ids.pop(topic, None)
        keys = [key for name, key in self.configs if name == topic]
        for key in keys:
            del self.configs[topic, key]
        unset = sorted({_reported_as(key) for key in keys})
        return [TopicDeleted(topic, record.topic_id), *(ConfigStep(topic, key, None) for key in unset)]

    @apply.register
    def _(self, record: Partition) -> list[Effect]:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return [_rejected(record, "partition of an unknown topic")]
        if not record.replicas or record.partition < 0:
            return [_rejected(record, "partition without replicas or with a negative number")]
        self.partitions[record.topic_id][record.partition] = record
        return [PartitionStep(topic, None, record)]

    @apply.register
    def _(self, record: PartitionChange) -> list[Effect]:
        before = self.partitions.get(record.topic_id, {}).get(record.partition)
        if before is None:
            return [_rejected(record, "change of an unknown partition")]
        if record.replicas == ():
            return [_rejected(record, "change that leaves no replica")]
        return [self._merge(before, record)]

    @apply.register
    def _(self, record: ClearElr) -> list[Effect]:
        if record.topic and record.topic not in self._ids:
            return [_rejected(record, "clearing of an unknown topic's eligible leader replicas")]
        topic_ids = [self._ids[record.topic]] if record.topic else list(self.topics)
        holders = [
            partition
            for topic_id in topic_ids
            for _, partition in sorted(self.partitions[topic_id].items())
            if partition.elr or partition.last_known_elr
        ]
        return [
            self._merge(
                before, PartitionChange(topic_id=before.topic_id, partition=before.partition, elr=(), last_known_elr=())
            )
            for before in holders
        ]

    def learn_listener(self, advertised: Mapping[int, tuple[str, int]]) -> None:
        """Find the listener whose addresses brokers advertise to us; ``advertised`` are those, by broker."""
        self._advertised = advertised
        counts = Counter(
            each.listener
            for broker, record in self.brokers.items()
            for each in record.end_points
            if advertised.get(broker) == (each.host, each.port)
        )
        self._listener = max(sorted(counts), key=counts.__getitem__, default=None)

    def labelled(self, record: RegisterBroker) -> RegisterBroker:
        """Return a registration with the address of the listener that is used; without one if it does not have that."""
        if self._listener is None or not record.end_points:
            return record
        at = next((each for each in record.end_points if each.listener == self._listener), None)
        return replace(record, host=None if at is None else at.host, port=None if at is None else at.port)

    def _merge(self, before: Partition, change: PartitionChange) -> PartitionStep:
        self.partitions[before.topic_id][before.partition] = after = merge(before, change)
        return PartitionStep(self.topics[before.topic_id], before, after)

    @apply.register
    def _(self, record: RegisterBroker) -> list[Effect]:
        before = self.brokers.get(record.broker)
        is_amended = before is not None and before.incarnation_id == record.incarnation_id
        self.brokers[record.broker] = record
        self._failed |= {} if is_amended else {record.broker: frozenset()}
        if self._listener is None:
            self.learn_listener(self._advertised)
        return [BrokerStep(self.labelled(record), is_amended=is_amended)]

    @apply.register
    def _(self, record: BrokerRegistrationChange) -> list[Effect]:
        before = self.brokers.get(record.broker)
        if before is None:
            return [_rejected(record, "change of an unregistered broker")]
        after = replace(
            before,
            broker_epoch=record.broker_epoch,
            fenced=before.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=before.in_controlled_shutdown or record.in_controlled_shutdown > 0,
            log_dirs=before.log_dirs if record.log_dirs is None else record.log_dirs,
        )
        self.brokers[record.broker] = after
        if lost := frozenset(before.log_dirs).difference(after.log_dirs):
            self._failed[record.broker] = lost | self._failed.get(record.broker, frozenset())
        # One session timeout after a controlled shutdown the controller fences the broker again, which changes nothing.
        return [BrokerStep(self.labelled(after))] if after != before else []

    @apply.register
    def _(self, record: UnregisterBroker) -> list[Effect]:
        before = self.brokers.pop(record.broker, None)
        if before is None:
            return [_rejected(record, "removal of an unregistered broker")]
        return [BrokerStep(before, registered=False)]

    @apply.register
    def _(self, record: Config) -> list[Effect]:
        is_topic = record.resource_type == RESOURCE_TOPIC
        is_broker = record.resource_type == RESOURCE_BROKER
        is_default = is_broker and not record.resource_name
        if is_broker and record.resource_name.isdecimal() and record.key == MIN_ISR:
            return self._minimum_set(BrokerId(int(record.resource_name)), record.value)
        if record.key not in CONFIG_KEYS or not (is_topic or is_default):
            return []
        name = record.resource_name if is_topic else ""
        if record.value is None:
            self.configs.pop((name, record.key), None)
        else:
            self.configs[name, record.key] = record.value
        key = _reported_as(record.key)
        return [ConfigStep(name, key, self._config(name, key))]

    def _minimum_set(self, broker: BrokerId, value: str | None) -> list[Effect]:
        """Set the minimum of one broker alone; None takes it back."""
        if self.minima is not None:
            self.minima = {each: other for each, other in self.minima.items() if each != broker}
            self.minima |= {} if value is None else {broker: value.strip()}
        return self.of_minima()

    @apply.register
    def _(self, record: FeatureLevel) -> list[Effect]:
        self.features[record.feature] = record.level
        return []

    @apply.register
    def _(self, record: RegisterController) -> list[Effect]:
        self.controller_end_points[record.controller] = record.end_points
        level = record.newest_metadata_version or 0
        is_same = self.controllers.get(record.controller) == level
        self.controllers[record.controller] = level
        return [] if is_same else self.of_controllers()

    @apply.register
    def _(self, record: UnregisterController) -> list[Effect]:
        self.controllers.pop(record.controller, None)
        self.controller_end_points.pop(record.controller, None)
        return self.of_controllers()

    @apply.register
    def _(self, record: LeaderChange) -> list[Effect]:
        self.controller = record
        return [record]

    @apply.register
    def _(self, record: UndecodableRecord) -> list[Effect]:
        return [record]


def merge(before: Partition, change: PartitionChange) -> Partition:
    """Apply one change to one partition (``PartitionRegistration.merge``).

    Invariant: every change increments the partition epoch by one; it increments the leader epoch by one if and only if
    its leader field is set, even when the leader stays the same.
    """
    sets_leader = change.leader is not None
    recovery = change.leader_recovery_state
    return Partition(
        topic_id=before.topic_id,
        partition=before.partition,
        replicas=before.replicas if change.replicas is None else change.replicas,
        isr=before.isr if change.isr is None else change.isr,
        removing_replicas=before.removing_replicas if change.removing_replicas is None else change.removing_replicas,
        adding_replicas=before.adding_replicas if change.adding_replicas is None else change.adding_replicas,
        leader=before.leader if change.leader is None else change.leader,
        leader_recovery_state=before.leader_recovery_state if recovery is None else recovery,
        leader_epoch=before.leader_epoch + sets_leader,
        partition_epoch=before.partition_epoch + 1,
        elr=before.elr if change.elr is None else change.elr,
        last_known_elr=before.last_known_elr if change.last_known_elr is None else change.last_known_elr,
    )


def _reported_as(key: str) -> str:
    """Return the name under which a configuration is reported."""
    return DISKLESS if key in DISKLESS_KEYS else key


def _rejected(record: MetadataRecord, reason: str) -> UndecodableRecord:
    return UndecodableRecord(reason=f"{type(record).__name__}: {reason}", value=repr(record).encode())


# Conversion of effects on the image to observations. Pure; the caller provides the envelope.


def observed(effect: Effect, envelope: Mapping[str, Any], why: Explanation | None, index: int) -> Observation:
    """Return the observation of one effect; ``index`` counts the effects of one record, ``why`` is for partitions."""
    match effect:
        case PartitionStep():
            return partition_observed(effect, envelope, why, index)
        case BrokerStep():
            return broker_observed(effect, envelope)
        case ConfigStep() | MinimaStep():
            return _config_observed(effect, envelope)
        case CauseRevision():
            return _cause_revised(effect, envelope, index)
        case TopicDeleted(topic=topic, topic_id=topic_id):
            return TopicRemoved(**envelope, topic_id=topic_id, topic=topic)
        case LeaderChange() | ControllersStep():
            return _controller_observed(effect, envelope)
        case _:
            raise AssertionError(f"no observation for {effect!r}")


def partition_observed(
    step: PartitionStep, envelope: Mapping[str, Any], why: Explanation | None = None, index: int = 0
) -> PartitionObserved:
    """Return the state of one partition, after a step or (without ``why``) in a full report."""
    after = step.after
    return PartitionObserved(
        **envelope,
        metadata_index=index,
        topic_id=after.topic_id,
        topic=step.topic,
        partition=after.partition,
        replicas=after.replicas,
        isr=after.isr,
        elr=after.elr,
        last_known_elr=after.last_known_elr,
        adding_replicas=after.adding_replicas,
        removing_replicas=after.removing_replicas,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
        leader_recovering=after.leader_recovery_state == RECOVERING,
        cause=None if why is None else why.cause,
        evidence=None if why is None else why.evidence,
        candidates=() if why is None else why.candidates,
    )


def _controller_observed(effect: LeaderChange | ControllersStep, envelope: Mapping[str, Any]) -> ControllerObserved:
    leader, levels = (effect, None) if isinstance(effect, LeaderChange) else (effect.leader, effect.levels)
    return ControllerObserved(
        **envelope,
        controller=leader.controller,
        controller_epoch=leader.epoch,
        registered_controllers=None if levels is None else tuple(sorted(levels)),
        registered_levels=None if levels is None else tuple(levels[node] for node in sorted(levels)),
    )


def _config_observed(effect: ConfigStep | MinimaStep, envelope: Mapping[str, Any]) -> ConfigObserved:
    if isinstance(effect, ConfigStep):
        of_topic: dict[str, Any] = {"topic": effect.topic, "key": effect.key, "value": effect.value}
        return ConfigObserved(**envelope, **of_topic, origin=ConfigOrigin.LOG)
    minima: dict[str, Any] = {"brokers": tuple(effect.minima), "values": tuple(effect.minima.values())}
    return ConfigObserved(**envelope, topic="", key=MIN_ISR, origin=ConfigOrigin.LOG, **minima)


def _cause_revised(revision: CauseRevision, envelope: Mapping[str, Any], index: int) -> CauseRevised:
    return CauseRevised(
        **envelope,
        metadata_index=index,
        topic_id=revision.topic_id,
        topic=revision.topic,
        partition=revision.partition,
        revised_offset=revision.offset,
        broker=revision.broker,
        cause=Cause.CONTROLLED_SHUTDOWN,
        evidence=Evidence.PROVEN,
    )


def broker_observed(step: BrokerStep, envelope: Mapping[str, Any]) -> BrokerObserved:
    """Return the state of one broker; of an unregistered one only that it is unregistered."""
    broker = step.broker
    if not step.registered:
        return BrokerObserved(**envelope, broker=broker.broker, broker_epoch=broker.broker_epoch, registered=False)
    return BrokerObserved(
        **envelope,
        broker=broker.broker,
        broker_epoch=broker.broker_epoch,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        rack=broker.rack,
        log_dirs=broker.log_dirs,
        host=broker.host,
        port=broker.port,
        newest_metadata_version=broker.newest_metadata_version,
    )


def undecodable(envelope: Mapping[str, Any], record: UndecodableRecord) -> dict[str, Any]:
    """Return what goes to quarantine of a record that cannot be decoded, as JSON values."""
    why = {"reason": record.reason, "raw": record.value.hex()}
    return {"v": Observation.format, "kind": UNDECODABLE, **envelope, **why}


# Conversion of a metadata state to a JSON document and back, for checkpoints.
#
# Pure. Partitions and brokers are rows under a header of field names, so that a document of 100,000 partitions stays
# small, and one that a program with other fields wrote is no such document.


R = TypeVar("R")

_PARTITION_FIELDS: Final = tuple(item.name for item in fields(Partition))
_BROKER_FIELDS: Final = tuple(item.name for item in fields(RegisterBroker))


def state_document(state: MetadataState) -> dict[str, Any]:
    """Return a state as JSON values."""
    partitions = (one for parts in state.partitions.values() for one in parts.values())
    return {
        "topics": dict(state.topics),
        "partition_fields": list(_PARTITION_FIELDS),
        "partitions": _rows(partitions, _PARTITION_FIELDS),
        "broker_fields": list(_BROKER_FIELDS),
        "brokers": _rows(state.brokers.values(), _BROKER_FIELDS),
        "configs": [[topic, key, value] for (topic, key), value in state.configs.items()],
        "minima": None if state.minima is None else sorted(state.minima.items()),
        "features": dict(state.features),
        "controller": None if state.controller is None else asdict(state.controller),
        "controller_end_points": [[node, *points] for node, points in state.controller_end_points.items()],
        "controllers": sorted(state.controllers.items()),
    }


def state_from_document(document: Mapping[str, Any]) -> MetadataState:
    """Restore a state from its document.

    Raises:
        KeyError, TypeError, ValueError: it is not such a document.
    """
    state = MetadataState()
    for topic_id, topic in document["topics"].items():
        state.add_topic(topic_id, topic)
    for partition in _records(Partition, _PARTITION_FIELDS, document["partition_fields"], document["partitions"]):
        state.partitions[partition.topic_id][partition.partition] = partition
    for broker in _records(RegisterBroker, _BROKER_FIELDS, document["broker_fields"], document["brokers"]):
        end_points = tuple(EndPoint(*each) for each in broker.end_points)  # JSON has lists for them
        state.brokers[broker.broker] = replace(broker, end_points=end_points)
    state.configs = {(topic, key): value for topic, key, value in document["configs"]}
    minima = document.get("minima")
    state.minima = None if minima is None else {BrokerId(broker): value for broker, value in minima}
    state.features = dict(document["features"])
    controller = document["controller"]
    state.controller = None if controller is None else LeaderChange(**controller)
    rows = document.get("controller_end_points", ())
    state.controller_end_points = {node: tuple(EndPoint(*each) for each in points) for node, *points in rows}
    state.controllers = dict(document.get("controllers", ()))
    return state


def _rows(records: Iterable[Partition] | Iterable[RegisterBroker], names: Iterable[str]) -> list[tuple[Any, ...]]:
    return list(map(attrgetter(*names), records))


def _records(cls: type[R], names: tuple[str, ...], header: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[R]:
    kept = tuple(header)
    if not kept or kept != names[: len(kept)]:  # fields that were added since have their defaults
        raise ValueError(f"fields of {cls.__name__} are {', '.join(header)}")
    return [
        cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in zip(kept, row, strict=True)})
        for row in rows
    ]
