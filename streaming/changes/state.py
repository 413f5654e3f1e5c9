"""Everything that is true now, by key: the container that the fold reads and its owner updates."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streaming.contracts.blocks import IDENTITY_IN_BLOCK
from streaming.contracts.identifiers import NO_LEADER, SECOND, BrokerId, ClusterId, TopicId
from streaming.contracts.observations import DISKLESS, MIN_ISR, ConfigOrigin, SourceKind, is_true
from streaming.contracts.state import BrokerState, ClusterState, ConfigKey, ConfigValue, PartitionState, SourceState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from streaming.contracts.blocks import PartitionsObserved
    from streaming.contracts.events import Cause, EventKind, Evidence, Subject
    from streaming.contracts.identifiers import Offset
    from streaming.contracts.observations import ConfigObserved, Observation

TopicKey = tuple[ClusterId, TopicId]
BrokerKey = tuple[ClusterId, BrokerId]
SourceKey = tuple[ClusterId, str]


class StoredTopics(Protocol):
    """Topics of which nothing has asked for a partition since the start. None of them has a tombstone."""

    def __contains__(self, key: object) -> bool:
        """Return whether a topic is still here."""

    def __iter__(self) -> Iterator[TopicKey]:
        """Iterate over the topics that are still here."""

    def __len__(self) -> int:
        """Return how many topics are still here."""

    def beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> Iterable[TopicKey]:
        """Find the topics of a cluster that have more partitions than these; those without a count have none."""

    def take(self, keys: Collection[TopicKey]) -> Iterable[PartitionState]:
        """Remove topics and return their partitions; those that are not here are passed over."""


@dataclass(slots=True)
class ReplicationState:
    """Everything that is true now, by key. The owner applies what a fold touched; a fold itself changes nothing.

    Attributes:
        topics: the partitions of each topic, but for the topics in ``stored``; see :meth:`topic`.
        stored: topics that are not decoded yet; a topic moves from here to ``topics`` when something asks for it.
    """

    topics: dict[TopicKey, Mapping[int, PartitionState]] = field(default_factory=dict)
    topic_ids: dict[tuple[ClusterId, str], TopicId] = field(default_factory=dict)
    brokers: dict[BrokerKey, BrokerState] = field(default_factory=dict)
    clusters: dict[ClusterId, ClusterState] = field(default_factory=dict)
    sources: dict[SourceKey, SourceState] = field(default_factory=dict)
    configs: dict[ConfigKey, ConfigValue] = field(default_factory=dict)
    stored: StoredTopics | None = None

    def topic(self, key: TopicKey) -> Mapping[int, PartitionState]:
        """Look the partitions of one topic up, tombstones included."""
        if self.stored is not None and key in self.stored:
            self.load((key,))
        return self.topics.get(key, {})

    def mutable_topic(self, key: TopicKey) -> dict[int, PartitionState]:
        """Return the partitions of one topic of ``topics`` to be changed; it is added if it is not there."""
        partitions = self.topics.get(key)
        if not isinstance(partitions, dict):
            partitions = self.topics[key] = dict(partitions or {})
        return partitions

    def topics_with_tombstones(self) -> Iterator[TopicKey]:
        """Iterate over the topics that may have a tombstone: those in ``stored``, and listed ones, have none."""
        return (key for key, partitions in self.topics.items() if not isinstance(partitions, ListedPartitions))

    def topic_keys(self) -> Iterator[TopicKey]:
        """Iterate over the topics of all clusters."""
        yield from self.topics
        yield from self.stored or ()

    def topics_beyond(self, cluster_id: ClusterId, counts: Mapping[TopicId, int]) -> Iterator[TopicKey]:
        """Find the topics of a cluster that have more partitions than these; those without a count have none."""
        for key, partitions in self.topics.items():
            if key[0] == cluster_id and max(partitions) >= counts.get(key[1], 0):
                yield key
        if self.stored is not None:
            yield from self.stored.beyond(cluster_id, counts)

    def load(self, keys: Collection[TopicKey]) -> None:
        """Decode topics at once that will be asked for; one by one costs many times as much."""
        if self.stored is not None:
            for partition in self.stored.take(keys):
                self.mutable_topic((partition.cluster_id, partition.topic_id))[partition.partition] = partition
            self.stored = self.stored if len(self.stored) else None

    def apply(self, touched: ReplicationState) -> list[PartitionState]:
        """Apply what a fold has touched; return the tombstones that it dropped."""
        self.load(touched.topics)
        for key, partitions in touched.topics.items():
            if isinstance(partitions, ListedPartitions) and key not in self.topics:
                self.topics[key] = partitions
            else:
                self.mutable_topic(key).update(partitions)
        self.topic_ids.update(touched.topic_ids)
        self.brokers.update(touched.brokers)
        expired = [tombstone for cluster in touched.clusters.values() for tombstone in self._put_cluster(cluster)]
        self.sources.update(touched.sources)
        self.configs.update(touched.configs)
        return expired

    def _put_cluster(self, cluster: ClusterState) -> list[PartitionState]:
        """Set a cluster; drop and return the tombstones that have expired with it."""
        before = self.clusters.get(cluster.cluster_id)
        self.clusters[cluster.cluster_id] = cluster
        if cluster.tombstones_until is None or (before and before.tombstones_until == cluster.tombstones_until):
            return []
        keys = [key for key in self.topics_with_tombstones() if key[0] == cluster.cluster_id]
        expired = [each for key in keys for each in self.topics[key].values() if cluster.has_expired(each)]
        for partition in expired:
            self._forget(partition)
        return expired

    def put_cluster(self, cluster: ClusterState, configs: Iterable[tuple[ConfigKey, ConfigValue]] = ()) -> None:
        """Set a cluster, and the configured values that its row carries.

        Its watermarks stay where they are newer: what a source has reported since may have been read before this row.
        """
        self._put_cluster(cluster.not_before(self.clusters.get(cluster.cluster_id)))
        for source in self.sources.values():  # the row may be the first that says which of them is the primary one
            if source.cluster_id == cluster.cluster_id:
                self.watch(source)
        self.configs.update(configs)

    def put_broker(self, broker: BrokerState) -> None:
        """Set a broker."""
        self.brokers[broker.cluster_id, broker.broker] = broker

    def put_source(self, source: SourceState) -> None:
        """Set how far a source was applied; this may advance the watermarks of its cluster."""
        self.sources[source.cluster_id, source.source] = source
        self.watch(source)

    def put_partition(self, partition: PartitionState) -> None:
        """Set a partition as a table has it; a tombstone that its cluster has dropped is not kept."""
        cluster = self.clusters.get(partition.cluster_id)
        self.load(((partition.cluster_id, partition.topic_id),))
        self.mutable_topic((partition.cluster_id, partition.topic_id))[partition.partition] = partition
        if not partition.is_deleted:
            self.topic_ids[partition.cluster_id, partition.topic] = partition.topic_id
        elif cluster is not None and cluster.has_expired(partition):
            self._forget(partition)

    def _forget(self, partition: PartitionState) -> None:
        key = (partition.cluster_id, partition.topic_id)
        del self.mutable_topic(key)[partition.partition]
        if not self.topics[key]:
            del self.topics[key]
            name = partition.cluster_id, partition.topic
            if self.topic_ids.get(name) in (None, partition.topic_id):  # no other topic has its name now
                self.topic_ids.pop(name, None)
                for origin, configuration in product(ConfigOrigin, (MIN_ISR, DISKLESS)):
                    self._forget_config(ConfigKey(*name, origin, configuration), partition.metadata_offset)

    def _forget_config(self, key: ConfigKey, deleted_at: Offset | None) -> None:
        """Forget a configured value, unless the log has set it after the topic was deleted: for the next one."""
        config = self.configs.get(key)
        offset = None if config is None else config.offset
        if offset is None or deleted_at is None or offset <= deleted_at:
            self.configs.pop(key, None)

    def watch(self, source: SourceState) -> None:
        """Move the watermarks of a source's cluster up to what that source has seen."""
        seen = source.observed_until
        if seen is None:
            return
        cluster = self.clusters.get(source.cluster_id) or ClusterState(
            cluster_id=source.cluster_id, cluster=source.cluster
        )
        is_primary = source.source_kind is cluster.primary_source and source.source_kind is not SourceKind.NONE
        self.clusters[source.cluster_id] = cluster.with_watermark(seen, is_primary=is_primary)

    def partitions(self) -> Iterator[PartitionState]:
        """Iterate over every partition, tombstones included."""
        self.load(tuple(self.stored or ()))
        for partitions in self.topics.values():
            yield from partitions.values()


