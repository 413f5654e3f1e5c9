"""Conversion of a metadata state to a JSON document and back, for checkpoints.

Pure. Partitions and brokers are rows under a header of field names, so that a document of 100,000 partitions stays
small, and one that a program with other fields wrote is no such document.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.contracts.records import LeaderChange, Partition, RegisterBroker
from streaming.sources.image_state import MetadataState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

R = TypeVar("R")

_PARTITION_FIELDS: Final = tuple(item.name for item in fields(Partition))
_BROKER_FIELDS: Final = tuple(item.name for item in fields(RegisterBroker))


def state_document(state: MetadataState) -> dict[str, Any]:
    """Return a state as JSON values."""
    partitions = (one for parts in state.partitions.values() for one in parts.values())
    return {
        "topics": dict(state.topics),
        "partition_fields": list(_PARTITION_FIELDS),
        "partitions": _rows(partitions, _PARTITION_FIELDS),
        "broker_fields": list(_BROKER_FIELDS),
        "brokers": _rows(state.brokers.values(), _BROKER_FIELDS),
        "configs": [[topic, key, value] for (topic, key), value in state.configs.items()],
        "features": dict(state.features),
        "controller": None if state.controller is None else asdict(state.controller),
    }


def state_from_document(document: Mapping[str, Any]) -> MetadataState:
    """Restore a state from its document.

    Raises:
        KeyError, TypeError, ValueError: it is not such a document.
    """
    state = MetadataState()
    for topic_id, topic in document["topics"].items():
        state.add_topic(topic_id, topic)
    for partition in _records(Partition, _PARTITION_FIELDS, document["partition_fields"], document["partitions"]):
        state.partitions[partition.topic_id][partition.partition] = partition
    for broker in _records(RegisterBroker, _BROKER_FIELDS, document["broker_fields"], document["brokers"]):
        state.brokers[broker.broker] = broker
    state.configs = {(topic, key): value for topic, key, value in document["configs"]}
    state.features = dict(document["features"])
    controller = document["controller"]
    state.controller = None if controller is None else LeaderChange(**controller)
    return state


def _rows(records: Iterable[Partition] | Iterable[RegisterBroker], names: Iterable[str]) -> list[tuple[Any, ...]]:
    return list(map(attrgetter(*names), records))


def _records(cls: type[R], names: tuple[str, ...], header: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[R]:
    if tuple(header) != names:
        raise ValueError(f"fields of {cls.__name__} are {', '.join(header)}")
    return [
        cls(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in zip(names, row, strict=True)}
        )
        for row in rows
    ]
