"""Broker life cycle at the controller: the state table of a heartbeat, and session tracking (KIP-631, KIP-841). Pure.

A broker never fences itself; it is alive until the controller has not heard of it for a session.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId
    from streaming.model.registrations import BrokerRegistration


class BrokerState(Enum):
    """What the controller makes of a broker."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


class Question(NamedTuple):
    """Everything the next state depends on.

    ``caught_up``: its metadata reaches its own registration. ``drained``: every active broker's metadata reaches the
    start of its controlled shutdown, so nobody takes it for a leader any more (KAFKA-14292: one slow broker blocks).
    """

    state: BrokerState
    want_shut_down: bool
    want_fence: bool
    caught_up: bool
    leads: bool
    drained: bool


class Row(NamedTuple):
    """One row: a None matches anything. The first row that matches decides."""

    state: BrokerState
    want_shut_down: bool | None
    want_fence: bool | None
    caught_up: bool | None
    leads: bool | None
    drained: bool | None
    next: BrokerState


_F, _U, _C, _S = BrokerState
# BrokerHeartbeatManager.calculateNextBrokerState, row by row.
TABLE: Final[tuple[Row, ...]] = (
    #   state  shut   fence  caught leads  drained next
    Row(_F, True, None, None, None, None, _S),
    Row(_F, False, False, True, None, None, _U),
    Row(_F, False, None, None, None, None, _F),
    Row(_U, True, True, None, None, None, _S),
    Row(_U, False, True, None, None, None, _F),
    Row(_U, True, False, None, True, None, _C),
    Row(_U, True, False, None, False, None, _S),
    Row(_U, False, False, None, None, None, _U),
    Row(_C, None, None, None, True, None, _C),
    Row(_C, None, None, None, False, True, _S),
    Row(_C, None, None, None, False, False, _C),
)


def state_of(registration: BrokerRegistration) -> BrokerState:
    """Give the state that a registration stands for; fenced outweighs shutting down."""
    if registration.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if registration.in_controlled_shutdown else BrokerState.UNFENCED


def next_state(question: Question) -> BrokerState:
    """Look the next state up."""
    for row in TABLE:
        if all(want is None or want == have for want, have in zip(row[:-1], question, strict=True)):
            return row.next
    raise AssertionError(f"the table has no row for {question}")


class Sessions:
    """When the controller last heard of each broker. A session that expires is forgotten."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._contacts: dict[BrokerId, int] = {}  # oldest contact first

    def touch(self, broker: BrokerId, now: int) -> None:
        """Note a contact."""
        self._contacts.pop(broker, None)
        self._contacts[broker] = now

    def is_valid(self, broker: BrokerId, now: int) -> bool:
        """Return whether ``broker`` was heard of within the session."""
        contact = self._contacts.get(broker)
        return contact is not None and now - contact <= self._timeout_ms

    def forget(self, broker: BrokerId) -> None:
        """End a session."""
        self._contacts.pop(broker, None)

    def pop_expired(self, now: int) -> BrokerId | None:
        """Forget the broker whose contact is oldest, if its session is over; one a pass, as the controller does."""
        for broker in self._contacts:
            if self.is_valid(broker, now):
                return None
            del self._contacts[broker]
            return broker
        return None
