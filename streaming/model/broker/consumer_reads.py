"""A broker serves consumers: records below the high watermark, and where logs begin and end (``ReplicaManager``).

Only a partition's leader serves, unless ``constants.kip_392_follower_fetching`` lets a leader send consumers to a
replica in their own rack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streaming.contracts.identifiers import NO_LEADER, BrokerId, TopicId, TopicPartition, partition_for
from streaming.model.constants import Error
from streaming.model.messages.clients import (
    ANY_EPOCH,
    ClientMetadataRequest,
    ClientMetadataResponse,
    ConsumerFetchedPartition,
    ConsumerFetchPartition,
    ConsumerFetchRequest,
    ConsumerFetchResponse,
    CoordinatorKey,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    IsolationLevel,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    PartitionLeader,
    Timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.following import FollowedPartitions
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.leadership import Leadership
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.messages.network import Outbox
    from streaming.model.messages.registrations import PartitionRegistration, TopicRegistration
    from streaming.model.storage.disk import Disk
    from streaming.model.storage.replica import LocalReplica


class _Source(NamedTuple):
    """Log that this broker has to read from, or the reason why it may not; ``leader`` only where it leads."""

    replica: LocalReplica | None
    error: Error = Error.NONE
    leader: LeaderPartition | None = None


class DelayedFetch:
    """A consumer's request that waits for records (``DelayedFetch``)."""

    def __init__(self, reads: ConsumerReads, request: ConsumerFetchRequest) -> None:
        self._reads = reads
        self._request = request

    def try_complete(self, _now: int) -> bool:
        """Answer if any partition has records, an error or a nearer replica to tell."""
        answers = [self._reads.read(self._request, item) for item in self._request.partitions]
        if any(answer.has_news for answer in answers):
            self._answer(answers)
            return True
        return False

    def expire(self, _now: int) -> None:
        """Answer without records."""
        self._answer([self._reads.read(self._request, item) for item in self._request.partitions])

    def _answer(self, answers: list[ConsumerFetchedPartition]) -> None:
        header = self._request.header
        self._reads.outbox.send(header.sender, ConsumerFetchResponse(header.correlation_id, tuple(answers)))


class ConsumerReads:
    """Reads of consumers from the replicas of one broker."""

    def __init__(
        self,
        leadership: Leadership,
        following: FollowedPartitions,
        purgatory: Purgatory,
        constants: Constants,
        outbox: Outbox,
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            ConsumerFetchRequest: self._fetch,
            ListOffsetsRequest: self._list,
        }
        self.outbox = outbox
        self._leadership = leadership
        self._following = following
        self._purgatory = purgatory
        self._constants = constants

    # -------------------------------------------------------------- records

    def _fetch(self, now: int, request: ConsumerFetchRequest) -> None:
        """Consumer reads; the answer waits until there is something to read, or as long as the request says."""
        keys = [item.topic_partition for item in request.partitions]
        self._purgatory.complete_or_watch(now, DelayedFetch(self, request), keys, request.max_wait_ms)

    def read(self, request: ConsumerFetchRequest, asked: ConsumerFetchPartition) -> ConsumerFetchedPartition:
        """Read one partition, up to the high watermark or the last stable offset."""
        key, offset = asked.topic_partition, asked.fetch_offset
        source = self._source(key, asked.leader_epoch, followers_too=request.rack is not None)
        if source.replica is None:
            return ConsumerFetchedPartition(key, source.error)
        log, high_watermark = source.replica.log, source.replica.high_watermark
        stable = log.producers.last_stable_offset(high_watermark)
        answer = ConsumerFetchedPartition(key, Error.NONE, offset, offset, high_watermark, stable, log.start)
        if not log.start <= offset <= log.end:
            return answer._replace(error=Error.OFFSET_OUT_OF_RANGE)
        if source.leader is not None and request.rack is not None:
            nearest = self._nearest(source.leader, request.rack, offset)
            if nearest is not None:
                return answer._replace(preferred_read_replica=nearest)
        limit = stable if request.isolation is IsolationLevel.READ_COMMITTED else high_watermark
        end = min(log.read_end(offset, self._constants.replica_fetch_max_records), limit)
        if end <= offset:
            return answer
        answer = answer._replace(
            end_offset=end, epochs=log.epochs_between(offset, end), batches=log.batches_with(offset, end)
        )
        if request.isolation is IsolationLevel.READ_COMMITTED:
            return answer._replace(aborted=log.producers.aborted_between(offset, end))
        return answer

    def _source(self, key: TopicPartition, leader_epoch: int, *, followers_too: bool) -> _Source:
        """Find what to read from: a led partition, or a followed one where that is allowed."""
        leader = self._leadership.led.get(key)
        if leader is not None:
            error = Error.NONE if leader_epoch == ANY_EPOCH else leader.epoch_error(leader_epoch)
            return _Source(leader.replica if error is Error.NONE else None, error, leader)
        leader_and_epoch = self._following.leader_of(key)
        if leader_and_epoch is None or not followers_too or not self._constants.kip_392_follower_fetching:
            return _Source(None, Error.NOT_LEADER_OR_FOLLOWER)
        if leader_epoch not in {ANY_EPOCH, leader_and_epoch[1]}:
            newer = leader_epoch > leader_and_epoch[1]
            return _Source(None, Error.UNKNOWN_LEADER_EPOCH if newer else Error.FENCED_LEADER_EPOCH)
        return _Source(self._following.replica_of(key))

    def _nearest(self, partition: LeaderPartition, rack: str, offset: int) -> BrokerId | None:
        """Choose an in-sync follower in the consumer's rack (``RackAwareReplicaSelector``); None: read here.

        It must have the offset; among several the one with the longest log.
        """
        brokers = self._leadership.brokers
        own = brokers.get(partition.broker)
        if not self._constants.kip_392_follower_fetching or (own is not None and own.rack == rack):
            return None
        near = [
            (remote.log_end_offset, follower)
            for follower, remote in partition.remotes.items()
            if follower in partition.committed.isr
            and follower in brokers
            and brokers[follower].rack == rack
            and remote.log_end_offset >= offset
        ]
        return max(near)[1] if near else None

    # -------------------------------------------------------------- where logs begin and end

    def _list(self, _now: int, request: ListOffsetsRequest) -> None:
        """Consumer asks for the earliest or the latest offset; only leaders know."""
        answers = tuple(self._listed(request.isolation, item) for item in request.partitions)
        self.outbox.send(request.header.sender, ListOffsetsResponse(request.header.correlation_id, answers))

    def _listed(self, isolation: IsolationLevel, asked: ListOffsetsPartition) -> ListedOffset:
        key = asked.topic_partition
        source = self._source(key, asked.leader_epoch, followers_too=False)
        if source.leader is None or source.error is not Error.NONE:
            return ListedOffset(key, source.error)
        epoch, log = source.leader.committed.leader_epoch, source.leader.replica.log
        if asked.timestamp is Timestamp.EARLIEST:
            return ListedOffset(key, Error.NONE, log.start, log.epochs[0][0] if log.epochs else epoch)
        latest = source.leader.latest_offset
        if latest is None:
            return ListedOffset(key, Error.OFFSET_NOT_AVAILABLE)
        if isolation is IsolationLevel.READ_COMMITTED:
            latest = min(latest, source.leader.last_stable_offset)
        return ListedOffset(key, Error.NONE, latest, epoch)