# One accepted step, with its events, and what a fold gives. A row of ``partition_changes`` projects one change.


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened in a change. ``event_id`` is the same whenever the same change is derived."""

    event_id: str
    event: EventKind
    event_broker: BrokerId | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One accepted step, or those of all partitions that one block of the first full report lists.

    ``observation`` gives identity, time and source. Exactly one of ``after``, ``listed``, ``broker_after``,
    ``cluster_after``, ``source_after`` is set, according to the subject. ``configs`` holds the configured values that
    a cluster's change brought.
    """

    subject: Subject
    observation: Observation
    is_baseline: bool = False
    cause: Cause | None = None
    evidence: Evidence | None = None
    candidates: tuple[Cause, ...] = ()
    missed: int = 0
    left_isr: tuple[BrokerId, ...] = ()
    joined_isr: tuple[BrokerId, ...] = ()
    events: tuple[Event, ...] = ()
    before: PartitionState | None = None
    after: PartitionState | None = None
    listed: ListedPartitions | None = None
    broker_after: BrokerState | None = None
    cluster_after: ClusterState | None = None
    configs: tuple[tuple[ConfigKey, ConfigValue], ...] = ()
    source_after: SourceState | None = None

    @property
    def cluster(self) -> str:
        """The name of the cluster, as the state afterwards has it."""
        after = self.after or self.broker_after or self.cluster_after or self.source_after
        return self.observation.cluster if after is None else after.cluster

    @property
    def count(self) -> int:
        """Number of steps, and rows of ``partition_changes``, that it stands for."""
        return 1 if self.listed is None else len(self.listed)

    def singly(self) -> Iterator[Change]:
        """Yield each of its steps as a change of its own."""
        if self.listed is None:
            yield self
            return
        for after in self.listed.values():
            yield replace(self, listed=None, after=after)


