"""Decodes one metadata record to a value of ``contracts.records``; never fails, but returns ``UndecodableRecord``.

The value of a record is: frame version (1), key, version, all three unsigned varints, then a flexible body (KIP-631).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from crc32c import crc32c

from streaming import movement
from streaming.contracts import records
from streaming.contracts.identifiers import Micros, Offset
from streaming.contracts.observations import END_OF_TIME, require
from streaming.errors import InvalidObservation
from streaming.sources.protocol.primitives import INT8, INT16, INT32, INT64, UINT16, ByteReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from streaming.contracts.identifiers import BrokerId

# Record batch v2 (KIP-98) in the metadata log: splitting, checksum, control records.
#
# Two steps, because a response may contain batches that are not committed yet: :func:`split` finds the batches in a
# response, :func:`decode` decodes one of them. :func:`decode_batches` does both, for segments and snapshots.


# base offset, length of what follows, partition leader epoch, magic, CRC-32C of what follows it
_PREFIX: Final = struct.Struct(">qiibI")
# attributes, last offset delta, base timestamp (ms), max timestamp (ms), producer id, epoch, sequence, record count
_HEADER: Final = struct.Struct(">hiqqqhii")
_LENGTH_ENDS_AT: Final = 12
_RECORDS_AT: Final = _PREFIX.size + _HEADER.size
_MAGIC: Final = 2
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_CONTROL: Final = 0x20
_LEADER_CHANGE: Final = 2
_SNAPSHOT_HEADER: Final = 3
# The advice for a record of a newer Kafka, which follows from the record alone: a newer level of metadata.version may
# well bring none that cannot be read.
_UPGRADE: Final = "upgrade isrwatch"


class EncodedBatch(NamedTuple):
    """One batch, not decoded: the offsets of its first and last record, and the leader epoch it was written in."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes


def split(data: bytes) -> Iterator[EncodedBatch]:
    """Split a run of batches.

    Kafka cuts a response at any byte, so an incomplete batch at the end is left out: the next Fetch returns all of it.
    """
    position = 0
    while position + _RECORDS_AT <= len(data):
        base_offset, length, epoch, _, _ = _PREFIX.unpack_from(data, position)
        end = position + _LENGTH_ENDS_AT + length
        if length < _RECORDS_AT - _LENGTH_ENDS_AT or end > len(data):
            return
        last_delta = _HEADER.unpack_from(data, position + _PREFIX.size)[1]
        # The CRC is not verified yet: a corrupt delta must not move the end offset of the log beyond any real one.
        plausible = last_delta if 0 <= last_delta < length else 0
        yield EncodedBatch(base_offset, base_offset + plausible, epoch, data[position:end])
        position = end


def is_intact(batch: EncodedBatch) -> bool:
    """Return whether the checksum is valid; a batch of an unknown format counts as intact, and fails to decode."""
    _, _, _, magic, checksum = _PREFIX.unpack_from(batch.data)
    return bool(magic != _MAGIC or crc32c(batch.data[_PREFIX.size :]) == checksum)


def decode(batch: EncodedBatch) -> records.RecordBatch:
    """Decode one batch. A batch that cannot be decoded becomes one :class:`records.UndecodableRecord`.

    Its bytes are then cut after the header, because the rest may contain credentials. Its timestamp is 0,
    because the time in a damaged header is not to be believed either.
    """
    movement.note()
    attributes, _, base_time, max_time, *_ = _HEADER.unpack_from(batch.data, _PREFIX.size)
    timestamp = Micros(1000 * (max_time if attributes & _LOG_APPEND_TIME else base_time))
    decoded: tuple[records.MetadataRecord, ...]
    try:
        decoded = tuple(_records(batch, attributes))
        require(timestamp < END_OF_TIME, f"batch at offset {batch.base_offset} is of no date: {timestamp} microseconds")
    except InvalidObservation as reason:
        decoded = (records.UndecodableRecord(reason=str(reason), value=batch.data[:_RECORDS_AT]),)
        timestamp = Micros(0)
    return records.RecordBatch(
        base_offset=Offset(batch.base_offset), epoch=batch.epoch, timestamp=timestamp, records=decoded
    )


