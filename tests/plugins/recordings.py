"""Metadata logs recorded from real Kafka 4.3.1 clusters, decoded, with the fields that replication needs.

``one_controller``: three brokers through crashes, clean stops, freezes, reassignments and elections.
``controller_failover``: three controllers, the active one killed, 1,270 irrelevant configuration records.
``replication_links``: followers held back and cut off, an unclean restart, a clean stop of a broker that leads nothing.
``operators_and_faults``: what ``tests/conformance/test_real_cluster.py`` does, as the controller's raw segment.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streaming.contracts import records
from streaming.contracts.identifiers import Micros, Offset
from streaming.contracts.records import MetadataRecord, RecordBatch
from streaming.sources.metadata_log.decoding import decode_batches

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = Path(__file__).parent.parent / "fixtures" / "metadata_records"
_SEGMENTS = _FOLDER.parent / "metadata_log"

# Kafka's spelling of each record and field, and ours.
_KINDS: dict[str, tuple[type[Any], dict[str, str]]] = {
    "LEADER_CHANGE": (records.LeaderChange, {"leaderId": "controller", "epoch": "epoch"}),
    "NO_OP_RECORD": (records.NoOp, {}),
    "FEATURE_LEVEL_RECORD": (records.FeatureLevel, {"name": "feature", "featureLevel": "level"}),
    "REGISTER_CONTROLLER_RECORD": (
        records.RegisterController,
        {"controllerId": "controller", "incarnationId": "incarnation_id"},
    ),
    "CONFIG_RECORD": (
        records.Config,
        {"resourceType": "resource_type", "resourceName": "resource_name", "name": "key", "value": "value"},
    ),
    "TOPIC_RECORD": (records.Topic, {"name": "topic", "topicId": "topic_id"}),
    "REMOVE_TOPIC_RECORD": (records.RemoveTopic, {"topicId": "topic_id"}),
    "CLEAR_ELR_RECORD": (records.ClearElr, {"topicName": "topic"}),
    "REGISTER_BROKER_RECORD": (
        records.RegisterBroker,
        {
            "brokerId": "broker",
            "brokerEpoch": "broker_epoch",
            "incarnationId": "incarnation_id",
            "rack": "rack",
            "fenced": "fenced",
            "inControlledShutdown": "in_controlled_shutdown",
            "logDirs": "log_dirs",
            "host": "host",
            "port": "port",
        },
    ),
    "BROKER_REGISTRATION_CHANGE_RECORD": (
        records.BrokerRegistrationChange,
        {
            "brokerId": "broker",
            "brokerEpoch": "broker_epoch",
            "fenced": "fenced",
            "inControlledShutdown": "in_controlled_shutdown",
            "logDirs": "log_dirs",
        },
    ),
    "PARTITION_RECORD": (
        records.Partition,
        {
            "topicId": "topic_id",
            "partitionId": "partition",
            "replicas": "replicas",
            "isr": "isr",
            "leader": "leader",
            "leaderEpoch": "leader_epoch",
            "partitionEpoch": "partition_epoch",
        },
    ),
    "PARTITION_CHANGE_RECORD": (
        records.PartitionChange,
        {
            "topicId": "topic_id",
            "partitionId": "partition",
            "isr": "isr",
            "leader": "leader",
            "replicas": "replicas",
            "removingReplicas": "removing_replicas",
            "addingReplicas": "adding_replicas",
            "leaderRecoveryState": "leader_recovery_state",
            "eligibleLeaderReplicas": "elr",
            "lastKnownElr": "last_known_elr",
        },
    ),
}
_MARKERS = {"BEGIN_TRANSACTION_RECORD": 23, "END_TRANSACTION_RECORD": 24}


def _record(values: dict[str, Any], epoch: int) -> MetadataRecord:
    kind = values["type"]
    if kind in _MARKERS:
        return records.TransactionMarker(marker=_MARKERS[kind])
    cls, names = _KINDS[kind]
    values = {**values, "epoch": epoch}
    arguments = {ours: values[theirs] for theirs, ours in names.items() if theirs in values}
    record: MetadataRecord = cls(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    )
    return record


def _read(name: str) -> list[RecordBatch]:
    if name == "operators_and_faults":
        return list(decode_batches(gzip.decompress((_SEGMENTS / f"{name}.log.gz").read_bytes())))
    with gzip.open(_FOLDER / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        batches = json.load(file)
    return [
        RecordBatch(
            base_offset=Offset(batch["offset"]),
            epoch=batch["epoch"],
            timestamp=Micros(batch["ts"] * 1000),
            records=tuple(_record(values, batch["epoch"]) for values in batch["records"]),
        )
        for batch in batches
    ]


@pytest.fixture(scope="session")
def recorded_log() -> Callable[[str], list[RecordBatch]]:
    """Give the batches of a recorded metadata log by its name."""
    cache: dict[str, list[RecordBatch]] = {}

    def batches(name: str) -> list[RecordBatch]:
        if name not in cache:
            cache[name] = _read(name)
        return cache[name]

    return batches