@dataclass(frozen=True, slots=True)
class FoldResult:
    """The changes in the order they were accepted, and the state they touched (``ReplicationState.apply`` it).

    ``dropped`` are the observations that were equal, older, or not of the primary source.
    """

    changes: tuple[Change, ...]
    touched: ReplicationState
    dropped: tuple[Observation, ...] = ()


# Partitions that a block of the first full report lists: of a million, few differ in more than number and epochs.


_UNLIKE_FIRST: Final = 1  # the number of any partition but the first one, which stands for its topic


class ListedPartitions(Mapping[int, "PartitionState"]):
    """The partitions of a topic by number, as one block listed them. Each is made when something asks for it.

    Attributes:
        identities: the values of ``IDENTITY_IN_BLOCK``, each for all partitions.
        shapes: for each partition a state that it equals but for its topic and those.
    """

    __slots__ = ("_topic", "identities", "shapes")

    def __init__(self, block: PartitionsObserved, shapes: Sequence[PartitionState]) -> None:
        unreported = (None,) * len(block.partitions)
        self._topic = block.topic_id, block.topic
        self.identities: tuple[tuple[int | None, ...], ...] = (
            block.partitions,
            block.leader_epoch_by_partition or unreported,
            block.partition_epoch_by_partition or unreported,
        )
        self.shapes = tuple(shapes)

    def __getitem__(self, number: int) -> PartitionState:
        """Make the state of a partition."""
        numbers, *_ = self.identities
        place = bisect_left(numbers, number)  # type: ignore[type-var]  # numbers are never None
        if numbers[place : place + 1] != (number,):
            raise KeyError(number)
        identity = zip(IDENTITY_IN_BLOCK, (values[place] for values in self.identities), strict=True)
        topic_id, topic = self._topic
        return self.shapes[place]._replace(topic_id=topic_id, topic=topic, **dict(identity))  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers of the partitions, in their order."""
        return iter(self.identities[0])  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Return how many partitions there are."""
        return len(self.shapes)

    def are_of(self, block: PartitionsObserved) -> bool:
        """Return whether it is this block that has listed them, not another one that says the same."""
        return self.identities[0] is block.partitions


