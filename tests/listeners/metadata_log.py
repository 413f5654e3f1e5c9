"""What the controllers wrote: the records that matter to a listener, from the files of a controller."""

from __future__ import annotations

from typing import Any, Final

from deploy.sandbox.cluster import Sandbox
from streaming.contracts.records import (
    BrokerRegistrationChange,
    LeaderChange,
    MetadataRecord,
    Partition,
    PartitionChange,
    RecordBatch,
    RegisterBroker,
    RegisterController,
    Topic,
    UnregisterBroker,
)
from streaming.sources.metadata_log.decoding import decode_batches

_OF_PARTITION: Final = (
    "leader",
    "isr",
    "elr",
    "last_known_elr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "leader_recovery_state",
)


def batches(sandbox: Sandbox) -> list[RecordBatch]:
    """Return the batches of the controller whose log reaches furthest."""
    logs = [list(decode_batches(sandbox.read_metadata_log(controller))) for controller in sandbox.controller_ids]
    return max(logs, key=lambda log: (log[-1].epoch, log[-1].base_offset))


def written(sandbox: Sandbox, since: int, zero: int) -> list[list[Any]]:
    """Return the records after a time, in microseconds: milliseconds after ``zero``, offset, and what was written.

    The time is when the controller opened the batch, about 25 ms before it appended it.
    """
    names: dict[str, str] = {}
    rows: list[list[Any]] = []
    for batch in batches(sandbox):
        for number, record in enumerate(batch.records):
            if isinstance(record, Topic):
                names[record.topic_id] = record.topic
            if batch.timestamp >= since and (row := _row(record, names)):
                rows.append([(batch.timestamp - zero) // 1000, batch.base_offset + number, row])
    return rows


def leader_epochs(sandbox: Sandbox) -> dict[tuple[str, int], int]:
    """Return the leader epoch of each partition."""
    names: dict[str, str] = {}
    epochs: dict[tuple[str, int], int] = {}
    for batch in batches(sandbox):
        for record in batch.records:
            match record:
                case Topic():
                    names[record.topic_id] = record.topic
                case Partition():
                    epochs[names[record.topic_id], record.partition] = record.leader_epoch
                case PartitionChange() if record.leader is not None:
                    epochs[names[record.topic_id], record.partition] += 1
    return epochs


def _row(record: MetadataRecord, names: dict[str, str]) -> dict[str, Any] | None:
    row: dict[str, Any] | None = None
    match record:
        case RegisterBroker():
            row = {"register": record.broker, "epoch": record.broker_epoch}
        case UnregisterBroker():
            row = {"unregister": record.broker}
        case BrokerRegistrationChange():
            row = {"broker": record.broker, **_changed(record)}
        case PartitionChange():
            fields = {name: getattr(record, name) for name in _OF_PARTITION}
            kept = {name: value for name, value in fields.items() if value is not None}
            row = {"partition": f"{names.get(record.topic_id, '?')}-{record.partition}", **kept}
        case Topic():
            row = {"topic": record.topic}
        case LeaderChange():
            row = {"controller": record.controller, "controller_epoch": record.epoch}
        case RegisterController():
            row = {"register_controller": record.controller}
    return row


def _changed(record: BrokerRegistrationChange) -> dict[str, Any]:
    fenced = {1: {"fenced": True}, -1: {"fenced": False}}.get(record.fenced, {})
    stopping = {"in_controlled_shutdown": True} if record.in_controlled_shutdown else {}
    return {**fenced, **stopping}
