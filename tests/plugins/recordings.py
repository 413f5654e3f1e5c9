"""Metadata logs recorded from real Kafka 4.3.1 clusters, decoded, with the fields that replication needs.

``one_controller``: three brokers through crashes, clean stops, freezes, reassignments and elections.
``controller_failover``: three controllers, the active one killed, 1,270 irrelevant configuration records.
``replication_links``: followers held back and cut off, an unclean restart, a clean stop of a broker that leads nothing.
``operators_and_faults``: what ``tests/conformance/test_real_cluster.py`` does, as the controller's raw segment.
``stalls_and_two_processes``: the only controller stopped for 12, 25, 8.5, 8.5, 7.5 and 12 s, once more while broker 4
is killed, then restarted; then a second process with the id of broker 3. Sessions of 9 s, a heartbeat each 2 s.
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields
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

# Where Kafka's name of a field is not ours in another spelling; of a kind of record, or of all.
_FIELDS = {
    "LEADER_CHANGE": {"leaderId": "controller"},
    "FEATURE_LEVEL_RECORD": {"name": "feature", "featureLevel": "level"},
    "CONFIG_RECORD": {"name": "key"},
    "TOPIC_RECORD": {"name": "topic"},
    "CLEAR_ELR_RECORD": {"topicName": "topic"},
}
_ANYWHERE = {"controllerId": "controller", "brokerId": "broker", "partitionId": "partition"}
_ANYWHERE |= {"eligibleLeaderReplicas": "elr"}
_MARKERS = {"BEGIN_TRANSACTION_RECORD": 23, "END_TRANSACTION_RECORD": 24}


def _record(values: dict[str, Any], epoch: int) -> MetadataRecord:
    kind = values["type"]
    if kind in _MARKERS:
        return records.TransactionMarker(marker=_MARKERS[kind])
    cls = getattr(records, kind.removesuffix("_RECORD").title().replace("_", ""))
    names = _ANYWHERE | _FIELDS.get(kind, {})
    ours = {names.get(name, re.sub("([A-Z])", r"_\1", name).lower()): value for name, value in values.items()}
    arguments = {each.name: ours[each.name] for each in fields(cls) if each.name in ours}
    arguments |= {"epoch": epoch} if kind == "LEADER_CHANGE" else {}
    record: MetadataRecord = cls(
        **{name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
    )
    return record


def _read(name: str) -> list[RecordBatch]:
    if (_SEGMENTS / f"{name}.log.gz").exists():
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
