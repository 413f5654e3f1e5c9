"""Decodes one metadata record to a value of ``contracts.records``; never fails, but returns ``Undecodable``.

The value of a record is: frame version (1), key, version, all three unsigned varints, then a flexible body (KIP-631).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.contracts import records
from streaming.errors import Quarantined
from streaming.sources.metadata_log import schemas
from streaming.sources.protocol.primitives import INT8, INT16, INT32, INT64, UINT16, ByteReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.metadata_log.schemas import FieldType

_FRAME_VERSION: Final = 1
_UNCHANGED_LEADER: Final = -2
_UNCHANGED_STATE: Final = -1

_READ: Final[dict[str, Callable[[ByteReader], Any]]] = {
    "int8": lambda reader: reader.number(INT8),
    "int16": lambda reader: reader.number(INT16),
    "uint16": lambda reader: reader.number(UINT16),
    "int32": lambda reader: reader.number(INT32),
    "int64": lambda reader: reader.number(INT64),
    "bool": ByteReader.boolean,
    "uuid": ByteReader.uuid,
    "string": ByteReader.string,
    "string?": ByteReader.nullable_string,
    "int32[]": lambda reader: reader.numbers("i"),
    "uuid[]": lambda reader: reader.array(reader.uuid),
}


def decode_record(value: bytes) -> records.MetadataRecord:
    """Decode one record; an unknown type or version, or an invalid body, gives :class:`records.Undecodable`."""
    reader, kept = ByteReader(value), value
    key = None
    try:
        key, version = _header(reader)
        if key in schemas.SKIPPED:
            return records.Skipped(api_key=key, version=version)
        if key == schemas.CONFIG or key not in schemas.SCHEMAS:
            kept = value[: reader.position]  # a password may be in it, which must not reach the quarantine
        return _RECORD[_supported(key, version)](read_fields(reader, key, version))
    except Quarantined as reason:
        return records.Undecodable(reason=str(reason), value=kept, hides_state=key is None or key in schemas.OF_STATE)


def _header(reader: ByteReader) -> tuple[int, int]:
    frame = reader.unsigned_varint()
    if frame != _FRAME_VERSION:
        raise Quarantined(f"metadata record frame {frame}, this program reads {_FRAME_VERSION}")
    return reader.unsigned_varint(), reader.unsigned_varint()


def read_fields(reader: ByteReader, key: int, version: int) -> dict[str, Any]:
    """Decode a body by its schema: Kafka's field name to value, without absent tagged fields.

    Raises:
        Quarantined: the bytes do not match the schema.
    """
    schema = schemas.SCHEMAS[key]
    values = {
        row[0]: _read(reader, row[1])
        for row in schema.fields
        if len(row) < 3 or version >= row[2]  # noqa: PLR2004 - name, type and the version it came with
    }
    for tag, data in reader.tags().items():
        if tag in schema.tags:  # unknown tags are ignored: newer versions may add them (KIP-482)
            name, kind = schema.tags[tag]
            inner = ByteReader(data)
            values[name] = _read(inner, kind)
            _require_end(inner, f"{schema.name}.{name}")
    _require_end(reader, schema.name)
    return values


def _supported(key: int, version: int) -> int:
    schema = schemas.SCHEMAS.get(key)
    if schema is None:
        raise Quarantined(f"unknown metadata record type {key} version {version}")
    if version > schema.newest:
        raise Quarantined(f"{schema.name} version {version}, this program reads up to {schema.newest}")
    return key


def _require_end(reader: ByteReader, name: str) -> None:
    if reader.remaining:
        raise Quarantined(f"{name} has {reader.remaining} bytes too many")


def _read(reader: ByteReader, kind: FieldType) -> Any:  # noqa: ANN401 - any field of any record
    if isinstance(kind, str):
        return _READ[kind](reader)

    def structure() -> dict[str, Any]:
        values = {name: _read(reader, inner) for name, inner in kind}
        reader.tags()
        return values

    return reader.array(structure)


def _register_broker(values: dict[str, Any]) -> records.MetadataRecord:
    listeners = values["end_points"] or ()
    return records.RegisterBroker(
        broker=values["broker_id"],
        broker_epoch=values["broker_epoch"],
        incarnation_id=values["incarnation_id"],
        rack=values["rack"],
        fenced=values["fenced"],
        in_controlled_shutdown=values.get("in_controlled_shutdown", False),
        log_dirs=values.get("log_dirs") or (),
        host=listeners[0]["host"] if listeners else None,
        port=listeners[0]["port"] if listeners else None,
    )


def _unregister_broker(values: dict[str, Any]) -> records.MetadataRecord:
    return records.UnregisterBroker(broker=values["broker_id"], broker_epoch=values["broker_epoch"])


def _registration_change(values: dict[str, Any]) -> records.MetadataRecord:
    return records.BrokerRegistrationChange(
        broker=values["broker_id"],
        broker_epoch=values["broker_epoch"],
        fenced=values.get("fenced", 0),
        in_controlled_shutdown=values.get("in_controlled_shutdown", 0),
        log_dirs=values.get("log_dirs"),
    )


def _fence(values: dict[str, Any]) -> records.MetadataRecord:
    return records.BrokerRegistrationChange(broker=values["id"], broker_epoch=values["epoch"], fenced=1)


def _unfence(values: dict[str, Any]) -> records.MetadataRecord:
    return records.BrokerRegistrationChange(broker=values["id"], broker_epoch=values["epoch"], fenced=-1)


def _partition(values: dict[str, Any]) -> records.MetadataRecord:
    return records.Partition(
        topic_id=values["topic_id"],
        partition=values["partition_id"],
        replicas=_assigned(values["replicas"] or ()),
        isr=values["isr"] or (),
        removing_replicas=values["removing_replicas"] or (),
        adding_replicas=values["adding_replicas"] or (),
        leader=values["leader"],
        leader_recovery_state=values.get("leader_recovery_state", records.RECOVERED),
        leader_epoch=values["leader_epoch"],
        partition_epoch=values["partition_epoch"],
        elr=values.get("eligible_leader_replicas") or (),
        last_known_elr=values.get("last_known_elr") or (),
    )


def _partition_change(values: dict[str, Any]) -> records.MetadataRecord:
    return records.PartitionChange(
        topic_id=values["topic_id"],
        partition=values["partition_id"],
        isr=values.get("isr"),
        leader=_unless(_UNCHANGED_LEADER, values.get("leader")),
        replicas=_assigned(values["replicas"]) if values.get("replicas") is not None else None,
        removing_replicas=values.get("removing_replicas"),
        adding_replicas=values.get("adding_replicas"),
        leader_recovery_state=_unless(_UNCHANGED_STATE, values.get("leader_recovery_state")),
        elr=values.get("eligible_leader_replicas"),
        last_known_elr=values.get("last_known_elr"),
    )


def _assigned(replicas: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    if not replicas or len(set(replicas)) < len(replicas):
        raise Quarantined("replicas are empty, or name a broker twice")
    return replicas


def _unless(unchanged: int, value: Any) -> Any:  # noqa: ANN401 - an id or a state
    return None if value == unchanged else value


def _config(values: dict[str, Any]) -> records.MetadataRecord:
    return records.Config(
        resource_type=values["resource_type"],
        resource_name=values["resource_name"],
        key=values["name"],
        value=values["value"],
    )


def _register_controller(values: dict[str, Any]) -> records.MetadataRecord:
    newest = {row["name"]: row["max_supported_version"] for row in values["features"] or ()}
    return records.RegisterController(
        controller=values["controller_id"],
        incarnation_id=values["incarnation_id"],
        newest_metadata_version=newest.get(records.METADATA_VERSION),
    )


def _marker(key: int) -> Callable[[dict[str, Any]], records.MetadataRecord]:
    return lambda _: records.TransactionMarker(marker=key)


_RECORD: Final[dict[int, Callable[[dict[str, Any]], records.MetadataRecord]]] = {
    schemas.REGISTER_BROKER: _register_broker,
    schemas.UNREGISTER_BROKER: _unregister_broker,
    schemas.TOPIC: lambda values: records.Topic(topic=values["name"], topic_id=values["topic_id"]),
    schemas.PARTITION: _partition,
    schemas.CONFIG: _config,
    schemas.PARTITION_CHANGE: _partition_change,
    schemas.FENCE_BROKER: _fence,
    schemas.UNFENCE_BROKER: _unfence,
    schemas.REMOVE_TOPIC: lambda values: records.RemoveTopic(topic_id=values["topic_id"]),
    schemas.FEATURE_LEVEL: lambda values: records.FeatureLevel(feature=values["name"], level=values["feature_level"]),
    schemas.BROKER_REGISTRATION_CHANGE: _registration_change,
    schemas.NO_OP: lambda _: records.NoOp(),
    schemas.BEGIN_TRANSACTION: _marker(schemas.BEGIN_TRANSACTION),
    schemas.END_TRANSACTION: _marker(schemas.END_TRANSACTION),
    schemas.ABORT_TRANSACTION: _marker(schemas.ABORT_TRANSACTION),
    schemas.REGISTER_CONTROLLER: _register_controller,
    schemas.CLEAR_ELR: lambda values: records.ClearElr(topic=values["topic_name"]),
}
