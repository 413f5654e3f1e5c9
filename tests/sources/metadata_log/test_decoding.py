"""Bytes of metadata records and batches: byte-exact against what a real Kafka 4.3.1 controller wrote."""

from __future__ import annotations

import gzip
import json
import re
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts import records
from streaming.sources.metadata_log import decoding
from streaming.sources.metadata_log.decoding import decode_record, read_fields
from streaming.sources.protocol.primitives import ByteReader
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streaming.sources.metadata_log.decoding import EncodedBatch

KINDS = {f"{re.sub('(?<!^)(?=[A-Z])', '_', one.name).upper()}_RECORD": key for key, one in decoding.SCHEMAS.items()}
TOPIC_ID = bytes(range(16))
ONE_TWO_THREE = "04 00000001 00000002 00000003"


def snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


def plain(value: Any) -> Any:
    """Spell decoded fields as the recording does: lists, and structures with snake-case names."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {snake(name): plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def raw_values(frames: tuple[EncodedBatch, ...]) -> list[tuple[int, bytes]]:
    """Give (offset, value) of each record, control records included."""
    return [
        (frame.base_offset + index, value)
        for frame in frames
        for index, (_, value) in enumerate(decoding._raw_records(frame))
    ]


def test_every_field_of_every_record_equals_what_kafkas_own_tool_printed(
    frames: tuple[EncodedBatch, ...], fixtures: Path
) -> None:
    expected = [json.loads(line) for line in (fixtures / "records.jsonl").read_text().splitlines()]
    found = raw_values(frames)
    assert len(expected) == len(found) == 192
    for wanted, (offset, value) in zip(expected, found, strict=True):
        if wanted["type"] == "LEADER_CHANGE":
            continue
        reader = ByteReader(value)
        frame, key, version = (reader.unsigned_varint() for _ in range(3))
        fields = plain(read_fields(reader, key, version))
        envelope = {name: wanted.pop(name) for name in ("type", "version", "offset", "epoch", "ts", "batch")}
        assert (1, KINDS[envelope["type"]], envelope["version"], envelope["offset"]) == (frame, key, version, offset)
        assert plain(wanted) == fields


def test_offsets_epochs_and_times_of_batches_are_those_of_the_log(segment: bytes, fixtures: Path) -> None:
    lines = [json.loads(line) for line in (fixtures / "records.jsonl").read_text().splitlines()]
    expected = [(line["offset"], line["epoch"], line["ts"] * 1000) for line in lines]
    found = [
        (batch.base_offset + index, batch.epoch, batch.timestamp)
        for batch in decoding.decode_batches(segment)
        for index in range(len(batch.records))
    ]
    assert expected == found


def test_a_recorded_change_becomes_a_value_with_unchanged_fields_none(segment: bytes) -> None:
    first = next(
        record
        for batch in decoding.decode_batches(segment)
        for record in batch.records
        if isinstance(record, records.PartitionChange)
    )
    expected = records.PartitionChange(topic_id="9POfdbjRRHqqznT0RDV0DQ", partition=0, isr=(1, 2))
    assert expected == first


def test_the_first_record_names_the_controller_and_its_epoch(segment: bytes) -> None:
    first = next(decoding.decode_batches(segment))
    assert (records.LeaderChange(controller=101, epoch=1),) == first.records


def test_a_snapshot_of_three_thousand_partitions_is_read_whole(fixtures: Path) -> None:
    data = gzip.decompress((fixtures / "snapshot.checkpoint.gz").read_bytes())
    frames = tuple(decoding.split(data))
    found = [record for frame in frames for record in decoding.decode(frame).records]
    partitions = [record for record in found if isinstance(record, records.Partition)]
    assert len(found) == 3043
    assert len(partitions) == 3000
    assert sum(isinstance(one, records.Topic) for one in found) == 30
    assert not [record for record in found if isinstance(record, records.UndecodableRecord)]
    assert {(1, 2, 3)} == {tuple(sorted(one.replicas)) for one in partitions}
    assert decoding.last_contained_time(frames[0]) == 1795249922910000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            "010500 00000007 000102030405060708090a0b0c0d0e0f 01 00 09 03 00000001 00000002",
            records.PartitionChange(topic_id="AAECAwQFBgcICQoLDA0ODw", partition=7, isr=(1, 2)),
        ),
        (
            "010502 00000007 000102030405060708090a0b0c0d0e0f 03 00 05 02 00000003 01 04 00000003 06 05 02 00000001",
            records.PartitionChange(
                topic_id="AAECAwQFBgcICQoLDA0ODw", partition=7, isr=(3,), leader=3, elr=(1,)
            ),
        ),
        (
            "010502 00000007 000102030405060708090a0b0c0d0e0f 02 01 04 fffffffe 05 01 ff",
            records.PartitionChange(topic_id="AAECAwQFBgcICQoLDA0ODw", partition=7),
        ),
        (
            "010502 00000007 000102030405060708090a0b0c0d0e0f 01 06 01 01",
            records.PartitionChange(topic_id="AAECAwQFBgcICQoLDA0ODw", partition=7, elr=()),
        ),
        (
            "011101 00000002 0000000000000029 01 00 01 01",
            records.BrokerRegistrationChange(broker=2, broker_epoch=41, fenced=1),
        ),
        (
            "010700 00000002 0000000000000029 00",
            records.BrokerRegistrationChange(broker=2, broker_epoch=41, fenced=1),
        ),
        (
            "010800 00000002 0000000000000029 00",
            records.BrokerRegistrationChange(broker=2, broker_epoch=41, fenced=-1),
        ),
        (
            f"010300 00000000 {TOPIC_ID.hex()} {ONE_TWO_THREE} {ONE_TWO_THREE} 01 01 00000001 {bytes(9).hex()}",
            records.Partition(
                topic_id="AAECAwQFBgcICQoLDA0ODw", partition=0, replicas=(1, 2, 3), isr=(1, 2, 3),
                leader=1, leader_epoch=0, partition_epoch=0,
            ),
        ),
        (
            "010400 02 07 6f7264657273 02 6b 00 00",
            records.Config(resource_type=2, resource_name="orders", key="k", value=None),
        ),
        ("010100 00000002 0000000000000029 00", records.UnregisterBroker(broker=2, broker_epoch=41)),
        ("010900 000102030405060708090a0b0c0d0e0f 00", records.RemoveTopic(topic_id="AAECAwQFBgcICQoLDA0ODw")),
        ("011900 01 00 03 03 6e6f", records.TransactionMarker(marker=25)),
    ],
)  # fmt: skip
def test_known_bytes_give_the_known_record(value: str, expected: records.MetadataRecord) -> None:
    assert expected == decode_record(bytes.fromhex(value))


@pytest.mark.parametrize("key", sorted(decoding.SKIPPED))
def test_a_secret_record_is_never_looked_into_whatever_its_version(key: int) -> None:
    assert records.SkippedRecord(api_key=key, version=9) == decode_record(bytes([1, key, 9]) + b"password")


def test_of_a_record_of_an_unknown_type_its_header_alone_is_kept() -> None:
    decoded = decode_record(b"\x01\x63\x00" + b"perhaps a password")

    assert isinstance(decoded, records.UndecodableRecord)
    assert (decoded.reason, decoded.value) == ("unknown metadata record type 99 version 0", b"\x01\x63\x00")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x02\x14\x00\x00", "metadata record frame 2, this program reads 1"),
        (b"\x01\x05\x03\x00", "PartitionChange version 3, this program reads up to 2"),
        (b"\x01\x14\x00\x00\x00", "NoOp has 1 bytes too many"),
        (b"\x01\x02\x00\x05ab", "ends at byte 6, inside a value that begins at byte 4"),
        (b"\x01\x02\x00\x02\xff" + TOPIC_ID + b"\x00", "a string before byte 5 is not UTF-8"),
        (b"\x01\x02\x00\x00" + TOPIC_ID + b"\x00", "a string at byte 4 is null"),
        (b"\xff" * 12, "a varint at byte 10 does not end"),
        (b"", "ends at byte 0, inside a value that begins at byte 0"),
    ],
)
def test_what_cannot_be_read_comes_back_whole_with_the_reason(value: bytes, reason: str) -> None:
    harmless = "unknown metadata record type" in reason or reason.startswith("NoOp")
    assert records.UndecodableRecord(reason=reason, value=value, hides_state=not harmless) == decode_record(value)


def test_a_configuration_that_cannot_be_read_leaves_no_bytes_behind() -> None:
    found = decode_record(bytes.fromhex("010407") + b"keystore.password=secret")
    assert isinstance(found, records.UndecodableRecord)
    assert bytes.fromhex("010407") == found.value


def test_a_tag_of_a_newer_minor_version_is_passed_over() -> None:
    value = bytes.fromhex("011101 00000002 0000000000000029 02 00 01 01 09 02 abcd")
    expected = records.BrokerRegistrationChange(broker=2, broker_epoch=41, fenced=1)
    assert expected == decode_record(value)


@given(st.binary(max_size=80))
def test_no_bytes_make_the_decoder_fail(value: bytes) -> None:
    assert isinstance(decode_record(value), records.MetadataRecord)


@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_damaged_byte_in_a_recorded_batch_is_noticed(frames: tuple[EncodedBatch, ...], data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(frames))
    place = data.draw(st.integers(min_value=17, max_value=len(frame.data) - 1))  # what the checksum covers, and itself
    change = data.draw(st.integers(min_value=1, max_value=255))
    broken = bytearray(frame.data)
    broken[place] ^= change
    (found,) = decoding.decode(frame._replace(data=bytes(broken))).records
    assert isinstance(found, records.UndecodableRecord)
    assert f"batch at offset {frame.base_offset} does not match its checksum" == found.reason
    assert len(found.value) <= 61


@given(cut=st.integers(min_value=0, max_value=15_487))
def test_an_incomplete_batch_at_the_end_is_left_out(segment: bytes, frames: tuple[EncodedBatch, ...], cut: int) -> None:
    whole = [frame for frame, end in zip(frames, ends(frames), strict=True) if end <= cut]
    assert whole == list(decoding.split(segment[:cut]))


def ends(frames: tuple[EncodedBatch, ...]) -> list[int]:
    total, found = 0, []
    for frame in frames:
        total += len(frame.data)
        found.append(total)
    return found


@pytest.mark.parametrize(
    ("attributes", "magic", "reason"),
    [(4, 2, "batch at offset 7 is compressed, which no controller does"), (0, 1, "batch at offset 7 has magic 1, ")],
)
def test_a_batch_that_no_controller_writes_is_undecodable_as_a_whole(
    make_batch: Callable[..., EncodedBatch], attributes: int, magic: int, reason: str
) -> None:
    frame = make_batch(7, 3, b"\x01\x14\x00\x00", attributes=attributes)
    data = bytearray(frame.data)
    struct.pack_into(">b", data, 16, magic)
    (found,) = decoding.decode(frame._replace(data=bytes(data))).records
    assert isinstance(found, records.UndecodableRecord)
    assert found.reason.startswith(reason)