def decode_batches(data: bytes) -> Iterator[records.RecordBatch]:
    """Decode all complete batches of a segment, a snapshot or a response."""
    return map(decode, split(data))


def last_contained_time(batch: EncodedBatch) -> Micros | None:
    """Return the append time of the newest record that a snapshot contains, from its intact header, else None."""
    attributes = _HEADER.unpack_from(batch.data, _PREFIX.size)[0]
    if not attributes & _CONTROL or not is_intact(batch):
        return None
    for key, value in raw_records(batch):
        kind = ByteReader(key, 2).number(INT16)
        if kind == _SNAPSHOT_HEADER:
            return Micros(1000 * ByteReader(value, 2).number(INT64))
    return None


def _records(batch: EncodedBatch, attributes: int) -> Iterator[records.MetadataRecord]:
    magic = _PREFIX.unpack_from(batch.data)[3]
    if magic != _MAGIC:
        raise InvalidObservation(
            f"batch at offset {batch.base_offset} has magic {magic}, this program reads {_MAGIC}: {_UPGRADE}"
        )
    if not is_intact(batch):
        raise InvalidObservation(f"batch at offset {batch.base_offset} does not match its checksum")
    if attributes & _COMPRESSION:
        raise InvalidObservation(f"batch at offset {batch.base_offset} is compressed, which no controller does")
    for key, value in raw_records(batch):
        yield _control_record(key, value, batch.epoch) if attributes & _CONTROL else decode_record(value)


def raw_records(batch: EncodedBatch) -> Iterator[tuple[bytes, bytes]]:
    """Return key and value of each record.

    Invariant: the records of a batch of the metadata log have consecutive offsets: record ``i`` is at base offset + i.
    """
    count = _HEADER.unpack_from(batch.data, _PREFIX.size)[-1]
    reader = ByteReader(batch.data, _RECORDS_AT)
    for index in range(count):
        end = reader.varint() + reader.position
        reader.number(INT8)  # attributes of a record: unused
        reader.varint()  # timestamp delta: the controller appends all records of a batch at once
        if reader.varint() != index:
            raise InvalidObservation(f"batch at offset {batch.base_offset} skips offsets")
        key, value = _bytes(reader), _bytes(reader)
        if not reader.position <= end <= len(batch.data):
            raise InvalidObservation(f"record {index} of the batch at offset {batch.base_offset} has a wrong length")
        reader.position = end
        yield key, value


def _bytes(reader: ByteReader) -> bytes:
    length = reader.varint()
    return b"" if length < 0 else reader.raw(length)


def _control_record(key: bytes, value: bytes, epoch: int) -> records.MetadataRecord:
    """Decode a control record: the key is version and type; the value of LeaderChange is version, leader, ..."""
    header = ByteReader(key)
    version, kind = header.number(INT16), header.number(INT16)
    if kind == _LEADER_CHANGE:
        return records.LeaderChange(controller=ByteReader(value, 2).number(INT32), epoch=epoch)
    # Snapshot header and footer, KRaft version, voters. Negative, because the keys of data records start at 0, too.
    return records.SkippedRecord(api_key=-kind, version=version)


# Every metadata record as a table (KIP-631 and later, Apache Kafka 4.4): key, newest supported version, fields, tags.
#
# Names are Kafka's, in snake case. A field is (name, type) or (name, type, first version that has it). Types: int8,
# int16, uint16, int32, int64, bool, uuid, string, ``string?`` (nullable), ``int32[]``, ``uuid[]``, or a tuple of
# fields (an array of structures).


FieldType: TypeAlias = "str | tuple[Any, ...]"
FieldRow: TypeAlias = "tuple[str, FieldType] | tuple[str, FieldType, int]"


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """One record type: fields in wire order, and tagged fields by tag."""

    name: str
    newest: int
    fields: tuple[FieldRow, ...] = ()
    tags: dict[int, tuple[str, FieldType]] = field(default_factory=dict)


