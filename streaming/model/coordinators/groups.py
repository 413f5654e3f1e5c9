"""The coordinator of groups: the leader of the partition of ``__consumer_offsets`` that a group's name hashes to.

It knows what that partition holds, so another broker continues where it stopped. Both protocols stand in files of
their own, and so do committed offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.constants import Error
from streaming.model.coordinators.classic_protocol import ClassicProtocol
from streaming.model.coordinators.consumer_protocol import ConsumerProtocol
from streaming.model.coordinators.group_log import GroupLog, MemberSessions
from streaming.model.coordinators.group_state import GroupState, OffsetCommitValue, group_key
from streaming.model.messages.coordinators import (
    NO_GENERATION,
    NO_MEMBER,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetExpirationDue,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SessionDue,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import TopicId, TopicPartition
    from streaming.model.broker.consumer_reads import MetadataCache
    from streaming.model.broker.leader import LeaderPartition
    from streaming.model.broker.produce import Produce
    from streaming.model.constants import Constants
    from streaming.model.coordinators.group_log import Group
    from streaming.model.coordinators.group_state import Value
    from streaming.model.messages.network import Outbox
    from streaming.model.messages.registrations import TopicRegistration


class GroupCoordinator:
    """The groups that this broker coordinates."""

    def __init__(self, produce: Produce, metadata_cache: MetadataCache, constants: Constants, outbox: Outbox) -> None:
        self.log = GroupLog(produce, constants)
        self._sessions = MemberSessions(outbox)
        self._classic = ClassicProtocol(self.log, self._sessions, constants, outbox)
        self._consumer = ConsumerProtocol(self.log, self._sessions, metadata_cache, constants, outbox)
        self._offsets = GroupOffsets(self.log, constants, outbox)
        self._check_interval_ms = constants.offsets_retention_check_interval_ms
        self._outbox = outbox
        self._looks_for_old = False
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            **self._classic.handlers,
            **self._consumer.handlers,
            **self._offsets.handlers,
            SessionDue: self._session_due,
            OffsetExpirationDue: self._expire_offsets,
        }

    def elected(self, now: int, partition: LeaderPartition, topic: TopicRegistration) -> None:
        """This broker leads a partition of ``__consumer_offsets``: read it, and listen to its groups' members."""
        if self.log.is_loaded(partition):
            return
        self.resigned(partition.key)
        for group in self.log.load(partition, topic.partitions).groups.values():
            self._classic.elected(now, group)
            self._consumer.elected(now, group)
        if not self._looks_for_old:
            self._looks_for_old = True
            self._outbox.after(self._check_interval_ms, OffsetExpirationDue())

    def resigned(self, key: TopicPartition) -> None:
        """Another broker coordinates what this one did."""
        loaded = self.log.unload(key)
        for group in loaded.groups.values() if loaded else ():
            self._classic.resigned(group)
            self._consumer.resigned(group)

    def _session_due(self, now: int, timer: SessionDue) -> None:
        if not self._sessions.expires(now, timer):
            return
        group = self.log.find(timer.group)
        if group is not None:
            self._classic.expired(now, group, timer.member_id)
            self._consumer.expired(now, group, timer.member_id)

    def _expire_offsets(self, now: int, timer: OffsetExpirationDue) -> None:
        self._looks_for_old = not self.log.is_empty
        if self._looks_for_old:
            self._outbox.after(self._check_interval_ms, timer)
            self._offsets.expire(now)


# Committed offsets of groups: fenced, written, read, and forgotten when they are not used any more.


