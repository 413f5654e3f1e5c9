"""Records that are no partition changes: what each one presupposes, and which action it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streaming.contracts.identifiers import BrokerId
from streaming.contracts.records import (
    RESOURCE_TOPIC,
    BrokerRegistrationChange,
    ClearElr,
    Config,
    FeatureLevel,
    LeaderChange,
    MetadataRecord,
    NoOp,
    Partition,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
    TransactionMarker,
    UndecodableRecord,
    UnregisterBroker,
)
from streaming.model.controller.membership import TABLE, BrokerState, state_of
from streaming.model.controller.topics import MIN_ISR
from streaming.model.messages.registrations import PartitionRegistration
from tests.conformance.actions import ActionName
from tests.conformance.replay import Replay

_BEGIN: Final = 23

_NAMES: Final[dict[type, ActionName]] = {
    Topic: ActionName.CREATE_TOPIC,
    Partition: ActionName.CREATE_PARTITION,
    RemoveTopic: ActionName.DELETE_TOPIC,
    Config: ActionName.ALTER_CONFIG,
    ClearElr: ActionName.CLEAR_ELR,
    RegisterBroker: ActionName.REGISTER_BROKER,
    UnregisterBroker: ActionName.UNREGISTER_BROKER,
    LeaderChange: ActionName.ELECT_CONTROLLER,
    RegisterController: ActionName.REGISTER_CONTROLLER,
    FeatureLevel: ActionName.UPDATE_FEATURE,
    NoOp: ActionName.NO_OP,
    TransactionMarker: ActionName.TRANSACTION,
}


def name_of(record: MetadataRecord) -> ActionName:
    """Give the action that writes such a record."""
    match record:
        case BrokerRegistrationChange(fenced=1):
            return ActionName.FENCE_BROKER
        case BrokerRegistrationChange(fenced=-1):
            return ActionName.UNFENCE_BROKER
        case BrokerRegistrationChange(in_controlled_shutdown=1):
            return ActionName.BEGIN_CONTROLLED_SHUTDOWN
        case BrokerRegistrationChange(log_dirs=dirs):
            return ActionName.CHANGE_BROKER if dirs is None else ActionName.FAIL_DIRECTORIES
        case _:
            return _NAMES.get(type(record), ActionName.OTHER)


class Preconditions:
    """What must be so for a record to be written. Told every record that is no partition change, in order."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._registry = replay.registry
        self._owed: list[str] = []
        self._in_transaction = False

    def broken(self, record: MetadataRecord, operation_began_at: int) -> Iterable[str]:
        """Say what was not as it must be, before the record is applied.

        ``operation_began_at`` is the offset of the first record that the same action wrote.
        """
        yield from self._clearing(record)
        match record:
            case Topic() if self._replay.topic_called(record.topic) is not None:
                yield "a topic of this name exists"
            case Partition():
                yield from self._created(record)
            case RegisterBroker():
                yield from self._registered(record, operation_began_at)
            case BrokerRegistrationChange():
                yield from self._changed(record)
            case TransactionMarker():
                self._in_transaction = record.marker == _BEGIN
            case UndecodableRecord():
                yield f"unreadable, {record.reason}"
            case _:
                pass

    def end(self) -> Iterable[str]:
        """Say what is missing where a batch ends."""
        owed, self._owed = self._owed, []
        return [f"ClearElr of {topic or 'all topics'} is missing" for topic in owed]

    def _clearing(self, record: MetadataRecord) -> Iterable[str]:
        """A new minimum voids what the old one made eligible; bootstrap, in a transaction, has nothing to void."""
        if isinstance(record, ClearElr):
            if record.topic in self._owed:
                self._owed.remove(record.topic)
            else:
                yield "no minimum was changed"
            return
        if not isinstance(record, Config):
            yield from self.end()
        elif record.key == MIN_ISR and self._replay.writer.elr_enabled and not self._in_transaction:
            self._owed.append(record.resource_name if record.resource_type == RESOURCE_TOPIC else "")

    def _created(self, record: Partition) -> Iterable[str]:
        """Every active replica is in sync, the first of them leads."""
        topic = self._registry.topics.get(record.topic_id)
        if topic is not None and record.partition != topic.partitions:
            yield f"partition {topic.partitions} would be next"
        isr = tuple(broker for broker in record.replicas if self._registry.is_active(broker))
        if not isr:
            yield "no replica is active"
            return
        expected = PartitionRegistration(record.replicas, isr, isr[0])
        if PartitionRegistration(*(getattr(record, name) for name in expected._fields)) != expected:
            yield f"a new partition would be {expected}"

    def _registered(self, record: RegisterBroker, operation_began_at: int) -> Iterable[str]:
        """Born fenced, with the next offset of the log as its epoch; the same process keeps what it has."""
        registration = self._registry.brokers.get(record.broker)
        expected: tuple[int, bool, bool] = (operation_began_at, True, False)
        if registration is not None and registration.incarnation_id == record.incarnation_id:
            expected = (registration.epoch, registration.fenced, registration.in_controlled_shutdown)
        if (record.broker_epoch, record.fenced, record.in_controlled_shutdown) != expected:
            yield "epoch, fenced and in controlled shutdown would be {}, {}, {}".format(*expected)

    def _changed(self, record: BrokerRegistrationChange) -> Iterable[str]:
        """As the table of heartbeats allows; a session may end in any state, even twice."""
        reachable = self._reachable(record.broker)
        if record.fenced < 0 and BrokerState.UNFENCED not in reachable:
            yield "this broker is not fenced"
        if record.in_controlled_shutdown > 0 and BrokerState.CONTROLLED_SHUTDOWN not in reachable:
            yield "this broker leads nothing, or is not active"

    def _reachable(self, broker: BrokerId) -> set[BrokerState]:
        registration, leads = self._registry.brokers.get(broker), self._registry.leads_something(broker)
        if registration is None:
            return set()
        state = state_of(registration)
        return {row.next for row in TABLE if row.state is state and row.leads in {None, leads}} - {state}
