"""Protocol of a consumer group and its coordinator: one heartbeat for everything (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.contracts.identifiers import TopicId
from streaming.model.constants import Error
from streaming.model.coordinators.group_state import (
    ConsumerGroup,
    ConsumerGroupValue,
    ConsumerMemberValue,
    Member,
    MemberState,
    fence,
    group_key,
    member_key,
    reconcile,
    retarget,
    with_member,
    without_member,
)
from streaming.model.messages.coordinators import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RevocationDue,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.broker.consumer_reads import MetadataCache
    from streaming.model.constants import Constants
    from streaming.model.coordinators.group_log import Group, GroupLog, MemberSessions
    from streaming.model.coordinators.group_state import Value
    from streaming.model.messages.network import Outbox


class ConsumerProtocol:
    """The consumer groups that this broker coordinates."""

    def __init__(
        self,
        log: GroupLog,
        sessions: MemberSessions,
        metadata_cache: MetadataCache,
        constants: Constants,
        outbox: Outbox,
    ) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            ConsumerGroupHeartbeatRequest: self._heartbeat,
            RevocationDue: self._revocation_due,
        }
        self._log = log
        self._sessions = sessions
        self._metadata_cache = metadata_cache
        self._session_timeout_ms = constants.group_session_timeout_ms
        self._outbox = outbox

    def _heartbeat(self, now: int, request: ConsumerGroupHeartbeatRequest) -> None:
        """Member joins, stays, tells what it has given up, or leaves."""

        def answer(_at: int, error: Error, member: Member | None = None) -> None:
            number = request.header.correlation_id
            response = ConsumerGroupHeartbeatResponse(number, error)
            if error is Error.NONE and member is not None:
                response = response._replace(epoch=member.epoch, partitions=member.assigned)
            self._outbox.send(request.header.sender, response)

        group = self._log.find(request.group)
        if group is None:
            answer(now, Error.NOT_COORDINATOR)
            return
        before = group.consumer or ConsumerGroup()
        error = self._refusal(group, before, request)
        if error is not Error.NONE:
            answer(now, error)
        elif request.epoch == LEAVE_EPOCH:
            after = self._without(now, before, request.member_id)
            self._replace(now, group, after, answer)
        else:
            after = self._with(now, before, request)
            member = after.members[request.member_id]
            self._sessions.heartbeat(now, request.group, request.member_id, self._session_timeout_ms)
            self._replace(now, group, after, lambda at, group: answer(at, group, member))
            self._limit_revocation(group, member, before.members.get(request.member_id))

    @staticmethod
    def _refusal(group: Group, before: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Error:
        if group.classic is not None and group.classic.members:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if request.epoch == JOIN_EPOCH:
            return Error.NONE
        member = before.members.get(request.member_id)
        if request.epoch == LEAVE_EPOCH:
            return Error.NONE if member else Error.UNKNOWN_MEMBER_ID
        return fence(member, request.epoch, request.owned)

    def _with(self, now: int, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
        """Take in what a member says, then bring it a step nearer to its target."""
        current = group.members.get(request.member_id)
        member = current or Member(request.member_id, frozenset(), None, request.rebalance_timeout_ms)
        if request.topics is not None:
            member = member._replace(topics=request.topics, assignor=request.assignor)
        wants_other = current is None or (current.topics, current.assignor) != (member.topics, member.assignor)
        group = with_member(group, member)
        counts = self._counts(group)
        if wants_other or tuple(sorted(counts.items())) != group.counts:
            group = group._replace(epoch=group.epoch + 1)
        group = retarget(group, counts, now)
        owned = frozenset() if request.epoch == JOIN_EPOCH else request.owned
        return with_member(group, reconcile(group, member, owned))

    def _without(self, now: int, group: ConsumerGroup, member_id: str) -> ConsumerGroup:
        """Give the group without a member, its partitions promised to others already."""
        after = without_member(group, member_id)
        return retarget(after, self._counts(after), now)

    def _counts(self, group: ConsumerGroup) -> dict[TopicId, int]:
        topics = frozenset[TopicId]().union(*(member.topics for member in group.members.values()))
        counts = {topic: self._metadata_cache.partitions_of(topic) for topic in topics}
        return {topic: count for topic, count in counts.items() if count}

    def _replace(self, now: int, group: Group, after: ConsumerGroup, then: Callable[[int, Error], None]) -> None:
        """Write what is new; a group that could not be written stays as it was."""
        before = group.consumer or ConsumerGroup()
        error = self._log.write(now, group, changes(group.name, before, after), then)
        if error is Error.NONE:
            group.consumer = after
            self._sessions.forget(group.name, before.members.keys() - after.members.keys())
        else:
            then(now, error)

    def _limit_revocation(self, group: Group, member: Member, before: Member | None) -> None:
        """A member that does not give up what it has to is expelled after its rebalance timeout."""
        is_due = member.state is MemberState.UNREVOKED_PARTITIONS
        if is_due and (before is None or before.revoking != member.revoking):
            timer = RevocationDue(group.name, member.member_id, member.epoch)
            self._outbox.after(member.rebalance_timeout_ms, timer)

    def _revocation_due(self, now: int, timer: RevocationDue) -> None:
        group = self._log.find(timer.group)
        member = group.consumer.members.get(timer.member_id) if group and group.consumer else None
        if group is None or member is None:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch == timer.epoch:
            self.expired(now, group, timer.member_id)

    def expired(self, now: int, group: Group, member_id: str) -> None:
        """A member was silent for its whole session, or kept what it should have given up.

        Departs from Kafka: if that cannot be written now, it is tried again after another session.
        """
        if group.consumer is None or member_id not in group.consumer.members:
            return
        self._replace(now, group, self._without(now, group.consumer, member_id), lambda _at, _error: None)
        if member_id in group.consumer.members:
            self._sessions.heartbeat(now, group.name, member_id, self._session_timeout_ms)

    # -------------------------------------------------------------- leader epochs

    def elected(self, now: int, group: Group) -> None:
        """This broker coordinates the group from now on: every session, and every revocation, starts over."""
        for member in group.consumer.members.values() if group.consumer else ():
            self._sessions.heartbeat(now, group.name, member.member_id, self._session_timeout_ms)
            self._limit_revocation(group, member, None)

    def resigned(self, group: Group) -> None:
        """Another broker coordinates the group."""
        if group.consumer is not None:
            self._sessions.forget(group.name, group.consumer.members)


def changes(name: str, before: ConsumerGroup, after: ConsumerGroup) -> dict[str, Value | None]:
    """Give the records that lead from one state of a group to the next."""
    values: dict[str, Value | None] = {}
    if before._replace(members={}) != after._replace(members={}):
        target = tuple(sorted(after.target.items()))
        values[group_key(name)] = ConsumerGroupValue(
            name, after.epoch, after.counts, after.target_epoch, target, after.since_ms
        )
    for member_id in before.members.keys() - after.members.keys():
        values[member_key(name, member_id)] = None
    for member_id, member in after.members.items():
        if before.members.get(member_id) != member:
            values[member_key(name, member_id)] = ConsumerMemberValue(name, member)
    return values
