"""A broker as follower: one fetch loop for each leader, truncation (``ReplicaFetcherThread``).

How a follower finds out where its log parts from the leader's is a switch (``Truncation``): it cuts at its own high
watermark, asks before it fetches, or states its last epoch with every fetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.model.constants import NO_ERROR, Error, Truncation
from streaming.model.messages.clients import Header
from streaming.model.messages.network import Outbox
from streaming.model.messages.replication import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochPartition,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)
from streaming.model.messages.timers import FetchDue, PartitionFetchDue
from streaming.model.storage.log import NO_EPOCH
from streaming.model.storage.replica import truncation_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.broker.leadership import ReplicationProbe
    from streaming.model.broker.purgatory import Purgatory
    from streaming.model.constants import Constants
    from streaming.model.storage.log import EpochEntry
    from streaming.model.storage.replica import LocalReplica

_ASKING: Final = frozenset({Truncation.LEADER_EPOCH_V0, Truncation.LEADER_EPOCH})


class FollowedPartitions:
    """The partitions a broker follows, by leader."""

    def __init__(
        self,
        broker: BrokerId,
        constants: Constants,
        replicas: dict[TopicPartition, LocalReplica],
        purgatory: Purgatory,
        outbox: Outbox,
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            FetchResponse: lambda _, response: self.fetched(response),
            OffsetsForLeaderEpochResponse: lambda _, response: self.epochs_ended(response),
            FetchDue: lambda _, message: self.retry(message.leader),
            PartitionFetchDue: lambda _, message: self.retry_partition(message),
        }
        self.broker_epoch = -1
        self.probe: ReplicationProbe | None = None
        self._broker = broker
        self._constants = constants
        self._switches = constants.switches
        self._states_last_epoch = constants.switches.truncation is Truncation.FETCH
        self._replicas = replicas
        self._purgatory = purgatory
        self._outbox = outbox
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._followed: dict[TopicPartition, tuple[BrokerId, int]] = {}
        self._last_request_id = 0

    def follow(self, key: TopicPartition, leader: BrokerId, leader_epoch: int) -> None:
        """Follower learns of a leader. Enabled only by a newer leader epoch, so that no running fetch is disturbed."""
        former = self._followed.get(key)
        if self._switches.restart_fetchers_on_higher_epoch_only and former is not None and leader_epoch <= former[1]:
            return
        self.unfollow(key)
        self._followed[key] = (leader, leader_epoch)
        if self._switches.truncation is Truncation.HIGH_WATERMARK:
            replica = self._replicas[key]
            replica.truncate(replica.high_watermark)
            self._was_replicated(key)
        self._add(key, leader, leader_epoch)

    def _add(self, key: TopicPartition, leader: BrokerId, leader_epoch: int) -> None:
        state = PartitionFetchState(key, leader_epoch, self._replicas[key])
        asks = self._switches.truncation in _ASKING and state.replica.log.last_epoch != NO_EPOCH
        self._fetchers.setdefault(leader, Fetcher()).add(state, truncating=asks)

    def unfollow(self, key: TopicPartition) -> None:
        """Follower learns that there is no leader, that it leads itself, or that the topic is gone."""
        leader, _ = self._followed.pop(key, (None, None))
        if leader in self._fetchers:  # it is gone while all its partitions wait after errors
            self._fetchers[leader].remove(key)

    def leader_of(self, key: TopicPartition) -> tuple[BrokerId, int] | None:
        """Give the leader and leader epoch of a followed partition."""
        return self._followed.get(key)

    def replica_of(self, key: TopicPartition) -> LocalReplica:
        """Give the replica of a followed partition."""
        return self._replicas[key]

    def sources(self, key: TopicPartition) -> list[BrokerId]:
        """Give the leaders from which a partition is fetched: one at most, none while it waits after an error."""
        return [leader for leader, fetcher in self._fetchers.items() if key in fetcher.partitions]

    # -------------------------------------------------------------- asking

    def send(self) -> None:
        """Send a request to every leader that has none in flight. Called after every input."""
        for leader, fetcher in list(self._fetchers.items()):
            if fetcher.in_flight is None and not fetcher.is_backing_off:
                if fetcher.truncating:
                    self._outbox.send(leader, self._question(fetcher))
                elif fetcher.partitions:
                    self._outbox.send(leader, self._request(fetcher))
                else:
                    del self._fetchers[leader]

    def _question(self, fetcher: Fetcher) -> OffsetsForLeaderEpochRequest:
        self._last_request_id += 1
        fetcher.in_flight = self._last_request_id
        partitions = tuple(
            OffsetForLeaderEpochPartition(
                follower.topic_partition, follower.leader_epoch, follower.replica.log.last_epoch
            )
            for follower in fetcher.truncating.values()
        )
        return OffsetsForLeaderEpochRequest(Header(self._broker, self._last_request_id), partitions)

    def _request(self, fetcher: Fetcher) -> FetchRequest:
        states_epoch = self._states_last_epoch
        partitions = tuple(
            [
                FetchPartition(key, leader_epoch, replica.log.end, replica.log.last_epoch if states_epoch else NO_EPOCH)
                for key, leader_epoch, replica in fetcher.stated()
            ]
        )
        forgotten = () if fetcher.is_new else tuple(fetcher.forgotten)
        self._last_request_id += 1
        request = FetchRequest(
            self._last_request_id, self._broker, self.broker_epoch, partitions, forgotten, fetcher.is_new
        )
        fetcher.in_flight, fetcher.is_new = request.request_id, False
        fetcher.changed, fetcher.forgotten = {}, {}
        return request

    # -------------------------------------------------------------- answers

    def epochs_ended(self, response: OffsetsForLeaderEpochResponse) -> None:
        """A leader tells where epochs end. Void for partitions whose leader epoch has changed meanwhile."""
        fetcher = self._fetchers.get(response.leader)
        if fetcher is None or fetcher.in_flight != response.correlation_id:
            return
        fetcher.in_flight = None
        for item in response.partitions:
            key = item.topic_partition
            state = fetcher.partitions.get(key)
            if state is None or state.leader_epoch != item.leader_epoch:
                continue
            if item.error is not Error.NONE:
                self._fail(response.leader, fetcher, state, item.error)
            elif self._truncate(state.replica, (item.epoch, item.end_offset)):
                fetcher.changed[key] = fetcher.truncating.pop(key)
            self._was_replicated(key)

    def fetched(self, response: FetchResponse) -> None:
        """A leader answers; answers to an older request or in another leader epoch are void."""
        fetcher = self._fetchers.get(response.leader)
        if fetcher is None or fetcher.in_flight != response.request_id:
            for item in response.partitions:
                self._take_stale(item)
            return
        fetcher.in_flight = None
        for item in response.partitions:
            state = fetcher.partitions.get(item.topic_partition)
            if state is not None and state.leader_epoch == item.leader_epoch:
                self._take(response.leader, fetcher, state, item)
            else:
                self._take_stale(item)

    def _take_stale(self, item: FetchedPartition) -> None:
        """Without the check a follower takes what any broker sent, in whatever leader epoch, if the offset fits."""
        if self._switches.discard_stale_fetches:
            return
        leader, _ = self._followed.get(item.topic_partition, (None, None))
        fetcher = self._fetchers.get(leader) if leader is not None else None
        if leader is not None and fetcher is not None and item.topic_partition in fetcher.partitions:
            self._take(leader, fetcher, fetcher.partitions[item.topic_partition], item)

    def _take(self, leader: BrokerId, fetcher: Fetcher, state: PartitionFetchState, item: FetchedPartition) -> None:
        key, replica = state.topic_partition, state.replica
        if item.error is not NO_ERROR:
            if item.error is Error.OFFSET_OUT_OF_RANGE:
                self._back_into_range(replica, item)
                fetcher.changed[key] = state
            else:
                self._fail(leader, fetcher, state, item.error)
        elif item.diverging is not None:
            self._truncate(replica, item.diverging)
            fetcher.changed[key] = state
        elif item.fetch_offset == replica.log.end:
            if item.end_offset > item.fetch_offset:
                replica.log.append_fetched(item.end_offset, item.epochs, item.batches, item.timestamp_ms)
                fetcher.changed[key] = state
            replica.take_leader_offsets(item.high_watermark, item.log_start_offset)
        self._was_replicated(key)

    def _truncate(self, replica: LocalReplica, epoch_end: EpochEntry) -> bool:
        """Cut where the logs part; tell whether that was all."""
        point = truncation_point(replica.log, replica.high_watermark, epoch_end)
        if point.offset < replica.log.end or self._switches.epoch_cache_keeps_progress:
            replica.truncate(point.offset)
        return point.is_complete or replica.log.last_epoch == NO_EPOCH

    @staticmethod
    def _back_into_range(replica: LocalReplica, leader: FetchedPartition) -> None:
        """Leader does not have what this follower asks for: its log is shorter, or it starts later.

        It is shorter after an unclean election. If neither, the follower just tells its position again.
        """
        if leader.end_offset < replica.log.end:
            replica.truncate(leader.end_offset)
        elif leader.log_start_offset > replica.log.end:
            replica.restart_at(leader.log_start_offset)

    def _fail(self, leader: BrokerId, fetcher: Fetcher, state: PartitionFetchState, error: Error) -> None:
        """Try again later; a fenced follower waits for newer metadata instead."""
        again = PartitionFetchDue(state.topic_partition, leader, state.leader_epoch)
        fetcher.remove(state.topic_partition)
        if error is not Error.FENCED_LEADER_EPOCH:
            self._outbox.after(self._constants.replica_fetch_backoff_ms, again)

    def _was_replicated(self, key: TopicPartition) -> None:
        self._purgatory.touch(key)
        if self.probe is not None:
            self.probe.replicated(key)

    # -------------------------------------------------------------- waits

    def disconnected(self, leader: BrokerId) -> None:
        """The connection to a leader broke: begin a new session after a wait."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None and not fetcher.is_backing_off:
            fetcher.in_flight, fetcher.is_new, fetcher.is_backing_off = None, True, True
            self._outbox.after(self._constants.replica_fetch_backoff_ms, FetchDue(leader))

    def retry(self, leader: BrokerId) -> None:
        """The wait after a broken connection is over."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None:
            fetcher.is_backing_off = False

    def retry_partition(self, timer: PartitionFetchDue) -> None:
        """The wait after an error is over, unless metadata has moved the partition on."""
        key = timer.topic_partition
        if self._followed.get(key) == (timer.leader, timer.leader_epoch):
            fetcher = self._fetchers.get(timer.leader)
            if fetcher is None or key not in fetcher.partitions:
                self._add(key, timer.leader, timer.leader_epoch)


# The follower's half of a fetch session with one leader (``AbstractFetcherThread``).


class PartitionFetchState(NamedTuple):
    """One partition that is fetched, with the leader epoch that the follower knows (``PartitionFetchState``)."""

    topic_partition: TopicPartition
    leader_epoch: int
    replica: LocalReplica


class Fetcher:
    """Fetcher of a follower from one leader.

    Attributes:
        partitions: those it fetches.
        changed: those whose position the leader does not know yet; ordered.
        truncating: those whose log has to be brought together with the leader's before they are fetched; ordered.
        forgotten: those to be taken out of the session; an ordered set.
        in_flight: id of the request that is not answered yet.
        is_new: the next fetch begins a new session and states everything.
        is_backing_off: the connection broke and the wait is not over.
    """

    __slots__ = ("changed", "forgotten", "in_flight", "is_backing_off", "is_new", "partitions", "truncating")

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self.changed: dict[TopicPartition, PartitionFetchState] = {}
        self.truncating: dict[TopicPartition, PartitionFetchState] = {}
        self.forgotten: dict[TopicPartition, None] = {}
        self.in_flight: int | None = None
        self.is_new = True
        self.is_backing_off = False

    def add(self, state: PartitionFetchState, *, truncating: bool) -> None:
        """Fetch this partition from now on; ``truncating``: ask first where to."""
        key = state.topic_partition
        self.partitions[key] = state
        self.forgotten.pop(key, None)
        if truncating:
            self.truncating[key] = state
        else:
            self.changed[key] = state

    def remove(self, key: TopicPartition) -> None:
        """Stop fetching this partition."""
        if self.partitions.pop(key, None) is not None:
            self.changed.pop(key, None)
            self.truncating.pop(key, None)
            self.forgotten[key] = None

    def stated(self) -> list[PartitionFetchState]:
        """Give the partitions that the next fetch states."""
        if not self.is_new:
            return list(self.changed.values())
        return [state for key, state in self.partitions.items() if key not in self.truncating]