# Metadata of leaders and coordinators for clients (``KRaftMetadataCache``). Changes nothing.
#
# Departs from Kafka: a broker keeps metadata of the partitions it hosts only; of others it tells what the controller
# knows at this moment, where Kafka's broker would tell what it has read of the metadata log so far.


class Directory(Protocol):
    """Partitions that a broker does not host, as the controller knows them."""

    def topic_named(self, name: str) -> TopicRegistration | None:
        """Give a topic by its name."""

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic, 0 if there is none."""

    def registration_of(self, key: TopicPartition) -> PartitionRegistration | None:
        """Give a partition's registration."""


class MetadataCache:
    """Answers from the broker's own view where it has one."""

    def __init__(
        self, leadership: Leadership, following: FollowedPartitions, disk: Disk, directory: Directory, outbox: Outbox
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            ClientMetadataRequest: self._answer_leaders,
            FindCoordinatorRequest: self._answer_coordinator,
        }
        self._leadership = leadership
        self._following = following
        self._disk = disk
        self._directory = directory
        self._outbox = outbox

    def leader_of(self, key: TopicPartition) -> PartitionLeader:
        """Give the leader of a partition as this broker knows it."""
        led, followed = self._leadership.led.get(key), self._following.leader_of(key)
        if led is not None:
            return PartitionLeader(key, Error.NONE, self._leadership.broker, led.committed.leader_epoch)
        if followed is not None:
            return PartitionLeader(key, Error.NONE, *followed)
        state = None if self._disk.has(key) else self._directory.registration_of(key)
        if state is None and not self._disk.has(key):
            return PartitionLeader(key, Error.UNKNOWN_TOPIC_OR_PARTITION)
        if state is None or state.leader == NO_LEADER:
            return PartitionLeader(key, Error.LEADER_NOT_AVAILABLE)
        return PartitionLeader(key, Error.NONE, state.leader, state.leader_epoch)

    def coordinator_of(self, key: CoordinatorKey) -> BrokerId | None:
        """Give the leader of the partition that keeps the state of a group or transactional id."""
        topic = self._directory.topic_named(key.topic)
        if topic is None:
            return None
        leader = self.leader_of(TopicPartition(topic.topic_id, partition_for(key.key, topic.partitions)))
        return leader.leader if leader.error is Error.NONE else None

    def partitions_of(self, topic_id: TopicId) -> int:
        """Count the partitions of a topic, 0 if there is none."""
        return self._directory.partitions_of(topic_id)

    def _answer_leaders(self, _now: int, request: ClientMetadataRequest) -> None:
        answer = ClientMetadataResponse(
            request.header.correlation_id,
            tuple(self.leader_of(key) for key in request.partitions),
            tuple((topic_id, self.partitions_of(topic_id)) for topic_id in request.topics),
        )
        self._outbox.send(request.header.sender, answer)

    def _answer_coordinator(self, _now: int, request: FindCoordinatorRequest) -> None:
        coordinator = self.coordinator_of(request.key)
        number = request.header.correlation_id
        if coordinator is None:
            answer = FindCoordinatorResponse(number, Error.COORDINATOR_NOT_AVAILABLE)
        else:
            answer = FindCoordinatorResponse(number, Error.NONE, coordinator)
        self._outbox.send(request.header.sender, answer)
