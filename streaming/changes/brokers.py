"""The step of one broker: whether an observation is accepted, and its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.maintenance import with_return
from streaming.contracts.events import EventKind
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import BrokerState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.changes.partition_events import PendingEvent
    from streaming.contracts.observations import BrokerObserved

# Column of the state <- field of the observation. A field that is None says nothing, but of a new registration in the
# metadata log it says all: what the new broker has not, such as a rack, is not that of the one before.
_REPORTED: Final = {
    "broker_epoch": "broker_epoch",
    "is_fenced": "fenced",
    "is_shutting_down": "in_controlled_shutdown",
    "rack": "rack",
    "host": "host",
    "port": "port",
    "log_dirs": "log_dirs",
}


def next_broker(before: BrokerState | None, observed: BrokerObserved) -> BrokerState | None:
    """Apply one observation; None where it is older than the state."""
    if before is not None and _is_older(before, observed):
        return None
    current = before or BrokerState(cluster_id=observed.cluster_id, cluster=observed.cluster, broker=observed.broker)
    is_new = observed.broker_epoch is not None and observed.broker_epoch != current.broker_epoch
    reported = {
        column: getattr(observed, name)
        for column, name in _REPORTED.items()
        if is_new or getattr(observed, name) is not None
    }
    if observed.authority is SourceKind.POLL:
        # A broker lists the brokers it takes for alive: that is all that a poll reports. What the metadata log said of
        # an earlier shutdown is not known to hold any more.
        reported |= {"is_fenced": False, "is_shutting_down": None}
    offset = observed.metadata_offset
    return with_return(
        current._replace(
            **reported,
            is_registered=observed.registered,
            broker_metadata_offset=current.broker_metadata_offset if offset is None or observed.in_snapshot else offset,
        )
    )


def _is_older(before: BrokerState, observed: BrokerObserved) -> bool:
    if observed.metadata_offset is None or before.broker_metadata_offset is None:
        return False
    if observed.in_snapshot:
        return observed.metadata_offset < before.broker_metadata_offset
    return observed.metadata_offset <= before.broker_metadata_offset


def broker_events(before: BrokerState | None, after: BrokerState) -> Iterator[PendingEvent]:
    """Yield the events between two states of one broker."""
    broker = after.broker
    was_registered = before is not None and before.is_registered
    if after.is_registered and (not was_registered or _is_new_epoch(before, after)):
        yield EventKind.REGISTERED, broker, None
    if not after.is_registered and was_registered:
        yield EventKind.UNREGISTERED, broker, None
        return
    if before is None:
        return
    if after.is_fenced and before.is_fenced is False:
        yield EventKind.FENCED, broker, None
    if after.is_fenced is False and before.is_fenced:
        yield EventKind.UNFENCED, broker, None
    if after.is_shutting_down and not before.is_shutting_down:
        yield EventKind.SHUTTING_DOWN, broker, None
    if lost := _lost_log_dirs(before, after):
        yield EventKind.LOG_DIR_OFFLINE, broker, ", ".join(lost)


def _is_new_epoch(before: BrokerState | None, after: BrokerState) -> bool:
    return before is not None and before.broker_epoch is not None and before.broker_epoch != after.broker_epoch


def _lost_log_dirs(before: BrokerState, after: BrokerState) -> list[str]:
    if before.log_dirs is None or after.log_dirs is None:
        return []
    # A disk may fail while a broker restarts. One with others was replaced, or its machine was; some report none.
    is_same = before.is_registered and set() < set(after.log_dirs) < set(before.log_dirs)
    if _is_new_epoch(before, after) and not is_same:
        return []
    return [directory for directory in before.log_dirs if directory not in after.log_dirs]
