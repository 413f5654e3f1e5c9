"""What coordinators say of groups is decoded as kafka-python does it, or as recorded from a broker of Kafka 4.3.1."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest, ListGroupsResponse
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from streaming.errors import ConnectionRefused
from streaming.sources.samples.groups.blocks import GroupValues, ShareValues, committed_offsets, share_offsets
from streaming.sources.samples.groups.described import NO_GROUP, DescribedGroup, describe_groups, list_groups
from tests.sources.samples.test_encoding import as_sent

NAMES = st.text("ab", min_size=1, max_size=3)
OFFSETS = st.integers(-1, 2**62)
METADATA = st.none() | st.sampled_from(["", "", "", "x", "m" * 200])

# With two members of the consumer protocol (KIP-848), g-consumer-0 and g-consumer-1, two partitions of g-one each.
CONSUMER = bytes.fromhex(
    "000000050000000000020000000b672d636f6e73756d657207537461626c65000000070000000708756e69666f726d031746773652592f"
    "78795262654d3954327a372f365569770000000000070d672d636f6e73756d65722d300b2f3132372e302e302e310206672d6f6e650102"
    "70cb58cad71e45459689d5268ec396a306672d6f6e6503000000020000000300000270cb58cad71e45459689d5268ec396a306672d6f6e"
    "650300000002000000030000010017493573547361697a5176695a7779414570644b2b53670000000000070d672d636f6e73756d65722d"
    "310b2f3132372e302e302e310206672d6f6e65010270cb58cad71e45459689d5268ec396a306672d6f6e65030000000000000001000002"
    "70cb58cad71e45459689d5268ec396a306672d6f6e6503000000000000000100000100800000000000"
)
# With one member of a share group (KIP-932).
SHARE = bytes.fromhex(
    "0000000400000000000200000009672d73686172653207537461626c6500000005000000050773696d706c6502174648316e4c32354754"
    "5061346939574e32346b2d3741000000000517636f6e736f6c652d73686172652d636f6e73756d65720b2f3132372e302e302e31020667"
    "2d6f6e650270cb58cad71e45459689d5268ec396a306672d6f6e650500000000000000010000000200000003000000800000000000"
)
# With two members of a streams group (KIP-1071). Of three tasks of one subtopology, which reads orders and clicks, one
# is that of the first member, with the only task of another one, which reads users; both have an endpoint and a tag.
STREAMS = bytes.fromhex(
    "000000100000000000020000000873747265616d7307537461626c65000000040000000401000000010302300307636c69636b73076f72"
    "6465727301021473747265616d732d302d6368616e67656c6f67000000030001020f636c65616e75702e706f6c69637908636f6d706163"
    "740000010002310206757365727301021473747265616d732d312d6368616e67656c6f67000000010001020f636c65616e75702e706f6c"
    "69637908636f6d706163740000010000032533313136663333662d643439332d343064372d393430312d31313235663562663238376300"
    "00000400077261636b2d310969737277617463680b2f3132372e302e302e31000000010a70726f636573732d31010a6c6f63616c686f73"
    "741f900002057a6f6e65026100010102023003000000000000000200010100020230030000000000000002000101000000253863373536"
    "3437652d316439312d346463322d383366632d3564363434346335383930630000000400077261636b2d310969737277617463680b2f31"
    "32372e302e302e31000000010a70726f636573732d31010a6c6f63616c686f73741f900002057a6f6e6502610001010302300200000001"
    "00023102000000000001010003023002000000010002310200000000000101000000800000000000"
)
# Lags of a share group: 0 of partition 0, unknown of 1, 20 of 2, 0 of 3.
SHARE_LAGS = bytes.fromhex(
    "0000000600000000000209672d7368617265320206672d6f6e6570cb58cad71e45459689d5268ec396a305000000000000000000000000"
    "0000000000000000000000000000000000000001ffffffffffffffff00000000ffffffffffffffff000000000000000200000000000000"
    "000000000000000000000000140000000000000003000000000000000000000000000000000000000000000000000000000000"
)


class Coordinator:
    """A connection to a broker that supports some versions, and gives one response to each request."""

    address = "broker-1:9092"

    def __init__(self, versions: Mapping[int, int], responses: Mapping[int, Any]) -> None:
        self._versions, self._responses = versions, responses
        self.sent: dict[int, bytes] = {}

    def newest(self, key: int, supported: int, _name: str = "") -> int:
        return min(supported, self._versions.get(key, -1))

    required = newest

    def call(self, request: Any, response: Any, read: Any) -> Any:
        assert request.API_KEY not in self.sent, "one request of each kind"
        self.sent[request.API_KEY] = as_sent(request)
        answer = self._responses[request.API_KEY]
        if not isinstance(answer, bytes):
            answer.with_header(correlation_id=1)
            answer = answer.encode(header=True)
        return read(response.decode(answer, version=request.API_VERSION, header=True))


@pytest.mark.parametrize("version", [4, 5])
def test_groups_are_listed(version: int) -> None:
    of_response: Any = ListGroupsResponse
    types = [("a", "Stable", "classic"), ("b", "Empty", "Share"), ("c", "Empty", "consumer")]
    groups = [
        of_response.ListedGroup(
            group_id=name, protocol_type="consumer", group_state=state, **({"group_type": kind} if version >= 5 else {})
        )
        for name, state, kind in types
    ]
    response = of_response(version=version, throttle_time_ms=0, error_code=0, groups=groups)
    coordinator = Coordinator({16: version}, {16: response})
    listed: Any = list_groups(coordinator)  # type: ignore[arg-type]
    assert listed == {
        name: DescribedGroup(kind.lower() if version >= 5 else "classic", state) for name, state, kind in types
    }
    filters = {"states_filter": [], **({"types_filter": []} if version >= 5 else {})}
    assert coordinator.sent[16] == as_sent(ListGroupsRequest(version=version, **filters))


def test_a_coordinator_that_loads_its_groups_does_not_say_that_there_are_none() -> None:
    response = ListGroupsResponse(version=5, throttle_time_ms=0, error_code=14, groups=[])
    with pytest.raises(ConnectionRefused, match=r"broker-1:9092 cannot list its groups \(Kafka's error 14\)"):
        list_groups(Coordinator({16: 5}, {16: response}))  # type: ignore[arg-type]


def assignment(topics: Mapping[str, list[int]]) -> bytes:
    """As the class ConsumerProtocol of Kafka's clients writes it."""
    encoded = struct.pack(">hi", 3, len(topics))
    for topic, numbers in topics.items():
        encoded += struct.pack(">h", len(topic.encode())) + topic.encode()
        encoded += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return encoded + struct.pack(">i", -1)