def counted(topics: Iterable[ListedPartitions]) -> Iterator[tuple[PartitionState, int]]:
    """Yield states and how many partitions of some topics are counted like each of them."""
    shapes: dict[int, PartitionState] = {}
    all_of, first_of = Counter[int](), Counter[int]()
    for partitions in topics:
        places = list(map(id, partitions.shapes))
        shapes.update(zip(places, partitions.shapes, strict=True))
        all_of.update(places)
        first_of.update(places[:1] if 0 in partitions else ())
    for place, shape in shapes.items():
        for number, count in ((0, first_of[place]), (_UNLIKE_FIRST, all_of[place] - first_of[place])):
            if count:
                yield shape._replace(partition=number), count


# The configuration of a topic, from the values that sources have reported.
#
# Kafka's own order for ``min.insync.replicas`` (KIP-226): the topic's value; the dynamic one of the broker that leads;
# the cluster's dynamic default; that in the file of the broker that leads. All but the last are in the metadata log;
# each broker reports its own (DescribeConfigs), and brokers may disagree. With eligible leader replicas the controller
# sets the default and takes back the values of single brokers (KIP-966). A topic is diskless by a value of its own,
# from any source (KIP-1150).


CLUSTER_DEFAULT: Final = ""
# As Kafka reads it: trimmed, then a Java int, which may have a sign.
_NUMBER: Final = re.compile(r"[\x00-\x20]*\+?0*([0-9]{1,10})[\x00-\x20]*")
_LARGEST: Final = 2**31 - 1


class TopicConfig(NamedTuple):
    """Configuration of a topic: its ``min.insync.replicas``, None while no source has reported it.

    ``of_brokers``: the values of brokers that disagree, or of which some are unknown, where they count.
    """

    min_isr: int | None = None
    is_diskless: bool = False
    of_brokers: tuple[tuple[BrokerId, int], ...] = ()

    def min_isr_by(self, replicas: Sequence[BrokerId]) -> tuple[int | None, ...]:
        """Return the minimum if each of some replicas led."""
        own = dict(self.of_brokers)
        return tuple(own.get(broker, self.min_isr) for broker in replicas)

    def min_isr_led_by(self, leader: BrokerId, replicas: Sequence[BrokerId]) -> int | None:
        """Return the minimum of a partition. Without a leader it is known only if any of its replicas has the same."""
        if not self.of_brokers:
            return self.min_isr
        minima = set(self.min_isr_by(replicas if leader == NO_LEADER else (leader,)))
        return minima.pop() if len(minima) == 1 else None


class BrokerMinima(NamedTuple):
    """Minima of a broker: what it reports itself, and what the metadata log has for it alone; None where there is none.

    ``reported`` is what counts for it, of whichever source, at most a round of questions ago.
    """

    reported: int | None = None
    dynamic: int | None = None

    @property
    def counts(self) -> int | None:
        """Minimum of topics that have none."""
        return self.reported if self.dynamic is None else self.dynamic


def topic_config(
    value_of: Callable[[ConfigKey], ConfigValue | None],
    cluster_id: ClusterId,
    topic: str,
    of_brokers: Mapping[BrokerId, BrokerMinima],
) -> TopicConfig:
    """Return what is configured for a topic; ``of_brokers`` are the minima of each broker."""
    log, described = ConfigOrigin.LOG, ConfigOrigin.DESCRIBE

    def first(key: str, *places: tuple[str, ConfigOrigin]) -> int | None:
        for name, origin in places:
            config = value_of(ConfigKey(cluster_id, name, origin, key))
            if config is not None and config.value is not None:
                return config.value
        return None

    is_diskless = bool(first(DISKLESS, (topic, log), (topic, described)))
    own, default = first(MIN_ISR, (topic, log)), first(MIN_ISR, (CLUSTER_DEFAULT, log))
    dynamic = tuple(sorted((each, minima.dynamic) for each, minima in of_brokers.items() if minima.dynamic is not None))
    if own is None and default is not None and dynamic:
        return TopicConfig(default, is_diskless, dynamic)
    minimum = next((each for each in (own, default) if each is not None), first(MIN_ISR, (topic, described)))
    reported = tuple(sorted((each, minima.counts) for each, minima in of_brokers.items() if minima.counts is not None))
    if minimum is not None or not reported:
        return TopicConfig(minimum, is_diskless)
    are_alike = len(reported) == len(of_brokers) and len({value for _, value in reported}) == 1
    return TopicConfig(reported[0][1], is_diskless) if are_alike else TopicConfig(None, is_diskless, reported)


