"""Protocol of a classic group and its coordinator: join, sync, heartbeat, leave (``GroupMetadataManager``).

A rebalance has two barriers. First every member joins, and the generation begins. Then the leader, one of them, hands
in who reads what; once that is committed each gets its share. Eager members give everything up before they join;
cooperative ones join again when they have given up what moves on (KIP-429).

Departs from Kafka: no static members (KIP-345); a member that is heard of but never syncs is not expelled; a group is
not converted to the consumer protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.model.constants import Error
from streaming.model.coordinators.group_state import ClassicGroup, ClassicMember, GroupState, group_key
from streaming.model.messages.coordinators import (
    NO_MEMBER,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinedMember,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinsDue,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.model.constants import Constants
    from streaming.model.coordinators.group_log import Group, GroupLog, MemberSessions
    from streaming.model.messages.clients import Header
    from streaming.model.messages.network import Outbox


class ClassicProtocol:
    """The classic groups that this broker coordinates."""

    def __init__(self, log: GroupLog, sessions: MemberSessions, constants: Constants, outbox: Outbox) -> None:
        self.handlers: dict[type, Callable[[int, Any], None]] = {
            JoinGroupRequest: self._join,
            SyncGroupRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveGroupRequest: self._leave,
            JoinsDue: self._joins_due,
        }
        self._log = log
        self._sessions = sessions
        self._initial_delay_ms = constants.group_initial_rebalance_delay_ms
        self._outbox = outbox
        self._last_number = 0

    # -------------------------------------------------------------- joining

    def _join(self, now: int, request: JoinGroupRequest) -> None:
        """Member joins; answered when the generation begins."""
        group = self._log.find(request.group)
        error = Error.NOT_COORDINATOR if group is None else self._refusal(group, request)
        if group is None or error is not Error.NONE:
            self._outbox.send(request.header.sender, JoinGroupResponse(request.header.correlation_id, error))
            return
        classic = group.classic = group.classic or ClassicGroup()
        if request.member_id == NO_MEMBER:
            self._name(now, classic, request)
            return
        member = classic.members.get(request.member_id)
        is_new = member is None
        if member is None:
            classic.pending.discard(request.member_id)
            member = classic.members[request.member_id] = ClassicMember(request.member_id)
            classic.has_grown = True
        is_news = member.take(request)
        self._heartbeat_received(now, group, member)
        self._joined(now, group, classic, member, changes=is_new or is_news)

    @staticmethod
    def _refusal(group: Group, request: JoinGroupRequest) -> Error:
        if group.consumer is not None and group.consumer.members:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        classic = group.classic or ClassicGroup()
        is_known = request.member_id in classic.members or request.member_id in classic.pending
        if request.member_id != NO_MEMBER and not is_known:
            return Error.UNKNOWN_MEMBER_ID
        if classic.members and not classic.accepts(request.assignors):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        return Error.NONE

    def _name(self, now: int, classic: ClassicGroup, request: JoinGroupRequest) -> None:
        """Give a new member its id; it joins with that, so that a lost answer leaves no ghost behind (KIP-394)."""
        loaded = self._log.loaded_for(request.group)
        self._last_number += 1
        member_id = f"consumer-{request.header.sender}-{loaded.leader_epoch if loaded else 0}-{self._last_number}"
        classic.pending.add(member_id)
        self._sessions.heartbeat(now, request.group, member_id, request.session_timeout_ms)
        answer = JoinGroupResponse(request.header.correlation_id, Error.MEMBER_ID_REQUIRED, member_id=member_id)
        self._outbox.send(request.header.sender, answer)

    def _heartbeat_received(self, now: int, group: Group, member: ClassicMember) -> None:
        self._sessions.heartbeat(now, group.name, member.member_id, member.session_timeout_ms)

    def _joined(self, now: int, group: Group, classic: ClassicGroup, member: ClassicMember, *, changes: bool) -> None:
        if classic.state is GroupState.PREPARING_REBALANCE:
            self._begin_if_complete(now, group, classic)
        elif changes or (classic.state is GroupState.STABLE and member.member_id == classic.leader):
            self._prepare(now, group, classic)
        else:  # its answer was lost
            self._send_generation(classic, member)

    def _prepare(self, now: int, group: Group, classic: ClassicGroup) -> None:
        """A rebalance begins: every member is to join again. The first one waits a little for still more members."""
        is_first = classic.state is GroupState.EMPTY
        if classic.state is GroupState.COMPLETING_REBALANCE:
            self._answer_syncs(classic, Error.REBALANCE_IN_PROGRESS)
        classic.move(now, GroupState.PREPARING_REBALANCE)
        self._last_number += 1
        classic.rebalance, classic.has_grown = self._last_number, False
        classic.is_gathering = is_first and self._initial_delay_ms > 0
        wait = self._initial_delay_ms if classic.is_gathering else classic.rebalance_timeout_ms
        classic.patience_ms = classic.rebalance_timeout_ms - wait
        self._outbox.after(wait, JoinsDue(group.name, classic.rebalance))
        self._begin_if_complete(now, group, classic)

    def _begin_if_complete(self, now: int, group: Group, classic: ClassicGroup) -> None:
        if classic.have_all_joined and not classic.is_gathering:
            self._begin_generation(now, group, classic)

    def _joins_due(self, now: int, timer: JoinsDue) -> None:
        group = self._log.find(timer.group)
        classic = group.classic if group else None
        if group is None or classic is None or classic.rebalance != timer.number:
            return
        if classic.state is not GroupState.PREPARING_REBALANCE:
            return
        if classic.has_grown and classic.patience_ms > 0:
            wait = min(self._initial_delay_ms, classic.patience_ms)
            classic.has_grown, classic.patience_ms = False, classic.patience_ms - wait
            self._outbox.after(wait, timer)
        else:
            self._begin_generation(now, group, classic)

    def _begin_generation(self, now: int, group: Group, classic: ClassicGroup) -> None:
        """Continue with the members that joined."""
        self._sessions.forget(group.name, [*classic.begin_generation(), *classic.pending])
        classic.pending.clear()
        if not classic.members:
            classic.move(now, GroupState.EMPTY)
            value = classic.value(group.name, {})
            self._log.write(now, group, {value.key: value}, lambda _at, _error: None)
            return
        classic.move(now, GroupState.COMPLETING_REBALANCE)
        for member in classic.members.values():
            self._heartbeat_received(now, group, member)
            self._send_generation(classic, member)

    def _send_generation(self, classic: ClassicGroup, member: ClassicMember) -> None:
        header, member.joining = member.joining, None
        assert header is not None, member.member_id  # noqa: S101 - only who joins is told
        members = tuple(
            JoinedMember(member.member_id, member.topics, member.owned, member.owned_generation)
            for member in classic.members.values()
        )
        answer = JoinGroupResponse(
            header.correlation_id,
            Error.NONE,
            classic.generation,
            classic.assignor,
            classic.leader,
            member.member_id,
            members if member.member_id == classic.leader else (),
        )
        self._outbox.send(header.sender, answer)

    # -------------------------------------------------------------- sharing out

    def _sync(self, now: int, request: SyncGroupRequest) -> None:
        """Member asks for its share; answered when the leader's shares are committed."""
        group, classic, error = self._membership(request.group, request.member_id, request.generation)
        if classic is not None and classic.state is GroupState.PREPARING_REBALANCE:
            error = Error.REBALANCE_IN_PROGRESS
        if group is None or classic is None or error is not Error.NONE:
            self._outbox.send(request.header.sender, SyncGroupResponse(request.header.correlation_id, error))
            return
        member = classic.members[request.member_id]
        member.syncing = request.header
        self._heartbeat_received(now, group, member)
        if classic.state is GroupState.STABLE:
            self._answer_sync(member, Error.NONE)
        elif request.member_id == classic.leader:
            self._share_out(now, group, classic, request)

    def _share_out(self, now: int, group: Group, classic: ClassicGroup, request: SyncGroupRequest) -> None:
        shares, generation = dict(request.assignment), classic.generation

        def written(at: int, error: Error) -> None:
            if classic.generation != generation or classic.state is not GroupState.COMPLETING_REBALANCE:
                return
            if error is not Error.NONE:
                self._answer_syncs(classic, error)
                if error is not Error.NOT_COORDINATOR:
                    self._prepare(at, group, classic)
                return
            for name, member in classic.members.items():
                member.share = shares.get(name, ())
            classic.move(at, GroupState.STABLE)
            self._answer_syncs(classic, Error.NONE)

        error = self._log.write(now, group, {group_key(group.name): classic.value(group.name, shares)}, written)
        if error is not Error.NONE:
            written(now, error)

    def _answer_syncs(self, classic: ClassicGroup, error: Error) -> None:
        for member in classic.members.values():
            if member.syncing is not None:
                self._answer_sync(member, error)

    def _answer_sync(self, member: ClassicMember, error: Error) -> None:
        header, member.syncing = member.syncing, None
        if header is not None:
            share = member.share if error is Error.NONE else ()
            self._outbox.send(header.sender, SyncGroupResponse(header.correlation_id, error, share))

    # -------------------------------------------------------------- staying and leaving

    def _membership(
        self, name: str, member_id: str, generation: int
    ) -> tuple[Group | None, ClassicGroup | None, Error]:
        group = self._log.find(name)
        if group is None:
            return None, None, Error.NOT_COORDINATOR
        classic = group.classic
        if classic is None or member_id not in classic.members:
            return group, classic, Error.UNKNOWN_MEMBER_ID
        error = Error.NONE if generation == classic.generation else Error.ILLEGAL_GENERATION
        return group, classic, error

    def _heartbeat(self, now: int, request: HeartbeatRequest) -> None:
        """Member is alive; it may learn that it has to join again."""
        group, classic, error = self._membership(request.group, request.member_id, request.generation)
        if group is not None and classic is not None and error is Error.NONE:
            self._heartbeat_received(now, group, classic.members[request.member_id])
            if classic.state is GroupState.PREPARING_REBALANCE:
                error = Error.REBALANCE_IN_PROGRESS
        self._outbox.send(request.header.sender, HeartbeatResponse(request.header.correlation_id, error))

    def _leave(self, now: int, request: LeaveGroupRequest) -> None:
        """Member goes."""
        group = self._log.find(request.group)
        error = Error.NOT_COORDINATOR if group is None else Error.NONE
        self._outbox.send(request.header.sender, LeaveGroupResponse(request.header.correlation_id, error))
        if group is not None:
            self.remove(now, group, request.member_id)

    def expired(self, now: int, group: Group, member_id: str) -> None:
        """A member was silent for its whole session; one that waits for the others to join cannot speak."""
        member = group.classic.members.get(member_id) if group.classic else None
        if member is not None and member.joining is not None:
            self._heartbeat_received(now, group, member)
        else:
            self.remove(now, group, member_id)

    def remove(self, now: int, group: Group, member_id: str) -> None:
        """A member is gone: the others share out what it had."""
        classic = group.classic
        if classic is None or member_id not in {*classic.members, *classic.pending}:
            return
        self._sessions.forget(group.name, [member_id])
        classic.pending.discard(member_id)
        was_member = classic.members.pop(member_id, None) is not None
        if classic.state is GroupState.PREPARING_REBALANCE:
            self._begin_if_complete(now, group, classic)
        elif was_member:
            self._prepare(now, group, classic)

    # -------------------------------------------------------------- leader epochs

    def elected(self, now: int, group: Group) -> None:
        """This broker coordinates the group from now on: every session starts over."""
        for member in group.classic.members.values() if group.classic else ():
            self._heartbeat_received(now, group, member)

    def resigned(self, group: Group) -> None:
        """Drop the members that wait here: another broker coordinates the group."""
        classic = group.classic
        if classic is None:
            return
        self._sessions.forget(group.name, [*classic.members, *classic.pending])
        self._answer_syncs(classic, Error.NOT_COORDINATOR)
        for member in classic.members.values():
            header: Header | None = member.joining
            if header is not None:
                self._outbox.send(header.sender, JoinGroupResponse(header.correlation_id, Error.NOT_COORDINATOR))
