"""Commits of a consumer, and the positions at which its group stopped (``CommitRequestManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from streaming.model.clients.positions import FetchState
from streaming.model.constants import Error
from streaming.model.messages.clients import CONSUMER_OFFSETS, CoordinatorKey, WakeUp
from streaming.model.messages.coordinators import (
    NO_GENERATION,
    NO_MEMBER,
    CommittedOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.contracts.identifiers import TopicPartition
    from streaming.model.clients.client import Client
    from streaming.model.clients.fetching import ConsumerFetches
    from streaming.model.clients.positions import ConsumerConfig

if TYPE_CHECKING:
    Offsets = dict[TopicPartition, CommittedOffset]

# The member is none any more, or of a generation that is over.
FENCED: Final = frozenset({Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_MEMBER_EPOCH})


class OffsetCommits:
    """Offsets on their way to the coordinator and back.

    Attributes:
        committed: the newest offset of each partition that the coordinator acknowledged to this consumer.
        acknowledged: every acknowledgement, as (time, partition, offset).
        refused: errors that commits were answered with.
    """

    def __init__(
        self, client: Client, membership: Membership, fetching: ConsumerFetches, interval_ms: int | None
    ) -> None:
        self.committed: Offsets = {}
        self.acknowledged: list[tuple[int, TopicPartition, CommittedOffset]] = []
        self.refused: list[Error] = []
        self._client = client
        self._membership = membership
        self._fetching = fetching
        self._interval_ms = interval_ms
        self._next_commit = 0
        self._is_fetching = False
        self._fetch_at = 0

    def poll(self, now: int) -> None:
        """Commit when it is time; ask for what has to be known before reading."""
        if self._interval_ms is not None and now >= self._next_commit:
            self._next_commit = now + self._interval_ms
            self._client.outbox.after(self._interval_ms, WakeUp())
            self.commit(now, self._membership.owned, lambda _at, _error: None)
        unknown = [
            key for key, position in self._fetching.positions.items() if position.state is FetchState.INITIALIZING
        ]
        if unknown and not self._is_fetching and now >= self._fetch_at:
            self._ask(tuple(unknown))

    def commit(self, now: int, keys: Iterable[TopicPartition], then: Callable[[int, Error], None]) -> None:
        """Commit how far these partitions were read; ``then`` is told how that went, or that nothing is new."""
        offsets = {
            key: CommittedOffset(position.offset, position.epoch)
            for key in keys
            if (position := self._fetching.positions.get(key)) is not None and position.offset >= 0
        }
        self.commit_offsets(
            now, {key: offset for key, offset in offsets.items() if self.committed.get(key) != offset}, then
        )

    def commit_offsets(self, now: int, offsets: Offsets, then: Callable[[int, Error], None]) -> None:
        """Commit these offsets."""
        membership = self._membership
        coordinator = self._client.coordinator_of(membership.coordinator_key)
        if not offsets or coordinator is None:
            then(now, Error.COORDINATOR_NOT_AVAILABLE if offsets else Error.NONE)
            return
        request = OffsetCommitRequest(
            self._client.network.header(),
            membership.group,
            membership.member_id,
            membership.generation,
            tuple(offsets.items()),
        )

        def answered(at: int, response: OffsetCommitResponse | None) -> None:
            error = response.error if response else Error.COORDINATOR_NOT_AVAILABLE
            self._settle(at, offsets, request, error)
            then(at, error)

        self._client.network.send(coordinator, request, answered)

    def _settle(self, now: int, offsets: Offsets, request: OffsetCommitRequest, error: Error) -> None:
        if error is Error.NONE:
            self.committed |= {key: offset for key, offset in offsets.items() if key in self._fetching.positions}
            self.acknowledged += [(now, key, offset) for key, offset in offsets.items()]
            return
        self.refused.append(error)
        if error in {Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE}:
            self._client.forget_coordinator(self._membership.coordinator_key)
        elif error in FENCED and (request.member_id, request.generation) == self._membership.identity:
            self._membership.lose(now)

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget partitions that another consumer has now."""
        for key in keys:
            self.committed.pop(key, None)

    # -------------------------------------------------------------- where the group stopped

    def _ask(self, keys: tuple[TopicPartition, ...]) -> None:
        membership = self._membership
        coordinator = self._client.coordinator_of(membership.coordinator_key)
        if coordinator is None:
            return
        self._is_fetching = True
        header = self._client.network.header()
        request = OffsetFetchRequest(header, membership.group, keys, *membership.reader)
        asked = {key: self._fetching.positions[key] for key in keys}

        def answered(now: int, response: OffsetFetchResponse | None) -> None:
            self._is_fetching = False
            error = response.error if response else Error.COORDINATOR_NOT_AVAILABLE
            if response is None or error is not Error.NONE:
                self._try_again(now, error)
                return
            committed = dict(response.offsets)
            for key, position in asked.items():
                if self._fetching.positions.get(key) is not position or position.state is not FetchState.INITIALIZING:
                    continue
                if key in committed:
                    position.begin(committed[key].offset, committed[key].leader_epoch, -1)
                    self.committed[key] = committed[key]
                else:
                    self._fetching.reset(key)

        self._client.network.send(coordinator, request, answered)

    def _try_again(self, now: int, error: Error) -> None:
        if error in {Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE}:
            self._client.forget_coordinator(self._membership.coordinator_key)
        self._fetch_at = now + self._client.constants.retry_backoff_ms
        self._client.outbox.after(self._client.constants.retry_backoff_ms, WakeUp())