REGISTER_BROKER: Final = 0
UNREGISTER_BROKER: Final = 1
TOPIC: Final = 2
PARTITION: Final = 3
CONFIG: Final = 4
PARTITION_CHANGE: Final = 5
FENCE_BROKER: Final = 7
UNFENCE_BROKER: Final = 8
REMOVE_TOPIC: Final = 9
FEATURE_LEVEL: Final = 12
BROKER_REGISTRATION_CHANGE: Final = 17
NO_OP: Final = 20
BEGIN_TRANSACTION: Final = 23
END_TRANSACTION: Final = 24
ABORT_TRANSACTION: Final = 25
REGISTER_CONTROLLER: Final = 27
CLEAR_ELR: Final = 28
UNREGISTER_CONTROLLER: Final = 29

_END_POINTS: Final = (("name", "string"), ("host", "string"), ("port", "uint16"), ("security_protocol", "int16"))
_FEATURES: Final = (("name", "string"), ("min_supported_version", "int16"), ("max_supported_version", "int16"))

SCHEMAS: Final[dict[int, RecordSchema]] = {
    REGISTER_BROKER: RecordSchema(
        "RegisterBroker",
        4,
        (
            ("broker_id", "int32"),
            ("is_migrating_zk_broker", "bool", 2),
            ("incarnation_id", "uuid"),
            ("broker_epoch", "int64"),
            ("end_points", _END_POINTS),
            ("features", _FEATURES),
            ("rack", "string?"),
            ("fenced", "bool"),
            ("in_controlled_shutdown", "bool", 1),
        ),
        {0: ("log_dirs", "uuid[]"), 1: ("cordoned_log_dirs", "uuid[]")},
    ),
    UNREGISTER_BROKER: RecordSchema("UnregisterBroker", 0, (("broker_id", "int32"), ("broker_epoch", "int64"))),
    TOPIC: RecordSchema("Topic", 0, (("name", "string"), ("topic_id", "uuid"))),
    PARTITION: RecordSchema(
        "Partition",
        2,
        (
            ("partition_id", "int32"),
            ("topic_id", "uuid"),
            ("replicas", "int32[]"),
            ("isr", "int32[]"),
            ("removing_replicas", "int32[]"),
            ("adding_replicas", "int32[]"),
            ("leader", "int32"),
            ("leader_epoch", "int32"),
            ("partition_epoch", "int32"),
            ("directories", "uuid[]", 1),
        ),
        {
            0: ("leader_recovery_state", "int8"),
            1: ("eligible_leader_replicas", "int32[]"),
            2: ("last_known_elr", "int32[]"),
        },
    ),
    CONFIG: RecordSchema(
        "Config", 0, (("resource_type", "int8"), ("resource_name", "string"), ("name", "string"), ("value", "string?"))
    ),
    PARTITION_CHANGE: RecordSchema(
        "PartitionChange",
        2,
        (("partition_id", "int32"), ("topic_id", "uuid")),
        {
            0: ("isr", "int32[]"),
            1: ("leader", "int32"),
            2: ("replicas", "int32[]"),
            3: ("removing_replicas", "int32[]"),
            4: ("adding_replicas", "int32[]"),
            5: ("leader_recovery_state", "int8"),
            6: ("eligible_leader_replicas", "int32[]"),
            7: ("last_known_elr", "int32[]"),
            8: ("directories", "uuid[]"),
        },
    ),
    FENCE_BROKER: RecordSchema("FenceBroker", 0, (("id", "int32"), ("epoch", "int64"))),
    UNFENCE_BROKER: RecordSchema("UnfenceBroker", 0, (("id", "int32"), ("epoch", "int64"))),
    REMOVE_TOPIC: RecordSchema("RemoveTopic", 0, (("topic_id", "uuid"),)),
    FEATURE_LEVEL: RecordSchema("FeatureLevel", 0, (("name", "string"), ("feature_level", "int16"))),
    BROKER_REGISTRATION_CHANGE: RecordSchema(
        "BrokerRegistrationChange",
        3,
        (("broker_id", "int32"), ("broker_epoch", "int64")),
        {
            0: ("fenced", "int8"),
            1: ("in_controlled_shutdown", "int8"),
            2: ("log_dirs", "uuid[]"),
            3: ("cordoned_log_dirs", "uuid[]"),
        },
    ),
    NO_OP: RecordSchema("NoOp", 0),
    BEGIN_TRANSACTION: RecordSchema("BeginTransaction", 0, tags={0: ("name", "string?")}),
    END_TRANSACTION: RecordSchema("EndTransaction", 0),
    ABORT_TRANSACTION: RecordSchema("AbortTransaction", 0, tags={0: ("reason", "string?")}),
    REGISTER_CONTROLLER: RecordSchema(
        "RegisterController",
        0,
        (
            ("controller_id", "int32"),
            ("incarnation_id", "uuid"),
            ("zk_migration_ready", "bool"),
            ("end_points", _END_POINTS),
            ("features", _FEATURES),
        ),
    ),
    CLEAR_ELR: RecordSchema("ClearElr", 0, (("topic_name", "string"),)),
    UNREGISTER_CONTROLLER: RecordSchema("UnregisterController", 0, (("controller_id", "int32"),)),
}

