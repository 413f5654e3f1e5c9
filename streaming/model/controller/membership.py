"""Broker life cycle at the controller: registration, heartbeats, sessions, fencing (``ClusterControlManager``)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerEpoch, BrokerId, TopicPartition
from streaming.contracts.records import BrokerRegistrationChange, RegisterBroker, UnregisterBroker
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.metadata_writer import MetadataWriter, StepOptions
from streaming.model.messages.membership import (
    AssignReplicasToDirsRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from streaming.model.messages.network import Outbox
from streaming.model.messages.registrations import BrokerRegistration

if TYPE_CHECKING:
    from streaming.model.constants import Constants

_FENCED, _UNFENCED, _BEGAN = 1, -1, 1


class Membership:
    """Cluster membership and eligibility to lead."""

    def __init__(self, constants: Constants, writer: MetadataWriter, outbox: Outbox) -> None:
        self._outbox = outbox
        self._writer = writer
        self._registry = writer.registry
        self._excludes_unclean_shutdown = (
            constants.eligible_leader_replicas and constants.switches.exclude_unclean_shutdown
        )
        self._session_timeout_ms = constants.broker_session_timeout_ms
        self._sessions = Sessions(self._session_timeout_ms)
        self._metadata_offsets: dict[BrokerId, int] = {}
        self._shutdown_offsets: dict[BrokerId, int] = {}

    def restart_sessions(self, now: int) -> None:
        """A new controller is active: it gives every broker that is not fenced a whole session."""
        self._sessions = Sessions(self._session_timeout_ms)
        for broker, registration in self._registry.brokers.items():
            if not registration.fenced:
                self._sessions.touch(broker, now)
        self._metadata_offsets.clear()
        self._shutdown_offsets.clear()

    def register(self, now: int, request: BrokerRegistrationRequest) -> None:
        """Broker asks to join. Enabled unless another process with its id has a live session; born fenced.

        A restart first takes the broker out of whatever ISR (after a crash also ELR) still names it, in one batch
        before the registration.
        """
        registration = self._registry.brokers.get(request.broker)
        if registration is not None and registration.incarnation_id == request.incarnation_id:
            self._register_again(now, request.broker, registration)
            return
        if registration is not None and self._sessions.is_valid(request.broker, now):
            self._outbox.send(request.broker, BrokerRegistrationResponse(Error.DUPLICATE_BROKER_REGISTRATION))
            return
        self._shut_down_before(
            request.broker, clean=registration is not None and registration.epoch == request.previous_broker_epoch
        )
        # The log's next offset, not the record's own: clean-up records may stand before it.
        epoch = BrokerEpoch(self._writer.end_offset)
        broker, incarnation_id, rack, log_dirs = request.broker, request.incarnation_id, request.rack, request.log_dirs
        self._writer.write(
            RegisterBroker(
                broker=broker, broker_epoch=epoch, incarnation_id=incarnation_id, rack=rack, log_dirs=log_dirs
            )
        )
        registration = BrokerRegistration(epoch, incarnation_id, rack=rack, log_dirs=log_dirs)
        self._writer.set_broker(broker, registration)
        self._sessions.touch(request.broker, now)
        self._metadata_offsets.pop(request.broker, None)
        self._shutdown_offsets.pop(request.broker, None)
        self._outbox.send(request.broker, BrokerRegistrationResponse(Error.NONE, epoch))
        self._writer.commit(now)

    def _register_again(self, now: int, broker: BrokerId, registration: BrokerRegistration) -> None:
        """The same process asks again: it did not hear the answer. Epoch and flags stay."""
        self._writer.write(
            RegisterBroker(
                broker=broker,
                broker_epoch=registration.epoch,
                incarnation_id=registration.incarnation_id,
                fenced=registration.fenced,
                in_controlled_shutdown=registration.in_controlled_shutdown,
            )
        )
        self._sessions.touch(broker, now)
        self._outbox.send(broker, BrokerRegistrationResponse(Error.NONE, registration.epoch))
        self._writer.commit(now)

    def _shut_down_before(self, broker: BrokerId, *, clean: bool) -> None:
        """After a crash the broker may lack a suffix of its log: it is not even eligible any more (KIP-966)."""
        if clean or not self._excludes_unclean_shutdown:
            self._leave_isrs(broker, Cause.RESTART)
            return
        for key in (*self._registry.with_isr_member(broker), *self._registry.with_elr_member(broker)):
            isr = self._registry.partitions[key].isr
            remaining = (member for member in isr if member != broker)
            self._writer.change(
                key, remaining, Cause.UNCLEAN_RESTART, StepOptions(leaving=broker, unclean_shutdown=True)
            )

    def unregister(self, now: int, broker: BrokerId) -> None:
        """Administrator removes a broker that will not come back: the partitions first, then the registration.

        It stays on replica lists, and eligible where it was: Kafka visits those partitions, too, and changes nothing.
        """
        registration = self._registry.brokers.get(broker)
        if registration is None:
            raise RefusedRequest(Error.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not registered")
        self._leave_isrs(broker, Cause.UNREGISTERED)
        self._writer.write(UnregisterBroker(broker=broker, broker_epoch=registration.epoch))
        self._writer.remove_broker(broker)
        self._sessions.forget(broker)
        self._metadata_offsets.pop(broker, None)
        self._shutdown_offsets.pop(broker, None)
        self._writer.commit(now)

    def heartbeat(self, now: int, request: BrokerHeartbeatRequest) -> None:
        """Broker says it is alive; its state follows the table of ``heartbeats``."""
        broker = request.broker
        registration = self._registry.brokers.get(broker)
        if registration is None or registration.epoch != request.broker_epoch:
            self._outbox.send(broker, BrokerHeartbeatResponse(Error.STALE_BROKER_EPOCH))
            return
        # Only the periodic check ends a session, also of a broker that reports too late: a controller that stood still
        # fences one broker when it resumes, and reads the heartbeats of the others then (measured on 4.3.1).
        self._sessions.touch(broker, now)
        self._metadata_offsets[broker] = request.metadata_offset
        following = next_state(self._question(request))
        self._enter(broker, following)
        self._take_log_dirs(request)
        self._writer.commit(now)
        self._outbox.send(
            broker,
            BrokerHeartbeatResponse(
                Error.NONE,
                is_fenced=self._registry.brokers[broker].fenced,
                should_shut_down=following is BrokerState.SHUTDOWN_NOW,
            ),
        )

    def _question(self, request: BrokerHeartbeatRequest) -> Question:
        broker = request.broker
        registration = self._registry.brokers[broker]
        active = [offset for other, offset in self._metadata_offsets.items() if self._registry.is_active(other)]
        shutdown_offset = self._shutdown_offsets.get(broker, -1)
        return Question(
            state=state_of(registration),
            want_shut_down=request.want_shut_down,
            want_fence=request.want_fence,
            caught_up=request.metadata_offset >= registration.epoch,
            leads=self._registry.leads_something(broker),
            drained=shutdown_offset <= min(active, default=shutdown_offset),
        )

    def _enter(self, broker: BrokerId, following: BrokerState) -> None:
        """Take the broker from its state to ``following``; records only where the state changes."""
        current = state_of(self._registry.brokers[broker])
        if following is current:
            return
        if following is BrokerState.UNFENCED:
            self._unfence(broker)
        elif following is BrokerState.CONTROLLED_SHUTDOWN:
            self._begin_controlled_shutdown(broker)
            self._shutdown_offsets[broker] = self._writer.end_offset
        else:
            asked = following is BrokerState.SHUTDOWN_NOW
            self._fence(broker, Cause.CONTROLLED_SHUTDOWN if asked else Cause.FENCED)

    # -------------------------------------------------------------- log directories

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest) -> None:
        """Broker tells where its replicas lie.

        Departs from Kafka: no record tells of it, so no partition epoch grows, and a new controller knows it, too.
        """
        registration = self._registry.brokers.get(request.broker)
        if registration is not None and registration.epoch == request.broker_epoch:
            self._registry.directories.setdefault(request.broker, {}).update(request.placed)

    def _take_log_dirs(self, request: BrokerHeartbeatRequest) -> None:
        """Broker lost directories: partitions first, then the registration; or it closed some to new replicas.

        Departs from Kafka: no record tells of cordoned directories.
        """
        broker, registration = request.broker, self._registry.brokers[request.broker]
        lost = set(registration.log_dirs).intersection(request.offline_log_dirs)
        if registration.cordoned_log_dirs != request.cordoned_log_dirs:
            registration = registration._replace(cordoned_log_dirs=request.cordoned_log_dirs)
            self._registry.brokers[broker] = registration
        if not lost:
            return
        for key in self._registry.in_log_dirs(broker, lost):
            self._leave_isr(key, broker, Cause.DIR_FAILURE)
        remaining = tuple(name for name in registration.log_dirs if name not in lost)
        self._writer.write(BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, log_dirs=remaining))
        self._writer.set_broker(broker, registration._replace(log_dirs=remaining))

    # -------------------------------------------------------------- sessions

    def expire_sessions(self, now: int) -> None:
        """Controller, each eighth of a session: fence the broker not heard of for longest, if its session is over.

        A broker that stopped cleanly is fenced a second time here; real clusters write that record, too.
        """
        broker = self._sessions.pop_expired(now)
        if broker is not None:
            self._fence(broker, Cause.FENCED)
            self._writer.commit(now)

    def _fence(self, broker: BrokerId, cause: Cause) -> None:
        """Partitions first, then the registration."""
        self._leave_isrs(broker, cause)
        registration = self._registry.brokers[broker]
        self._writer.write(BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, fenced=_FENCED))
        self._writer.set_broker(broker, registration._replace(fenced=True))

    def _begin_controlled_shutdown(self, broker: BrokerId) -> None:
        """The registration first, then the partitions."""
        registration = self._registry.brokers[broker]
        self._writer.write(
            BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, in_controlled_shutdown=_BEGAN)
        )
        self._writer.set_broker(broker, registration._replace(in_controlled_shutdown=True))
        self._leave_isrs(broker, Cause.CONTROLLED_SHUTDOWN)

    def _unfence(self, broker: BrokerId) -> None:
        """The registration first, then elections for every leaderless partition. No broker joins an ISR here."""
        registration = self._registry.brokers[broker]
        self._writer.write(BrokerRegistrationChange(broker=broker, broker_epoch=registration.epoch, fenced=_UNFENCED))
        self._writer.set_broker(broker, registration._replace(fenced=False))
        for key in list(self._registry.leaderless):
            self._writer.change(key, self._registry.partitions[key].isr, Cause.UNFENCED)

    def _leave_isrs(self, broker: BrokerId, cause: Cause) -> None:
        for key in self._registry.with_isr_member(broker):
            self._leave_isr(key, broker, cause)

    def _leave_isr(self, key: TopicPartition, broker: BrokerId, cause: Cause) -> None:
        remaining = (member for member in self._registry.partitions[key].isr if member != broker)
        self._writer.change(key, remaining, cause, StepOptions(leaving=broker))


# Broker life cycle at the controller: the state table of a heartbeat, and session tracking (KIP-631, KIP-841). Pure.
#
# A broker never fences itself; it is alive until the controller has not heard of it for a session.


class BrokerState(Enum):
    """State of a broker, as the controller sees it."""

    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


class Question(NamedTuple):
    """Everything the next state depends on.

    ``caught_up``: its metadata reaches its own registration. ``drained``: every active broker's metadata reaches the
    start of its controlled shutdown, so no broker takes it for a leader any more (KAFKA-14292: one slow broker blocks).
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
    """Time of each broker's last heartbeat at the controller. A session that expires is forgotten."""

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