class GroupOffsets:
    """The offsets of the groups that this broker coordinates.

    Departs from Kafka: no commits as part of transactions (``TxnOffsetCommit``).
    """

    def __init__(self, log: GroupLog, constants: Constants, outbox: Outbox) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
        }
        self._log = log
        self._retention_ms = constants.offsets_retention_ms
        self._outbox = outbox

    def _commit(self, now: int, request: OffsetCommitRequest) -> None:
        """Member commits; answered when every in-sync replica has the record."""

        def answer(_at: int, error: Error) -> None:
            self._outbox.send(request.header.sender, OffsetCommitResponse(request.header.correlation_id, error))

        group = self._log.find(request.group)
        if group is None:
            answer(now, Error.NOT_COORDINATOR)
            return
        values = [OffsetCommitValue(request.group, key, committed, now) for key, committed in request.offsets]
        error = fence(group, request.member_id, request.generation)
        if error is Error.NONE:
            error = self._log.write(now, group, {value.key: value for value in values}, answer)
        if error is not Error.NONE:
            answer(now, error)

    def _fetch(self, _now: int, request: OffsetFetchRequest) -> None:
        """Member asks where to begin; only committed records count."""
        group = self._log.find(request.group)
        error = Error.NOT_COORDINATOR
        if group is not None:
            is_anybody = request.member_id == NO_MEMBER and request.generation == NO_GENERATION
            error = Error.NONE if is_anybody else _fence_reader(group, request.member_id, request.generation)
        if group is None or error is not Error.NONE:
            self._outbox.send(request.header.sender, OffsetFetchResponse(request.header.correlation_id, error))
            return
        requested = request.partitions
        offsets = tuple(
            (value.topic_partition, value.committed)
            for value in self._log.committed(group)
            if requested is None or value.topic_partition in requested
        )
        self._outbox.send(request.header.sender, OffsetFetchResponse(request.header.correlation_id, error, offsets))

    def expire(self, now: int) -> None:
        """Coordinator, each ten minutes: forget what is too old, and groups of which nothing is left."""
        for loaded in self._log.loaded():
            for group in list(loaded.groups.values()):
                self._expire_group(now, group)
                if not group.written and state_of(group) is GroupState.DEAD:
                    del loaded.groups[group.name]

    def _expire_group(self, now: int, group: Group) -> None:
        committed = self._log.committed(group)
        old = [offset for offset in committed if now - self._unused_since(now, group, offset) > self._retention_ms]
        values: dict[str, Value | None] = {value.key: None for value in old}
        nothing_left = len(old) == len(committed) == len(group.written)
        if nothing_left and state_of(group) is GroupState.EMPTY:
            values[group_key(group.name)] = None
        if not values:
            return
        error = self._log.write(now, group, values, lambda _at, _error: None)
        if error is Error.NONE and group_key(group.name) in values:
            group.classic = group.consumer = None

    @staticmethod
    def _unused_since(now: int, group: Group, value: OffsetCommitValue) -> int:
        """Return since when an offset is unused: ``now`` while it is used.

        A classic group that is empty stopped when it became empty, anything else when it committed.
        """
        if value.topic_partition.topic_id in _subscribed(group):
            return now
        classic = group.classic
        if classic is not None and classic.state is GroupState.EMPTY:
            return max(classic.since_ms, value.commit_ms)
        return value.commit_ms


def state_of(group: Group) -> GroupState:
    """Give a group's state; one without members and without a past is dead."""
    if group.consumer is not None:
        return group.consumer.state
    if group.classic is not None:
        return group.classic.state
    return GroupState.EMPTY if group.written else GroupState.DEAD


def _subscribed(group: Group) -> frozenset[TopicId]:
    consumer = group.consumer.members.values() if group.consumer else ()
    classic = group.classic.topics if group.classic else frozenset()
    return classic.union(*(member.topics for member in consumer))


def fence(group: Group, member_id: str, generation: int) -> Error:
    """Return why a commit is refused: the sender must be a member, and up to date."""
    if group.consumer is not None and group.consumer.members:
        return _fence_member(group, member_id, generation)
    classic = group.classic
    if classic is None or not classic.members:
        is_nobody = member_id == NO_MEMBER and generation == NO_GENERATION
        no_member = Error.ILLEGAL_GENERATION if classic is None else Error.UNKNOWN_MEMBER_ID
        return Error.NONE if is_nobody else no_member
    if member_id not in classic.members:
        return Error.UNKNOWN_MEMBER_ID
    if generation != classic.generation:
        return Error.ILLEGAL_GENERATION
    # Until the shares are out it is unknown whose partition it is.
    is_completing = classic.state is GroupState.COMPLETING_REBALANCE
    return Error.REBALANCE_IN_PROGRESS if is_completing else Error.NONE


def _fence_member(group: Group, member_id: str, epoch: int) -> Error:
    member = group.consumer.members.get(member_id) if group.consumer else None
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if epoch == member.epoch else Error.STALE_MEMBER_EPOCH


def _fence_reader(group: Group, member_id: str, generation: int) -> Error:
    """A member of a consumer group must be up to date to read, too; the classic protocol does not ask."""
    if group.consumer is not None and group.consumer.members:
        return _fence_member(group, member_id, generation)
    return Error.NONE
