"""A broker as follower: one fetch loop for each leader (``AbstractFetcherThread``), truncation on fetch (KIP-595)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.messages.errors import Error
from streaming.model.messages.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from streaming.model.messages.outbox import Outbox
from streaming.model.messages.timers import FetchDue, PartitionFetchDue

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.constants import Constants
    from streaming.model.storage.replica import LocalReplica


class Fetcher:
    """The follower's half of a fetch session with one leader.

    Attributes:
        epochs: the partitions it fetches, with the leader epoch it knows.
        changed: those whose position the leader does not know yet; an ordered set.
        forgotten: those to be taken out of the session.
        in_flight: id of the request that is not answered yet.
        is_new: the next request begins a new session and states everything.
        is_backing_off: the connection broke and the wait is not over.
    """

    __slots__ = ("changed", "epochs", "forgotten", "in_flight", "is_backing_off", "is_new")

    def __init__(self) -> None:
        self.epochs: dict[TopicPartition, int] = {}
        self.changed: dict[TopicPartition, None] = {}
        self.forgotten: dict[TopicPartition, None] = {}
        self.in_flight: int | None = None
        self.is_new = True
        self.is_backing_off = False

    def add(self, key: TopicPartition, leader_epoch: int) -> None:
        """Fetch this partition from now on, in this leader epoch."""
        self.epochs[key] = leader_epoch
        self.changed[key] = None
        self.forgotten.pop(key, None)

    def remove(self, key: TopicPartition) -> None:
        """Stop fetching this partition."""
        if self.epochs.pop(key, None) is not None:
            self.changed.pop(key, None)
            self.forgotten[key] = None


class Following:
    """The partitions a broker follows, by leader."""

    def __init__(
        self, broker: BrokerId, constants: Constants, replicas: dict[TopicPartition, LocalReplica], outbox: Outbox
    ) -> None:
        self.broker_epoch = -1
        self._broker = broker
        self._constants = constants
        self._replicas = replicas
        self._outbox = outbox
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._term_of: dict[TopicPartition, tuple[BrokerId, int]] = {}
        self._last_request_id = 0

    def follow(self, key: TopicPartition, leader: BrokerId, leader_epoch: int) -> None:
        """Follower learns of a leader. Enabled only by a newer leader epoch, so that no running fetch is disturbed."""
        fetcher = self._fetchers.get(leader)
        if fetcher is not None and fetcher.epochs.get(key) == leader_epoch:
            return
        self.unfollow(key)
        self._term_of[key] = (leader, leader_epoch)
        self._fetchers.setdefault(leader, Fetcher()).add(key, leader_epoch)

    def unfollow(self, key: TopicPartition) -> None:
        """Follower learns that nobody leads, that it leads itself, or that the topic is gone."""
        leader, _ = self._term_of.pop(key, (None, None))
        if leader in self._fetchers:  # it is gone while all its partitions wait after errors
            self._fetchers[leader].remove(key)

    def term_of(self, key: TopicPartition) -> tuple[BrokerId, int] | None:
        """Give the leader and leader epoch of a followed partition."""
        return self._term_of.get(key)

    def send(self) -> None:
        """Send a request to every leader that has none in flight. Called after every input."""
        for leader, fetcher in list(self._fetchers.items()):
            if fetcher.in_flight is None and not fetcher.is_backing_off:
                if fetcher.epochs:
                    self._outbox.send(leader, self._request(fetcher))
                else:
                    del self._fetchers[leader]

    def _request(self, fetcher: Fetcher) -> FetchRequest:
        stated = fetcher.epochs if fetcher.is_new else fetcher.changed
        partitions = tuple(self._position(key, fetcher.epochs[key]) for key in stated)
        forgotten = () if fetcher.is_new else tuple(fetcher.forgotten)
        self._last_request_id += 1
        request = FetchRequest(
            self._last_request_id, self._broker, self.broker_epoch, partitions, forgotten, fetcher.is_new
        )
        fetcher.in_flight, fetcher.is_new = request.request_id, False
        fetcher.changed, fetcher.forgotten = {}, {}
        return request

    def _position(self, key: TopicPartition, leader_epoch: int) -> FetchPartition:
        log = self._replicas[key].log
        return FetchPartition(key, leader_epoch, log.end, log.last_epoch)

    def fetched(self, response: FetchResponse) -> None:
        """A leader answers; answers to an older request or another leader epoch are void."""
        fetcher = self._fetchers.get(response.leader)
        if fetcher is None or fetcher.in_flight != response.request_id:
            return
        fetcher.in_flight = None
        for item in response.partitions:
            if fetcher.epochs.get(item.topic_partition) == item.leader_epoch:
                self._take(response.leader, fetcher, item)

    def _take(self, leader: BrokerId, fetcher: Fetcher, item: FetchedPartition) -> None:
        replica = self._replicas[item.topic_partition]
        if item.error is not Error.NONE:
            fetcher.remove(item.topic_partition)
            if item.error is not Error.FENCED_LEADER_EPOCH:  # a fenced follower waits for newer metadata
                again = PartitionFetchDue(item.topic_partition, leader, item.leader_epoch)
                self._outbox.after(self._constants.replica_fetch_backoff_ms, again)
            return
        if item.diverging is not None:
            replica.log.truncate_to_diverging(*item.diverging)
            replica.high_watermark = min(replica.high_watermark, replica.log.end)
            fetcher.changed[item.topic_partition] = None
        elif item.fetch_offset == replica.log.end:
            if item.end_offset > item.fetch_offset:
                replica.log.append_fetched(item.end_offset, item.epochs, item.batches)
                fetcher.changed[item.topic_partition] = None
            replica.high_watermark = min(item.high_watermark, replica.log.end)

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
        if self._term_of.get(key) == (timer.leader, timer.leader_epoch):
            fetcher = self._fetchers.setdefault(timer.leader, Fetcher())
            if key not in fetcher.epochs:
                fetcher.add(key, timer.leader_epoch)