# Interface of a group's member to its consumer, whichever protocol it speaks (``AbstractCoordinator``).


if TYPE_CHECKING:
    Partitions = frozenset[TopicPartition]


class Assignee(Protocol):
    """Reader of the partitions that a member is assigned."""

    def take_over(self, keys: Iterable[TopicPartition]) -> None:
        """Read these, too, from where the group stopped."""

    def give_up(self, now: int, keys: Partitions, then: Callable[[int], None]) -> None:
        """Read these no more, commit how far they were read, then call ``then``."""

    def drop(self, keys: Partitions) -> None:
        """Read these no more; another member may have them already."""


class Membership:
    """A member of a group. Subclasses say in :meth:`poll` what they tell the coordinator when.

    Attributes:
        member_id: its name; "" before the coordinator gave it one.
        generation: newest generation, or member epoch, that it was told; -1 outside.
        owned: what it reads.
    """

    def __init__(self, client: Client, assignee: Assignee, config: ConsumerConfig, group: str) -> None:
        self.group = group
        self.coordinator_key = CoordinatorKey(CONSUMER_OFFSETS, group)
        self.member_id = NO_MEMBER
        self.generation = NO_GENERATION
        self.owned: Partitions = frozenset()
        self._client = client
        self._assignee = assignee
        self._config = config
        self._constants = client.constants
        self._is_asking = False
        self._act_at = 0
        self._incarnation = 0  # an answer to something that was asked in an earlier incarnation is void

    @property
    def identity(self) -> tuple[str, int]:
        """By which its commits are fenced."""
        return self.member_id, self.generation

    @property
    def reader(self) -> tuple[str, int]:
        """Member id and epoch with which it asks for committed offsets; the classic protocol ignores them."""
        return NO_MEMBER, NO_GENERATION

    def poll(self, now: int) -> None:
        """Say what is to be said now."""
        raise NotImplementedError

    def leave(self) -> None:
        """The application ends."""
        raise NotImplementedError

    def lose(self, now: int) -> None:
        """Join again: the coordinator continued without this member, and whatever it read is another one's now."""
        self._incarnation += 1
        lost, self.owned = self.owned, frozenset()
        self._assignee.drop(lost)
        self._is_asking = False
        self._wake(now, 0)

    def _wake(self, now: int, delay_ms: int) -> None:
        self._act_at = now + delay_ms
        self._client.outbox.after(delay_ms, WakeUp())

    def _fail(self, now: int, error: Error) -> None:
        """Try again after a wait, with another coordinator if this one is none any more."""
        if error in {Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE}:
            self._client.forget_coordinator(self.coordinator_key)
        self._wake(now, self._constants.retry_backoff_ms)