def described(version: int, groups: list[dict[str, Any]]) -> Any:
    response: Any = DescribeGroupsResponse
    of_group = response.DescribedGroup
    member = {"member_id": "m", "group_instance_id": None, "client_host": "/127.0.0.1", "member_metadata": b"abc"}
    usual = {"error_code": 0, "group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}

    def described_one(group: dict[str, Any]) -> Any:
        members = [
            of_group.DescribedGroupMember(**member, client_id=client, member_assignment=share)
            for client, share in group.get("members", {}).items()
        ]
        return of_group(**{**usual, "authorized_operations": set(), **group, "members": members})

    return response(version=version, throttle_time_ms=0, groups=[*map(described_one, groups)])


@pytest.mark.parametrize("version", [5, 6])
def test_classic_groups_are_described_in_one_request(version: int) -> None:
    shares = {"one": assignment({"orders": [0, 2], "ö": [5]}), "two": assignment({"orders": [1]})}
    response = described(
        version,
        [
            {"group_id": "a", "members": shares},
            {"group_id": "connect", "protocol_type": "connect", "members": {"w": assignment({"orders": [0]})}},
            {"group_id": "ended", "error_code": 69, "group_state": "Dead"},
            {"group_id": "empty", "group_state": "Empty", "protocol_data": ""},
            {"group_id": NO_GROUP, "group_state": "Dead", "protocol_data": ""},
        ],
    )
    names = ["a", "connect", "ended", "empty"]
    coordinator = Coordinator({15: version}, {15: response})
    groups, denied = describe_groups(coordinator, {name: DescribedGroup("classic", "Listed") for name in names})  # type: ignore[arg-type]
    assert groups == {
        "a": DescribedGroup(
            "classic", "Stable", 2, "range", {"orders": {0: "one", 1: "two", 2: "one"}, "ö": {5: "one"}}
        ),
        "connect": DescribedGroup("classic", "Stable", 1, "range"),
        "ended": DescribedGroup("classic", "Listed"),
        "empty": DescribedGroup("classic", "Empty", 0),
    }
    assert denied == ()
    request = DescribeGroupsRequest(version=version, groups=[NO_GROUP, *names], include_authorized_operations=False)
    assert coordinator.sent == {15: as_sent(request)}


@given(st.binary(max_size=60))
def test_an_assignment_of_a_strange_member_costs_only_its_partitions(share: bytes) -> None:
    response = described(6, [{"group_id": "a", "members": {"odd": share, "one": assignment({"orders": [0]})}}])
    groups, _ = describe_groups(Coordinator({15: 6}, {15: response}), {"a": DescribedGroup("classic", "")})  # type: ignore[arg-type]
    assert groups["a"].members == 2
    assert groups["a"].owners["orders"][0] == "one"


def test_a_group_that_may_not_be_described_stays_as_it_was_listed() -> None:
    response = described(6, [{"group_id": "a", "error_code": 30, "group_state": ""}, {"group_id": NO_GROUP}])
    groups, denied = describe_groups(Coordinator({15: 6}, {15: response}), {"a": DescribedGroup("classic", "Stable")})  # type: ignore[arg-type]
    assert groups == {"a": DescribedGroup("classic", "Stable")}
    assert denied == ("a",)


def test_groups_of_every_protocol_are_described_as_a_broker_does_it() -> None:
    versions = {15: 6, 69: 1, 77: 1, 89: 0}
    responses = {15: described(6, []), 69: CONSUMER, 77: SHARE, 89: STREAMS}
    listed = {
        "g-consumer": DescribedGroup("consumer", "Empty"),
        "g-share2": DescribedGroup("share", "Empty"),
        "streams": DescribedGroup("streams", "Empty"),
    }
    groups, _ = describe_groups(Coordinator(versions, responses), listed)  # type: ignore[arg-type]
    clients = {0: "g-consumer-1", 1: "g-consumer-1", 2: "g-consumer-0", 3: "g-consumer-0"}
    tasks = dict.fromkeys(range(3), "isrwatch")
    assert groups == {
        "g-consumer": DescribedGroup("consumer", "Stable", 2, "uniform", {"g-one": clients}),
        "g-share2": DescribedGroup(
            "share", "Stable", 1, "simple", {"g-one": dict.fromkeys(range(4), "console-share-consumer")}
        ),
        "streams": DescribedGroup(
            "streams", "Stable", 2, None, {"clicks": tasks, "orders": tasks, "users": {0: "isrwatch"}}
        ),
    }


def test_a_member_before_kafka_4_0_does_not_say_which_protocol_it_speaks() -> None:
    """Version 0 of ConsumerGroupDescribe ends a member with its target assignment (KIP-1099)."""
    older = CONSUMER.replace(b"\3\0\0\1\0\x17", b"\3\0\0\0\x17").replace(b"\1\0\0\1\0\x80", b"\1\0\0\0\x80")
    assert len(older) == len(CONSUMER) - 2
    listed = {"g-consumer": DescribedGroup("consumer", "Empty")}
    groups = [
        describe_groups(Coordinator({15: 6, 69: version}, {15: described(6, []), 69: data}), listed)  # type: ignore[arg-type]
        for version, data in enumerate((older, CONSUMER))
    ]
    assert groups[0] == groups[1]


def test_a_broker_without_a_way_to_describe_them_is_not_asked() -> None:
    """Kafka 4.0 had another ShareGroupDescribe."""
    listed = {"s": DescribedGroup("share", "Empty"), "c": DescribedGroup("consumer", "Stable")}
    coordinator = Coordinator({15: 5, 77: 0}, {15: described(5, [])})
    groups, _ = describe_groups(coordinator, listed)  # type: ignore[arg-type]
    assert groups == listed
    assert coordinator.sent.keys() == {15}


PARTITIONS = st.dictionaries(
    st.integers(0, 400), st.tuples(OFFSETS, METADATA, st.sampled_from([0, 0, 0, 3])), max_size=40
)


@given(
    version=st.sampled_from([8, 9]),
    are_settled=st.booleans(),
    groups=st.dictionaries(
        NAMES, st.tuples(st.dictionaries(NAMES, PARTITIONS, max_size=3), st.sampled_from([0, 0, 16])), max_size=4
    ),
)
def test_committed_offsets_of_many_groups_are_decoded(
    version: int,
    are_settled: bool,  # noqa: FBT001 - drawn
    groups: dict[str, Any],
) -> None:
    of_response: Any = OffsetFetchResponse
    of_group = of_response.OffsetFetchResponseGroup
    of_topic = of_group.OffsetFetchResponseTopics

    def part(number: int, offset: int, metadata: str | None, error: int) -> Any:
        committed = {"committed_offset": offset, "committed_leader_epoch": 1, "metadata": metadata}
        return of_topic.OffsetFetchResponsePartitions(partition_index=number, **committed, error_code=error)

    def topic(name: str, parts: dict[int, Any]) -> Any:
        return of_topic(name=name, partitions=[part(number, *said) for number, said in parts.items()])

    fetched = [
        of_group(group_id=name, error_code=error, topics=[topic(*each) for each in topics.items()])
        for name, (topics, error) in groups.items()
    ]
    response = of_response(version=version, throttle_time_ms=0, groups=fetched)
    coordinator = Coordinator({9: version}, {9: response})
    committed = committed_offsets(coordinator, [*groups], are_settled=are_settled)  # type: ignore[arg-type]
    assert committed == tuple(
        GroupValues(
            error,
            name,
            {
                topic: {number: offset for number, (offset, _, code) in parts.items() if not code and offset >= 0}
                for topic, parts in topics.items()
            },
        )
        for name, (topics, error) in groups.items()
    )
    of_request: Any = OffsetFetchRequest
    member = {"member_id": None, "member_epoch": -1} if version >= 9 else {}
    asked = [of_request.OffsetFetchRequestGroup(group_id=name, topics=None, **member) for name in groups]
    assert coordinator.sent[9] == as_sent(of_request(version=version, groups=asked, require_stable=are_settled))


def test_the_start_and_the_lag_of_a_share_group_are_what_its_coordinator_says() -> None:
    assert share_offsets(Coordinator({90: 1}, {90: SHARE_LAGS}), ["g-share2"]) == (  # type: ignore[arg-type]
        ShareValues(0, "g-share2", {"g-one": {0: 0, 2: 0, 3: 0}}, {"g-one": {0: 0, 2: 20, 3: 0}}),
    )
    assert share_offsets(Coordinator({90: 0}, {}), ["g-share2"]) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(("error", "unread"), [(6, {"g-one": [1]}), (3, {})], ids=["no leader there", "no partition"])
def test_a_partition_of_a_share_group_is_unread_where_its_leader_is_away(error: int, unread: dict[str, Any]) -> None:
    of_second = bytes.fromhex("00000001ffffffffffffffff00000000ffffffffffffffff")
    refused = SHARE_LAGS.replace(of_second + b"\0\0", of_second + error.to_bytes(2))
    assert refused != SHARE_LAGS
    (values,) = share_offsets(Coordinator({90: 1}, {90: refused}), ["g-share2"])  # type: ignore[arg-type]
    assert values.unread == unread
    assert values.starts == {"g-one": {0: 0, 2: 0, 3: 0}}


@pytest.mark.parametrize(("key", "data"), [(69, CONSUMER), (77, SHARE), (89, STREAMS)])
def test_bytes_that_end_early_are_no_description(key: int, data: bytes) -> None:
    protocol = {69: "consumer", 77: "share", 89: "streams"}[key]
    for end in range(8, len(data) - 1):
        responses = {15: described(6, []), key: data[:end]}
        with pytest.raises(ValueError, match=r"ends at byte|is null|bytes are left"):
            describe_groups(Coordinator({15: 6, 69: 1, 77: 1, 89: 0}, responses), {"g": DescribedGroup(protocol, "")})  # type: ignore[arg-type]
