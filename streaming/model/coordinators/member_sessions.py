"""Who was heard of, and when: a member that is silent for its session timeout is gone. One timer a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.model.messages.groups import SessionDue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.model.messages.outbox import Outbox


class _Heard(NamedTuple):
    at: int
    timeout_ms: int


class MemberSessions:
    """The sessions of all members that this broker coordinates."""

    def __init__(self, outbox: Outbox) -> None:
        self._heard: dict[SessionDue, _Heard] = {}
        self._armed: set[SessionDue] = set()
        self._outbox = outbox

    def hear(self, now: int, group: str, member_id: str, timeout_ms: int) -> None:
        """A member shows that it is alive."""
        timer = SessionDue(group, member_id)
        self._heard[timer] = _Heard(now, timeout_ms)
        if timer not in self._armed:
            self._armed.add(timer)
            self._outbox.after(timeout_ms, timer)

    def forget(self, group: str, members: Iterable[str]) -> None:
        """These members are nobody's concern any more."""
        for member_id in members:
            self._heard.pop(SessionDue(group, member_id), None)

    def expires(self, now: int, timer: SessionDue) -> bool:
        """Tell whether a session is over; otherwise look again when it could be."""
        self._armed.discard(timer)
        heard = self._heard.get(timer)
        if heard is None:
            return False
        left = heard.at + heard.timeout_ms - now
        if left > 0:
            self._armed.add(timer)
            self._outbox.after(left, timer)
            return False
        del self._heard[timer]
        return True
