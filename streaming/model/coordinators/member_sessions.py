"""Who was heard of, and when: a member that is silent for its session timeout is gone. One timer a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.messages.groups import SessionDue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.model.messages.outbox import Outbox


class _Heartbeat(NamedTuple):
    at: int
    timeout_ms: int


class MemberSessions:
    """The sessions of all members that this broker coordinates."""

    def __init__(self, outbox: Outbox) -> None:
        self._heartbeats: dict[SessionDue, _Heartbeat] = {}
        self._armed: set[SessionDue] = set()
        self._outbox = outbox

    def heartbeat(self, now: int, group: str, member_id: str, timeout_ms: int) -> None:
        """A member shows that it is alive."""
        timer = SessionDue(group, member_id)
        self._heartbeats[timer] = _Heartbeat(now, timeout_ms)
        if timer not in self._armed:
            self._armed.add(timer)
            self._outbox.after(timeout_ms, timer)

    def forget(self, group: str, members: Iterable[str]) -> None:
        """These members are nobody's concern any more."""
        for member_id in members:
            self._heartbeats.pop(SessionDue(group, member_id), None)

    def expires(self, now: int, timer: SessionDue) -> bool:
        """Return whether a session is over; otherwise look again when it could be."""
        self._armed.discard(timer)
        heartbeat = self._heartbeats.get(timer)
        if heartbeat is None:
            return False
        left = heartbeat.at + heartbeat.timeout_ms - now
        if left > 0:
            self._armed.add(timer)
            self._outbox.after(left, timer)
            return False
        del self._heartbeats[timer]
        return True