def reported_value(observed: ConfigObserved) -> tuple[ConfigKey, ConfigValue]:
    """Read a value as Kafka does.

    A minimum may have blanks around it and a sign, and what is no number counts as unset. Brokers that know diskless
    topics report of all the others that they are none, which need not be remembered.
    """
    key = ConfigKey(observed.cluster_id, observed.topic, observed.origin, observed.key)
    value = _flag(observed) if observed.key == DISKLESS else _number(observed.value or "")
    return key, ConfigValue(value, observed.metadata_offset)


def _number(text: str) -> int | None:
    number = _NUMBER.fullmatch(text)
    return int(number[1]) if number and int(number[1]) <= _LARGEST else None


def _flag(observed: ConfigObserved) -> bool | None:
    if is_true(observed.value):
        return True
    return None if observed.value is None or observed.origin is ConfigOrigin.DESCRIBE else False


def is_news(observed: ConfigValue, current: ConfigValue | None) -> bool:
    """Return whether a value is newer than the current one, and different."""
    if current is None:
        return observed.value is not None
    is_older = observed.offset is not None and current.offset is not None and observed.offset <= current.offset
    return observed.value != current.value and not is_older


# The times of a cluster's own configuration, of which every waiting time of incidents is a multiple. Pure.


class ConfiguredTimes(NamedTuple):
    """Configured times in microseconds; the defaults are Kafka's, and hold until a broker has reported its own."""

    replica_lag_time: int = 30 * SECOND
    """``replica.lag.time.max.ms``: a follower that did not catch up for so long is removed within half as long more."""
    broker_session: int = 9 * SECOND
    """``broker.session.timeout.ms``: a broker that sent no heartbeat for so long is fenced."""
    fetch_wait: int = SECOND // 2
    """``replica.fetch.wait.max.ms``: how long a follower's fetch may wait for records."""
    fetch_backoff: int = SECOND
    """``replica.fetch.backoff.ms``: how long a follower waits after a fetch that failed."""
    registration: int = 60 * SECOND
    """``initial.broker.registration.timeout.ms``: how long a broker that starts may take to register."""

    def configured(self, lag_millis: int | None, session_millis: int | None) -> ConfiguredTimes:
        """Return the times with those that brokers have reported; 0 and None are not reported."""
        return self._replace(
            replica_lag_time=(lag_millis or 0) * 1_000 or self.replica_lag_time,
            broker_session=(session_millis or 0) * 1_000 or self.broker_session,
        )

    def is_of_stall(self, silent_since: int, silent_until: int, fenced_at: int) -> bool:
        """Return whether a session that ended is no evidence against its broker, because the controller stood still.

        Times are UTC microseconds; 0 and 0 for no silence.
        """
        begin = fenced_at - self.broker_session
        silent = min(silent_until, fenced_at) - max(silent_since, begin)
        is_whole = silent_until - silent_since >= self.broker_session
        awake = self.awake_in_stall * (2 if is_whole else 1)  # on a busy machine it takes time to be back
        return silent_until <= fenced_at and self.broker_session - silent <= awake

    @property
    def awake_in_stall(self) -> int:
        """Return the time of a session in which the controller may have listened, and the session still says nothing.

        About as long as a broker waits until its next heartbeat (``broker.heartbeat.interval.ms``, 2 s of 9 s by
        default).
        """
        return self.broker_session // 4

    @property
    def rejoined_at_once(self) -> int:
        """Return the time within which a healthy follower rejoins an ISR: a failed fetch and one that waits, twice."""
        return 2 * (self.fetch_wait + self.fetch_backoff)

    @property
    def lag_check(self) -> int:
        """Return how often a leader looks for followers that lag: all leaders report one cut within that time."""
        return self.replica_lag_time // 2

    @property
    def session_after_lag(self) -> int:
        """Return how long after its removal for lag the session of a broker that died, or was cut off, may end."""
        return max(0, self.broker_session - self.replica_lag_time) + self.lag_check

    @property
    def lost_together(self) -> int:
        """Return the time within which the sessions of brokers end that died at the same moment."""
        return self.broker_session

    @property
    def restart(self) -> int:
        """Return the time after which a broker that was stopped is not being restarted any more."""
        return 10 * self.registration
