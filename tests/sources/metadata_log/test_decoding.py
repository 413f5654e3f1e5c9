"""Bytes of metadata records and batches: byte-exact against what a real Kafka 4.3.1 controller wrote."""

from __future__ import annotations

import json
import re
import struct
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts import records
from streaming.sources.metadata_log import decoding
from streaming.sources.metadata_log.decoding import decode_record, read_fields
from streaming.sources.protocol.primitives import ByteReader
from tests.examples import examples
from tests.sources.metadata_log.conftest import FIXTURES, FRAMES, NO_OP, SEGMENT, SNAPSHOT, batch

TOPIC_ID = bytes(range(16))
ONE_TWO_THREE = "04 00000001 00000002 00000003"


def snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


KINDS = {f"{snake(one.name).upper()}_RECORD": key for key, one in decoding.SCHEMAS.items()}


def plain(value: Any) -> Any:
    """Spell decoded fields as the recording does: lists, and structures with snake-case names."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {snake(name): plain(item) for name, item in value.items()} if isinstance(value, dict) else value


def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / "records.jsonl").read_text().splitlines()]


def test_every_field_of_every_record_equals_what_kafkas_own_tool_printed() -> None:
    raw = {
        frame.base_offset + index: value
        for frame in FRAMES
        for index, (_, value) in enumerate(decoding.raw_records(frame))
    }
    assert len(raw) == 192
    for wanted, (offset, value) in zip(recorded(), raw.items(), strict=True):
        if wanted["type"] == "LEADER_CHANGE":
            continue
        reader = ByteReader(value)
        frame, key, version = (reader.unsigned_varint() for _ in range(3))
        fields = plain(read_fields(reader, key, version))
        envelope = {name: wanted.pop(name) for name in ("type", "version", "offset", "epoch", "ts", "batch")}
        assert (1, KINDS[envelope["type"]], envelope["version"], envelope["offset"]) == (frame, key, version, offset)
        assert plain(wanted) == fields


def test_offsets_epochs_and_times_of_batches_are_those_of_the_log() -> None:
    expected = [(line["offset"], line["epoch"], line["ts"] * 1000) for line in recorded()]
    found = [
        (batch.base_offset + index, batch.epoch, batch.timestamp)
        for batch in decoding.decode_batches(SEGMENT)
        for index in range(len(batch.records))
    ]
    assert expected == found


def test_the_first_record_names_the_controller_and_its_epoch() -> None:
    first = next(decoding.decode_batches(SEGMENT))
    assert (records.LeaderChange(controller=101, epoch=1),) == first.records


def test_registrations_say_what_the_node_supports_and_one_may_be_deleted() -> None:
    found = [record for batch in decoding.decode_batches(SEGMENT) for record in batch.records]
    registered = [one for one in found if isinstance(one, records.RegisterBroker | records.RegisterController)]
    assert {type(one): one.newest_metadata_version for one in registered} == {
        records.RegisterBroker: 30, records.RegisterController: 30,
    }  # fmt: skip
    deleted = decoding.decode_record(bytes((1, decoding.UNREGISTER_CONTROLLER, 0, 0, 0, 0, 102, 0)))
    assert deleted == records.UnregisterController(controller=102)


def test_a_snapshot_of_three_thousand_partitions_is_read_whole() -> None:
    frames = tuple(decoding.split(SNAPSHOT))
    found = [record for frame in frames for record in decoding.decode(frame).records]
    partitions = [record for record in found if isinstance(record, records.Partition)]
    assert len(found) == 3043
    assert len(partitions) == 3000
    assert sum(isinstance(one, records.Topic) for one in found) == 30
    assert not [record for record in found if isinstance(record, records.UndecodableRecord)]
    assert {(1, 2, 3)} == {tuple(sorted(one.replicas)) for one in partitions}
    assert decoding.last_contained_time(frames[0]) == 1795249922910000


change = partial(records.PartitionChange, topic_id="AAECAwQFBgcICQoLDA0ODw", partition=7)
registration = partial(records.BrokerRegistrationChange, broker=2, broker_epoch=41)
ID = TOPIC_ID.hex()
OF_BROKER_2 = "00000002 0000000000000029"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"010500 00000007 {ID} 01 00 09 03 00000001 00000002", change(isr=(1, 2))),
        (
            f"010502 00000007 {ID} 03 00 05 02 00000003 01 04 00000003 06 05 02 00000001",
            change(isr=(3,), leader=3, elr=(1,)),
        ),
        (f"010502 00000007 {ID} 02 01 04 fffffffe 05 01 ff", change()),
        (f"010502 00000007 {ID} 01 06 01 01", change(elr=())),
        (f"011101 {OF_BROKER_2} 01 00 01 01", registration(fenced=1)),
        (f"011101 {OF_BROKER_2} 02 00 01 01 09 02 abcd", registration(fenced=1)),  # a tag of a newer minor version
        (f"010700 {OF_BROKER_2} 00", registration(fenced=1)),
        (f"010800 {OF_BROKER_2} 00", registration(fenced=-1)),
        (
            f"010300 00000000 {ID} {ONE_TWO_THREE} {ONE_TWO_THREE} 01 01 00000001 {bytes(9).hex()}",
            records.Partition(
                topic_id="AAECAwQFBgcICQoLDA0ODw", partition=0, replicas=(1, 2, 3), isr=(1, 2, 3),
                leader=1, leader_epoch=0, partition_epoch=0,
            ),
        ),
        (
            "010400 02 07 6f7264657273 02 6b 00 00",
            records.Config(resource_type=2, resource_name="orders", key="k", value=None),
        ),
        (f"010100 {OF_BROKER_2} 00", records.UnregisterBroker(broker=2, broker_epoch=41)),
        ("011d00 00000066 00", records.UnregisterController(controller=102)),
        (f"010900 {ID} 00", records.RemoveTopic(topic_id="AAECAwQFBgcICQoLDA0ODw")),
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
    assert decoded.reason == "unknown metadata record type 99 version 0: upgrade isrwatch"
    assert decoded.value == b"\x01\x63\x00"


def _partition(replicas: str) -> bytes:
    return bytes.fromhex(f"010300 00000000 {ID} {replicas} 02 00000001 01 01 00000001 {bytes(9).hex()}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x02\x14\x00\x00", "metadata record frame 2, this program reads 1: upgrade isrwatch"),
        (b"\x01\x05\x03\x00", "PartitionChange version 3, this program reads up to 2: upgrade isrwatch"),
        (b"\x01\x14\x00\x00\x00", "NoOp has 1 bytes too many"),
        (b"\x01\x02\x00\x05ab", "ends at byte 6, inside a value that begins at byte 4"),
        (b"\x01\x02\x00\x02\xff" + TOPIC_ID + b"\x00", "a string before byte 5 is not UTF-8"),
        (b"\x01\x02\x00\x00" + TOPIC_ID + b"\x00", "a string at byte 4 is null"),
        (_partition("03 00000001 00000001"), "replicas are empty, or name a broker twice"),
        (_partition("01"), "replicas are empty, or name a broker twice"),
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


@given(st.binary(max_size=80))
def test_no_bytes_make_the_decoder_fail(value: bytes) -> None:
    assert isinstance(decode_record(value), records.MetadataRecord)


@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_damaged_byte_in_a_recorded_batch_is_noticed(data: st.DataObject) -> None:
    frame = data.draw(st.sampled_from(FRAMES))
    place = data.draw(st.integers(min_value=17, max_value=len(frame.data) - 1))  # what the checksum covers, and itself
    change = data.draw(st.integers(min_value=1, max_value=255))
    broken = bytearray(frame.data)
    broken[place] ^= change
    (found,) = decoding.decode(frame._replace(data=bytes(broken))).records
    assert isinstance(found, records.UndecodableRecord)
    assert f"batch at offset {frame.base_offset} does not match its checksum" == found.reason
    assert len(found.value) <= 61


@given(cut=st.integers(min_value=0, max_value=15_487))
def test_an_incomplete_batch_at_the_end_is_left_out(cut: int) -> None:
    ends = accumulate(len(frame.data) for frame in FRAMES)
    whole = [frame for frame, end in zip(FRAMES, ends, strict=True) if end <= cut]
    assert whole == list(decoding.split(SEGMENT[:cut]))


@pytest.mark.parametrize(
    ("attributes", "magic", "reason"),
    [(4, 2, "batch at offset 7 is compressed, which no controller does"), (0, 1, "batch at offset 7 has magic 1, ")],
)
def test_a_batch_that_no_controller_writes_is_undecodable_as_a_whole(attributes: int, magic: int, reason: str) -> None:
    frame = batch(7, 3, NO_OP, attributes=attributes)
    data = bytearray(frame.data)
    struct.pack_into(">b", data, 16, magic)
    (found,) = decoding.decode(frame._replace(data=bytes(data))).records
    assert isinstance(found, records.UndecodableRecord)
    assert found.reason.startswith(reason)


def test_the_time_of_a_batch_that_cannot_be_read_is_not_believed() -> None:
    frame = batch(7, 3, NO_OP)
    damaged = bytearray(frame.data)
    damaged[27] ^= 0x10  # the highest byte of its time
    assert decoding.decode(frame._replace(data=bytes(damaged))).timestamp == 0
    found = decoding.decode(batch(7, 3, NO_OP, timestamp=253_402_300_800_000))
    assert found.timestamp == 0
    assert isinstance(found.records[0], records.UndecodableRecord)
    assert found.records[0].reason.startswith("batch at offset 7 is of no date")


def test_a_damaged_header_of_a_snapshot_names_no_time() -> None:
    header = next(decoding.split(SNAPSHOT))
    assert decoding.last_contained_time(header) is not None
    for place in range(17, len(header.data)):
        damaged = bytearray(header.data)
        damaged[place] ^= 0x7F
        assert decoding.last_contained_time(header._replace(data=bytes(damaged))) is None
