"""What coordinators and leaders say of transactions is decoded as kafka-python encodes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeQuorumResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

from streaming.contracts.identifiers import Micros
from streaming.sources.permissions import PermissionDenied
from streaming.sources.protocol.quorum_messages import Leader, QuorumMember
from streaming.sources.samples.quorum import describe_quorum
from streaming.sources.samples.transactions import (
    PROBED,
    UNDECIDED,
    ActiveProducer,
    OpenProducer,
    OpenTransaction,
    OpenTransactions,
    active_producers,
    committed_transactions,
    describe_producers,
    open_transactions,
)
from tests.sources.samples.test_encoding import Answering, as_sent

NAMES = st.text("abß", min_size=1, max_size=3)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 400), min_size=1, unique=True), max_size=3)
LONG = st.integers(-1, 2**62)
STATES = st.sampled_from([*UNDECIDED, "CompleteCommit", "Empty"])
TRANSACTIONS = st.dictionaries(
    NAMES, st.tuples(STATES, st.integers(1, 2**31 - 1), LONG, LONG, st.integers(-1, 2**15 - 1), PARTITIONS), max_size=5
)


class Coordinator:
    """Answers ListTransactions and DescribeTransactions."""

    def __init__(self, transactions: dict[str, tuple[Any, ...]], *, error: int = 0, errors: dict[str, int]) -> None:
        of_listed, of_described = ListTransactionsResponse, DescribeTransactionsResponse

        def state(name: str, one: tuple[Any, ...]) -> Any:
            state, timeout, start, producer, epoch, at = one
            named = {"error_code": errors.get(name, 0), "transactional_id": name, "transaction_state": state}
            began = {"transaction_timeout_ms": timeout, "transaction_start_time_ms": start}
            topics = [of_described.TransactionState.TopicData(topic=each, partitions=at[each]) for each in at]
            return of_described.TransactionState(
                **named, **began, producer_id=producer, producer_epoch=epoch, topics=topics
            )

        listed = [
            of_listed.TransactionState(transactional_id=name, producer_id=one[3], transaction_state=one[0])
            for name, one in transactions.items()
        ]
        states = [state(name, one) for name, one in {PROBED: ("", 0, -1, -1, -1, {}), **transactions}.items()]
        answered = {"version": 0, "throttle_time_ms": 0}
        self.responses: list[Any] = [
            of_listed(**answered, error_code=error, unknown_state_filters=["New"], transaction_states=listed),
            of_described(**answered, transaction_states=states),
        ]
        self.asked: list[bytes] = []
        self.cut = (-1, 0)

    def newest(self, _key: int, supported: int, _name: str = "") -> int:
        return supported

    required = newest

    def call(self, request: Any, response: Any, read: Any) -> Any:
        response_at, end = self.cut
        changed = (lambda data: data[:end]) if response_at == len(self.asked) else (lambda data: data)
        answering = Answering(self.responses[len(self.asked)], 0, changed=changed)
        answer = answering.call(request, response, read)
        self.asked.append(answering.sent)
        return answer


@given(TRANSACTIONS)
def test_open_transactions_are_decoded(transactions: dict[str, tuple[Any, ...]]) -> None:
    coordinator: Any = Coordinator(transactions, errors={PROBED: 105})
    assert open_transactions(coordinator) == OpenTransactions(
        tuple(
            OpenTransaction(
                name, state, timeout, Micros(start * 1000) if start >= 0 else None, producer, epoch,
                tuple((topic, number) for topic, numbers in partitions.items() for number in numbers),
            )
            for name, (state, timeout, start, producer, epoch, partitions) in transactions.items()
            if state in UNDECIDED
        ),
        is_listed=True,
        is_complete=True,
    )  # fmt: skip


def test_every_transaction_that_is_listed_is_described_in_one_request() -> None:
    transactions = {f"id-{number}": ("Ongoing", 1, 1, number, 0, {}) for number in range(300)}
    coordinator: Any = Coordinator(transactions, errors={})
    open_transactions(coordinator)
    listed = ListTransactionsRequest(version=0, state_filters=[*UNDECIDED], producer_id_filters=[])
    described = DescribeTransactionsRequest(version=0, transactional_ids=[PROBED, *transactions])
    assert coordinator.asked == [as_sent(listed), as_sent(described)]


@pytest.mark.parametrize(
    ("error", "errors", "is_complete", "is_denied", "names"),
    [
        (0, {PROBED: 105}, True, False, {"a", "b"}),
        (0, {"a": 105}, True, False, {"b"}),  # it has expired since
        (14, {}, False, False, {"a", "b"}),  # it still loads a partition
        (0, {"a": 16}, False, False, {"b"}),  # another broker coordinates it by now
        (0, {PROBED: 53}, False, True, {"a", "b"}),  # others may be left out
        (0, {"a": 53}, False, True, {"b"}),
    ],
)
def test_whether_a_coordinator_has_said_everything(
    error: int,
    errors: dict[str, int],
    is_complete: bool,  # noqa: FBT001 - a parameter of the test
    is_denied: bool,  # noqa: FBT001 - as above
    names: set[str],
) -> None:
    transactions = {name: ("Ongoing", 1, 1, 1, 0, {}) for name in ("a", "b")}
    coordinator: Any = Coordinator(transactions, error=error, errors=errors)
    answered = open_transactions(coordinator)
    assert (answered.is_listed, answered.is_complete, answered.is_denied) == (not error, is_complete, is_denied)
    assert {one.transactional_id for one in answered.transactions} == names


@given(TRANSACTIONS, st.lists(LONG, max_size=3))
def test_committed_transactions_are_decoded_and_asked_for_by_producer(
    transactions: dict[str, tuple[Any, ...]], producers: list[int]
) -> None:
    errors = {name: 105 for name in transactions if name.endswith("b")}
    coordinator: Any = Coordinator(transactions, errors={PROBED: 105, **errors})
    assert committed_transactions(coordinator, producers) == {
        producer: Micros(start * 1000)
        for name, (state, _, start, producer, *_) in transactions.items()
        if state == "CompleteCommit" and start >= 0 and name not in errors
    }
    listed = ListTransactionsRequest(version=0, state_filters=["CompleteCommit"], producer_id_filters=producers)
    described = DescribeTransactionsRequest(version=0, transactional_ids=[*transactions])
    assert coordinator.asked == [as_sent(listed), *([as_sent(described)] if transactions else [])]


def producers_response(topics: dict[str, dict[int, tuple[int, list[tuple[int, int, int]]]]]) -> Any:
    of_topic = DescribeProducersResponse.TopicResponse
    of_part = of_topic.PartitionResponse
    last = {"last_sequence": 1, "last_timestamp": 2, "coordinator_epoch": 3}

    def producer(number: int, epoch: int, start: int) -> Any:
        named = {"producer_id": number, "producer_epoch": epoch, "current_txn_start_offset": start}
        return of_part.ProducerState(**named, **last)

    def part(number: int, error: int, producers: list[tuple[int, int, int]]) -> Any:
        said = {"error_code": error, "error_message": "so" if error else None}
        return of_part(partition_index=number, **said, active_producers=[producer(*one) for one in producers])

    described = [
        of_topic(name=name, partitions=[part(number, *said) for number, said in parts.items()])
        for name, parts in topics.items()
    ]
    return DescribeProducersResponse(version=0, throttle_time_ms=0, topics=described)


@given(
    st.dictionaries(
        NAMES,
        st.dictionaries(
            st.integers(0, 400),
            st.tuples(st.sampled_from([0, 0, 6]), st.lists(st.tuples(LONG, st.integers(0, 2**31 - 1), LONG))),
        ),
        max_size=3,
    )
)
def test_producers_with_an_open_transaction_are_decoded(topics: dict[str, dict[int, Any]]) -> None:
    answering: Any = Answering(producers_response(topics), 0)
    asked = {name: list(parts) for name, parts in topics.items()}
    assert describe_producers(answering, asked).writing == {
        (name, number): tuple(OpenProducer(*one) for one in producers if one[2] >= 0)
        for name, parts in topics.items()
        for number, (error, producers) in parts.items()
        if not error
    }
    of_topic = DescribeProducersRequest.TopicRequest
    wanted = [of_topic(name=name, partition_indexes=numbers) for name, numbers in asked.items()]
    assert answering.sent == as_sent(DescribeProducersRequest(version=0, topics=wanted))


def test_who_has_written_is_decoded_with_when_and_whether_there_is_a_marker() -> None:
    response = producers_response({"orders": {0: (0, [(7, 1, -1), (8, 0, 5)])}})
    assert active_producers(Answering(response, 0), {"orders": [0]}).of == {  # type: ignore[arg-type]
        ("orders", 0): (ActiveProducer(7, 1, Micros(2_000), True, -1), ActiveProducer(8, 0, Micros(2_000), True, 5))
    }


def test_a_topic_that_may_not_be_read_is_named_and_what_was_not_asked_is_left_out() -> None:
    response = producers_response({"open": {0: (0, [(1, 0, 5)]), 7: (0, [])}, "secret": {0: (29, [])}})
    answering: Any = Answering(response, 0)
    described = describe_producers(answering, {"open": [0], "secret": [0]})
    assert described.writing == {("open", 0): (OpenProducer(1, 0, 5),)}
    assert described.denied == "secret"


def test_versions_that_do_not_have_the_requests_have_no_transactions() -> None:
    old: Any = Answering(producers_response({}), -1)
    assert open_transactions(old) == OpenTransactions()
    assert describe_producers(old, {"orders": [0]}).writing == {}
    assert active_producers(old, {"orders": [0]}).of == committed_transactions(old, [1]) == {}


def test_bytes_that_end_early_are_no_response() -> None:
    response = producers_response({"orders": {0: (0, [(1, 0, 5)])}})
    for end in range(4, len(Answering(response, 0).data) - 1):  # the last byte: no tagged fields
        cut: Any = Answering(response, 0, changed=lambda data, end=end: data[:end])  # type: ignore[misc]
        with pytest.raises(ValueError, match=r"ends at byte|an array of"):
            describe_producers(cut, {"orders": [0]})


@pytest.mark.parametrize("response", [0, 1])
def test_bytes_of_a_coordinator_that_end_early_are_no_response(response: int) -> None:
    transactions = {"a": ("Ongoing", 1, 1, 1, 0, {"orders": [0, 1]})}
    whole = Answering(Coordinator(transactions, errors={}).responses[response], 0).data
    for end in range(4, len(whole) - 1):
        coordinator: Any = Coordinator(transactions, errors={})
        coordinator.cut = (response, end)
        with pytest.raises(ValueError, match=r"ends at byte|an array of"):
            open_transactions(coordinator)


def quorum_response(version: int, *, error: int = 0) -> Any:
    of_topic = DescribeQuorumResponse.TopicData
    of_part = of_topic.PartitionData

    def replica(node: int, end: int, fetched: int, caught_up: int) -> Any:
        times = {"last_fetch_timestamp": fetched, "last_caught_up_timestamp": caught_up} if version else {}
        return of_part.ReplicaState(replica_id=node, log_end_offset=end, **times)

    part = of_part(
        partition_index=0, error_code=0, leader_id=101, leader_epoch=4, high_watermark=90,
        current_voters=[replica(101, 95, 50, 50), replica(102, -1, -1, -1)],
        observers=[replica(1, 90, 40, 30)],
    )  # fmt: skip
    return DescribeQuorumResponse(
        version=version, error_code=error, topics=[of_topic(topic_name="__cluster_metadata", partitions=[part])]
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_voters_and_observers_are_decoded(version: int) -> None:
    answering: Any = Answering(quorum_response(version), version)
    quorum = describe_quorum(answering)
    assert quorum is not None
    assert (quorum.leader, quorum.high_watermark) == (Leader(101, 4), 90)
    times = [(50, 50), (None, None), (40, 30)] if version else [(None, None)] * 3
    assert quorum.members == (
        QuorumMember(101, True, 95, *times[0]),
        QuorumMember(102, True, None, *times[1]),
        QuorumMember(1, False, 90, *times[2]),
    )


def test_a_cluster_with_zookeeper_has_no_quorum_and_a_missing_permission_is_said() -> None:
    zookeeper: Any = Answering(quorum_response(2), -1)
    denied: Any = Answering(quorum_response(2, error=31), 2)
    assert describe_quorum(zookeeper) is None
    with pytest.raises(PermissionDenied, match="Describe on the cluster"):
        describe_quorum(denied)
