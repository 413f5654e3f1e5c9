"""Reads of a consumer: questions about positions, and one fetch a broker (``Fetcher``, ``OffsetFetcher``)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.model.clients.positions import ConsumerConfig, FetchState, Position, ResetPolicy, returned
from streaming.model.constants import Error
from streaming.model.messages.clients import (
    ConsumerFetchedPartition,
    ConsumerFetchPartition,
    ConsumerFetchRequest,
    ConsumerFetchResponse,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    Timestamp,
    WakeUp,
)
from streaming.model.messages.replication import (
    EpochEndOffset,
    OffsetForLeaderEpochPartition,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)
from streaming.model.storage.log import NO_EPOCH, UNDEFINED_OFFSET, Records, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId, TopicPartition
    from streaming.model.clients.client import Client

_RESET_TO: Final = {ResetPolicy.EARLIEST: Timestamp.EARLIEST, ResetPolicy.LATEST: Timestamp.LATEST}
# These say that the consumer knows the wrong leader, or not the newest leader epoch.
_STALE: Final = frozenset({
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip


class ConsumerFetches:
    """The reading half of a consumer.

    Attributes:
        positions: of the partitions it reads.
        consumed: every record the application got, by partition.
        truncations: (partition, where it was, where the new leader's log parts) of each truncation it noticed.
    """

    def __init__(self, client: Client, config: ConsumerConfig) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self.consumed: dict[TopicPartition, Records] = {}
        self.truncations: list[tuple[TopicPartition, int, int]] = []
        self._client = client
        self._constants = client.constants
        self._config = config
        self._busy: set[BrokerId] = set()

    def add(self, keys: Iterable[TopicPartition]) -> None:
        """Read these partitions, too."""
        for key in keys:
            self.positions.setdefault(key, Position())

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Read these no more; what is on its way for them is void."""
        for key in keys:
            self.positions.pop(key, None)

    def seek(self, key: TopicPartition, offset: int, epoch: int = NO_EPOCH) -> None:
        """Go to an offset; ``epoch``: of the record before it, where that is known."""
        position = self.positions[key] = Position()
        position.begin(offset, epoch, NO_EPOCH)

    def reset(self, key: TopicPartition) -> None:
        """There is no committed offset: begin where the policy says."""
        self.positions[key].lose(self._config.reset, Error.NONE)

    def poll(self, now: int) -> None:
        """Ask what has to be asked, fetch what can be fetched."""
        self._notice_new_leader_epochs()
        self._ask_for_offsets(now)
        self._ask_for_epochs(now)
        self._fetch(now)

    def _by_leader(self, state: FetchState, now: int) -> dict[BrokerId, list[TopicPartition]]:
        due: dict[BrokerId, list[TopicPartition]] = {}
        for key, position in self.positions.items():
            if position.is_due(state, now):
                leader = self._client.leader_of(key)
                if leader is not None:
                    due.setdefault(leader, []).append(key)
        return due

    def _fail(self, now: int, key: TopicPartition, error: Error) -> None:
        """Try again after a wait, with the newest leader."""
        position = self.positions[key]
        position.is_asking, position.preferred = False, None
        if error in _STALE:
            self._client.forget_leader(key)
        position.retry_at = now + self._constants.retry_backoff_ms
        self._client.outbox.after(self._constants.retry_backoff_ms, WakeUp())

    # -------------------------------------------------------------- reset

    def _ask_for_offsets(self, now: int) -> None:
        for leader, keys in self._by_leader(FetchState.AWAIT_RESET, now).items():
            items = tuple(
                ListOffsetsPartition(key, self._client.leader_epoch_of(key), _RESET_TO[self._config.reset])
                for key in keys
            )
            asked = self._note_asked(keys)
            request = ListOffsetsRequest(self._client.network.header(), self._config.isolation, items)
            self._client.network.send(leader, request, partial(self._listed, asked))

    def _note_asked(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        asked = {key: self.positions[key] for key in keys}
        for position in asked.values():
            position.is_asking = True
        return asked

    def _still(
        self, asked: dict[TopicPartition, Position], state: FetchState
    ) -> Iterable[tuple[TopicPartition, Position]]:
        """Give the partitions for which an answer still means something."""
        return [
            (key, position)
            for key, position in asked.items()
            if self.positions.get(key) is position and position.state is state
        ]

    def _listed(self, asked: dict[TopicPartition, Position], now: int, response: ListOffsetsResponse | None) -> None:
        answers = {item.topic_partition: item for item in response.partitions} if response else {}
        for key, position in self._still(asked, FetchState.AWAIT_RESET):
            answer = answers.get(key)
            if answer is None or answer.error is not Error.NONE:
                self._fail(now, key, answer.error if answer else Error.NOT_LEADER_OR_FOLLOWER)
            else:
                position.begin(answer.offset, answer.leader_epoch, self._client.leader_epoch_of(key))

    # -------------------------------------------------------------- validation, KIP-320

    def _notice_new_leader_epochs(self) -> None:
        """A leader of a newer epoch may have truncated what was read; a position without an epoch cannot tell."""
        for key, position in self.positions.items():
            newest = self._client.leader_epoch_of(key)
            if position.state is FetchState.FETCHING and newest > position.validated_epoch:
                position.preferred = None
                if position.epoch == NO_EPOCH or not self._constants.switches.epoch_fencing:
                    position.validated_epoch = newest
                else:
                    position.move(FetchState.AWAIT_VALIDATION)

    def _ask_for_epochs(self, now: int) -> None:
        for leader, keys in self._by_leader(FetchState.AWAIT_VALIDATION, now).items():
            items = tuple(
                OffsetForLeaderEpochPartition(key, self._client.leader_epoch_of(key), self.positions[key].epoch)
                for key in keys
            )
            asked = self._note_asked(keys)
            request = OffsetsForLeaderEpochRequest(self._client.network.header(), items)
            self._client.network.send(leader, request, partial(self._validated, asked))

    def _validated(
        self, asked: dict[TopicPartition, Position], now: int, response: OffsetsForLeaderEpochResponse | None
    ) -> None:
        answers = {item.topic_partition: item for item in response.partitions} if response else {}
        for key, position in self._still(asked, FetchState.AWAIT_VALIDATION):
            answer = answers.get(key)
            if answer is None or answer.error is not Error.NONE:
                self._fail(now, key, answer.error if answer else Error.NOT_LEADER_OR_FOLLOWER)
            else:
                self._compare(key, position, answer)

    def _compare(self, key: TopicPartition, position: Position, answer: EpochEndOffset) -> None:
        """Check whether what was read is still there; else fail without a policy, or continue where the logs part."""
        if answer.end_offset == UNDEFINED_OFFSET:
            position.lose(self._config.reset, Error.OFFSET_OUT_OF_RANGE)
        elif answer.end_offset >= position.offset:
            position.begin(position.offset, position.epoch, answer.leader_epoch)
        else:
            self.truncations.append((key, position.offset, answer.end_offset))
            if self._config.reset is ResetPolicy.NONE:
                position.lose(self._config.reset, Error.OFFSET_OUT_OF_RANGE)
            else:
                position.begin(answer.end_offset, answer.epoch, answer.leader_epoch)

    # -------------------------------------------------------------- records

    def _fetch(self, now: int) -> None:
        to_fetch: dict[BrokerId, list[ConsumerFetchPartition]] = {}
        for key, position in self.positions.items():
            if not position.is_due(FetchState.FETCHING, now):
                continue
            broker = self._read_from(now, key, position)
            if broker is not None and broker not in self._busy:
                item = ConsumerFetchPartition(key, self._client.leader_epoch_of(key), position.offset)
                to_fetch.setdefault(broker, []).append(item)
        for broker, items in to_fetch.items():
            self._busy.add(broker)
            asked = self._note_asked(item.topic_partition for item in items)
            request = ConsumerFetchRequest(
                self._client.network.header(),
                self._config.isolation,
                self._config.rack,
                self._constants.fetch_max_wait_ms,
                tuple(items),
            )
            self._client.network.send(broker, request, partial(self._fetched, broker, asked))

    def _read_from(self, now: int, key: TopicPartition, position: Position) -> BrokerId | None:
        leader = self._client.leader_of(key)
        if leader is None or position.preferred is None or now >= position.preferred_until:
            return leader
        return position.preferred

    def _fetched(
        self, broker: BrokerId, asked: dict[TopicPartition, Position], now: int, response: ConsumerFetchResponse | None
    ) -> None:
        self._busy.discard(broker)
        answers = {item.topic_partition: item for item in response.partitions} if response else {}
        for key, position in self._still(asked, FetchState.FETCHING):
            answer = answers.get(key)
            position.is_asking = False
            if answer is None:
                self._fail(now, key, Error.NOT_LEADER_OR_FOLLOWER)
            elif answer.error is Error.OFFSET_OUT_OF_RANGE and position.preferred is None:
                position.lose(self._config.reset, answer.error)
            elif answer.error is not Error.NONE:
                self._fail(now, key, answer.error)
            elif answer.preferred_read_replica is not None:
                position.preferred = answer.preferred_read_replica
                position.preferred_until = now + self._constants.metadata_max_age_ms
            else:
                self._take(key, position, answer)

    def _take(self, key: TopicPartition, position: Position, answer: ConsumerFetchedPartition) -> None:
        if answer.end_offset == answer.fetch_offset:
            return
        for epoch, start, end in returned(answer, self._config.isolation):
            self.consumed.setdefault(key, Records()).add(Span(epoch, start, end))
        position.offset, position.epoch = answer.end_offset, answer.epochs[-1][0]