# Secrets, or unrelated to replication: their body is never decoded, in any version.
SKIPPED: Final[dict[int, str]] = {
    10: "DelegationToken",
    11: "UserScramCredential",
    14: "ClientQuota",
    15: "ProducerIds",
    18: "AccessControlEntry",
    19: "RemoveAccessControlEntry",
    21: "ZkMigrationState",
    22: "RemoveUserScramCredential",
    26: "RemoveDelegationToken",
}

# An unreadable record of these types leaves the state of topics, partitions, brokers or configurations unknown; so does
# an unreadable marker, because the records of its transaction may or may not take effect. A type that does not exist
# here is not one of them: Kafka adds types for matters of their own.
OF_STATE: Final = frozenset(SCHEMAS) - {FEATURE_LEVEL, NO_OP, REGISTER_CONTROLLER, UNREGISTER_CONTROLLER}
# The levels of metadata.version whose records a test compares with Kafka's own dump of them, and the release of each.
TESTED: Final = {33: "4.4.0", 30: "4.3.1", 21: "3.9.1", 14: "3.6.2"}


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
    """Decode one record; an unknown type or version, or an invalid body, gives :class:`records.UndecodableRecord`."""
    reader, kept = ByteReader(value), value
    key = None
    try:
        key, version = _header(reader)
        if key in SKIPPED:
            return records.SkippedRecord(api_key=key, version=version)
        if key == CONFIG or key not in SCHEMAS:
            kept = value[: reader.position]  # a password may be in it, which must not reach the quarantine
        return _RECORD[_supported(key, version)](read_fields(reader, key, version))
    except InvalidObservation as reason:
        return records.UndecodableRecord(reason=str(reason), value=kept, hides_state=key is None or key in OF_STATE)


def _header(reader: ByteReader) -> tuple[int, int]:
    frame = reader.unsigned_varint()
    if frame != _FRAME_VERSION:
        raise InvalidObservation(f"metadata record frame {frame}, this program reads {_FRAME_VERSION}: {_UPGRADE}")
    return reader.unsigned_varint(), reader.unsigned_varint()


def read_fields(reader: ByteReader, key: int, version: int) -> dict[str, Any]:
    """Decode a body by its schema: Kafka's field name to value, without absent tagged fields.

    Raises:
        InvalidObservation: the bytes do not match the schema.
    """
    schema = SCHEMAS[key]
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
    schema = SCHEMAS.get(key)
    if schema is None:
        raise InvalidObservation(f"unknown metadata record type {key} version {version}: {_UPGRADE}")
    if version > schema.newest:
        raise InvalidObservation(
            f"{schema.name} version {version}, this program reads up to {schema.newest}: {_UPGRADE}"
        )
    return key


