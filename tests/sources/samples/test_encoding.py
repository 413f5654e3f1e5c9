"""What we encode and decode ourselves is as kafka-python does it, also with tagged fields of a newer broker."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

from streaming.errors import ConnectionRefused
from streaming.sources.permissions import PermissionDenied
from streaming.sources.protocol.connection import unsigned_varint
from streaming.sources.protocol.offset_messages import LOG_END, LOG_START, ListedOffsets, OffsetSpec, list_offsets
from streaming.sources.samples.directories import describe_directories

NAMES = st.text("ab", min_size=1, max_size=3)
OFFSETS = st.integers(-1, 2**62)


class Answering:
    """A connection to a node that supports one version, and gives one response."""

    def __init__(self, response: Any, version: int, *, changed: Callable[[bytes], bytes] = lambda data: data) -> None:
        response.with_header(correlation_id=1)
        self.data = changed(response.encode(header=True))
        self._version = version
        self.sent = b""

    def newest(self, _key: int, supported: int, _name: str = "") -> int:
        return min(supported, self._version)

    required = newest

    def call(self, request: Any, response: Any, read: Callable[[Any], Any]) -> Any:
        self.sent = as_sent(request)
        return read(response.decode(self.data, version=request.API_VERSION, header=True))


def as_sent(request: Any) -> bytes:
    """Encode a request as kafka-python sends it."""
    request.with_header(correlation_id=1, client_id="isrwatch")
    encoded: bytes = request.encode(header=True, framed=True)
    return encoded


def offsets_response(version: int, topics: dict[str, dict[int, tuple[int, int]]]) -> Any:
    response: Any = ListOffsetsResponse
    topic = response.ListOffsetsTopicResponse

    def part(number: int, error: int, offset: int) -> Any:
        of_error = {"partition_index": number, "error_code": error, "timestamp": -1}
        return topic.ListOffsetsPartitionResponse(**of_error, offset=offset, leader_epoch=3)

    listed = [
        topic(name=name, partitions=[part(number, *said) for number, said in parts.items()])
        for name, parts in topics.items()
    ]
    return response(version=version, throttle_time_ms=0, topics=listed)


@given(
    version=st.sampled_from([6, 7]),
    topics=st.dictionaries(
        NAMES, st.dictionaries(st.integers(0, 400), st.tuples(st.sampled_from([0, 3, 6]), OFFSETS), max_size=300)
    ),
)
def test_offsets_are_decoded(version: int, topics: dict[str, dict[int, tuple[int, int]]]) -> None:
    asked = {name: list(parts) for name, parts in topics.items()}
    listed = list_offsets(Answering(offsets_response(version, topics), version), LOG_END, asked)  # type: ignore[arg-type]
    assert listed == ListedOffsets({
        name: {number: offset for number, (error, offset) in parts.items() if not error and offset >= 0}
        for name, parts in topics.items()
    })  # fmt: skip


@pytest.mark.parametrize("spec", [LOG_END, LOG_START, OffsetSpec(-1, -1, 1)])
def test_a_request_is_encoded(spec: OffsetSpec) -> None:
    wanted = {"orders": [0, 5, 200], "a" * 200: [1]}
    answering = Answering(offsets_response(7, {}), 7)
    list_offsets(answering, spec, wanted)  # type: ignore[arg-type]
    request: Any = ListOffsetsRequest
    topic = request.ListOffsetsTopic

    def part(number: int) -> Any:
        return topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=spec.timestamp)

    topics = [topic(name=name, partitions=[*map(part, numbers)]) for name, numbers in wanted.items()]
    expected = request(version=7, replica_id=spec.replica, isolation_level=spec.isolation, topics=topics)
    assert answering.sent == as_sent(expected)


def test_tagged_fields_are_skipped() -> None:
    """As a newer broker may add them to any version (KIP-482)."""
    record = offsets_response(7, {"t": {0: (0, 7), 1: (0, 8), 2: (0, 9)}})
    plain = Answering(record, 7).data
    last = plain.rindex((9).to_bytes(8, "big")) + 8 + 4  # the tags of the last partition
    tagged = plain[:last] + unsigned_varint(1) + unsigned_varint(20) + unsigned_varint(3) + b"new" + plain[last + 1 :]
    listed = list_offsets(Answering(record, 7, changed=lambda _: tagged), LOG_END, {"t": [0, 1, 2]})  # type: ignore[arg-type]
    assert listed.offsets == {"t": {0: 7, 1: 8, 2: 9}}


def test_a_topic_that_may_not_be_described_is_named() -> None:
    response = offsets_response(7, {"open": {0: (0, 7)}, "secret": {0: (29, -1)}})
    listed = list_offsets(Answering(response, 7), LOG_END, {"open": [0], "secret": [0]})  # type: ignore[arg-type]
    assert listed.denied == "secret"
    assert listed.offsets["open"] == {0: 7}


def test_bytes_that_end_early_are_no_response() -> None:
    for end in range(4, 60):
        response = offsets_response(7, {"orders": {0: (0, 7), 1: (0, 8)}})
        cut = Answering(response, 7, changed=lambda data, end=end: data[:end])  # type: ignore[misc]
        with pytest.raises((ValueError, ConnectionRefused)):
            list_offsets(cut, LOG_END, {"orders": [0, 1]})  # type: ignore[arg-type]


def directories_response(version: int, *, error: int = 0) -> Any:
    of_response: Any = DescribeLogDirsResponse
    result = of_response.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic

    def part(number: int, size: int, *, is_future: bool = False) -> Any:
        return topic.DescribeLogDirsPartition(
            partition_index=number, partition_size=size, offset_lag=0, is_future_key=is_future
        )

    has_volume = version >= 4
    topics = [topic(name="orders", partitions=[part(0, 10), part(1, 20, is_future=True)])]
    results = [
        result(
            error_code=code, log_dir=path, topics=topics if code == 0 else [],
            **({"total_bytes": total, "usable_bytes": usable} if has_volume else {}),
            **({"is_cordoned": path == "/a"} if version >= 5 else {}),
        )
        for code, path, total, usable in ((0, "/a", 1000, 400), (56, "/b", -1, -1))
    ]  # fmt: skip
    refusal = {"error_code": error} if version >= 3 else {}
    return of_response(version=version, throttle_time_ms=0, **refusal, results=[] if error else results)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_directories_are_decoded(version: int) -> None:
    healthy, failed = describe_directories(Answering(directories_response(version), version))  # type: ignore[arg-type]
    assert (healthy.path, healthy.error, healthy.replica_bytes, healthy.hosted_replicas) == ("/a", 0, 30, 1)
    assert healthy.sizes == {"orders": {0: 10}}  # not the replica that is to replace one elsewhere
    assert (healthy.total_bytes, healthy.usable_bytes) == ((1000, 400) if version >= 4 else (None, None))
    assert (failed.path, failed.error, failed.total_bytes, failed.usable_bytes) == ("/b", 56, None, None)
    assert (healthy.is_cordoned, failed.is_cordoned) == ((True, False) if version >= 5 else (None, None))


def test_directories_that_may_not_be_described_are_a_missing_permission() -> None:
    with pytest.raises(PermissionDenied, match="Describe on the cluster"):
        describe_directories(Answering(directories_response(4, error=31), 4))  # type: ignore[arg-type]


def test_every_topic_is_asked_for_its_directories() -> None:
    answering = Answering(directories_response(5), 5)
    describe_directories(answering)  # type: ignore[arg-type]
    assert answering.sent == as_sent(DescribeLogDirsRequest(version=5, topics=None))


def test_varints_have_seven_bits_a_byte() -> None:
    chosen = random.Random(4)
    for value in [0, 127, 128, 300, 16383, 16384, *(chosen.getrandbits(31) for _ in range(50))]:
        encoded = unsigned_varint(value)
        assert sum((byte & 127) << 7 * place for place, byte in enumerate(encoded)) == value
        assert [byte >> 7 for byte in encoded] == [1] * (len(encoded) - 1) + [0]