def _require_end(reader: ByteReader, name: str) -> None:
    if reader.remaining:
        raise InvalidObservation(f"{name} has {reader.remaining} bytes too many")


def _read(reader: ByteReader, kind: FieldType) -> Any:  # noqa: ANN401 - any field of any record
    if isinstance(kind, str):
        return _READ[kind](reader)

    def structure() -> dict[str, Any]:
        values = {name: _read(reader, inner) for name, inner in kind}
        reader.tags()
        return values

    return reader.array(structure)


def _register_broker(values: dict[str, Any]) -> records.MetadataRecord:
    end_points = _end_points(values["end_points"] or ())
    listed = min(end_points, default=None)
    return records.RegisterBroker(
        broker=values["broker_id"],
        broker_epoch=values["broker_epoch"],
        incarnation_id=values["incarnation_id"],
        rack=values["rack"],
        fenced=values["fenced"],
        in_controlled_shutdown=values.get("in_controlled_shutdown", False),
        log_dirs=values.get("log_dirs") or (),
        host=None if listed is None else listed.host,
        port=None if listed is None else listed.port,
        end_points=end_points,
        newest_metadata_version=_newest_metadata_version(values),
    )


def _end_points(rows: Iterable[Mapping[str, Any]]) -> tuple[records.EndPoint, ...]:
    points = (records.EndPoint(row["name"], row["host"], row["port"], row["security_protocol"]) for row in rows)
    return tuple(sorted(points))  # they come in any order, and in another one in a snapshot


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
        directories=values.get("directories"),
    )


def _assigned(replicas: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    if not replicas or len(set(replicas)) < len(replicas):
        raise InvalidObservation("replicas are empty, or name a broker twice")
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
    return records.RegisterController(
        controller=values["controller_id"],
        incarnation_id=values["incarnation_id"],
        newest_metadata_version=_newest_metadata_version(values),
        end_points=_end_points(values["end_points"] or ()),
    )


def _newest_metadata_version(values: dict[str, Any]) -> int | None:
    """Return the newest level of metadata.version that a registration supports; None where it does not say."""
    newest: dict[str, int] = {row["name"]: row["max_supported_version"] for row in values["features"] or ()}
    return newest.get(records.METADATA_VERSION)


def _marker(key: int) -> Callable[[dict[str, Any]], records.MetadataRecord]:
    return lambda _: records.TransactionMarker(marker=key)


_RECORD: Final[dict[int, Callable[[dict[str, Any]], records.MetadataRecord]]] = {
    REGISTER_BROKER: _register_broker,
    UNREGISTER_BROKER: _unregister_broker,
    TOPIC: lambda values: records.Topic(topic=values["name"], topic_id=values["topic_id"]),
    PARTITION: _partition,
    CONFIG: _config,
    PARTITION_CHANGE: _partition_change,
    FENCE_BROKER: _fence,
    UNFENCE_BROKER: _unfence,
    REMOVE_TOPIC: lambda values: records.RemoveTopic(topic_id=values["topic_id"]),
    FEATURE_LEVEL: lambda values: records.FeatureLevel(feature=values["name"], level=values["feature_level"]),
    BROKER_REGISTRATION_CHANGE: _registration_change,
    NO_OP: lambda _: records.NoOp(),
    BEGIN_TRANSACTION: _marker(BEGIN_TRANSACTION),
    END_TRANSACTION: _marker(END_TRANSACTION),
    ABORT_TRANSACTION: _marker(ABORT_TRANSACTION),
    REGISTER_CONTROLLER: _register_controller,
    CLEAR_ELR: lambda values: records.ClearElr(topic=values["topic_name"]),
    UNREGISTER_CONTROLLER: lambda values: records.UnregisterController(controller=values["controller_id"]),
}
