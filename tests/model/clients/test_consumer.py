"""What consumers see: committed records, from where, and after a change of leaders. Latency 1 ms."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.model.clients.positions import MAY_FOLLOW, FetchState, Position, ResetPolicy, returned
from streaming.model.constants import Error
from streaming.model.messages.clients import TRANSACTION_STATE, ConsumerFetchedPartition, IsolationLevel
from streaming.model.storage.batch import Batch, Marker
from streaming.model.storage.log import Span
from streaming.model.storage.producer_state import AbortedTransaction


def spans(consumer: Any, key: Any) -> list[Span]:
    return consumer.consumed[key].spans if key in consumer.consumed else []


def test_statement_07_a_consumer_sees_a_record_once_all_of_the_isr_have_it(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)], min_isr=2)
    consumer = it.reader(key)
    it.write(key, 5)
    it.run(1_000)
    assert spans(consumer, key) == [Span(0, 0, 5)]
    it.hold(1, 3)
    it.write(key, 3)
    it.run(5_000)
    assert (it.log_end(1, key), it.log_end(2, key), spans(consumer, key)) == (8, 8, [Span(0, 0, 5)])
    it.release(1, 3)
    it.run(6_000)
    assert spans(consumer, key) == [Span(0, 0, 8)]


def test_a_consumer_waits_for_records_and_gets_them_at_once(it: Any) -> None:
    """A long poll: committed 2 ms after the write (an answer brings it, the next fetch proves it), 1 ms to travel."""
    (key,) = it.topic("t", [(1, 2, 3)])
    consumer = it.reader(key)
    it.run(2_000)
    it.write(key)
    it.run(2_002)
    assert spans(consumer, key) == []
    it.run(2_003)
    assert spans(consumer, key) == [Span(0, 0, 1)]


def test_statement_05_only_the_leader_serves_clients(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    consumer = it.reader(key, rack="b")
    it.write(key, 5)
    it.run(1_000)
    it.hold(1, consumer.node)
    it.write(key, 5)
    it.run(5_000)
    assert (it.high_watermark(2, key), spans(consumer, key)) == (10, [Span(0, 0, 5)])


def test_a_follower_shows_no_more_than_its_own_high_watermark(lab: Any) -> None:
    """KIP-392: it learns of it by its next fetch, so what it serves is older than what the leader would."""
    it = lab(brokers=(), kip_392_follower_fetching=True)
    for broker, rack in ((1, "a"), (2, "b"), (3, "c")):
        it.start(broker, rack)
    it.run(1_000)
    (key,) = it.topic("t", [(1, 2, 3)])
    consumer = it.reader(key, rack="b")
    it.write(key, 5)
    it.run(3_000)
    it.write(key, 1)
    it.run_until(lambda: it.high_watermark(1, key) == 6)
    assert (it.log_end(2, key), it.high_watermark(2, key)) == (6, 5)
    it.run(it.cluster.now + 600)
    assert spans(consumer, key) == [Span(0, 0, 6)]


@pytest.mark.parametrize(
    ("policy", "seen", "state"),
    [
        (ResetPolicy.EARLIEST, [Span(0, 0, 10)], FetchState.FETCHING),
        (ResetPolicy.LATEST, [Span(0, 7, 10)], FetchState.FETCHING),
        (ResetPolicy.NONE, [], FetchState.FAILED),
    ],
)
def test_auto_offset_reset_says_where_to_begin(
    it: Any, policy: ResetPolicy, seen: list[Span], state: FetchState
) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    it.write(key, 7)
    it.run(1_000)
    consumer = it.reader(key, reset=policy)
    it.run(2_000)
    it.write(key, 3)
    it.run(3_000)
    assert (spans(consumer, key), consumer.positions[key].state) == (seen, state)


@pytest.mark.parametrize(
    ("policy", "state"), [(ResetPolicy.EARLIEST, FetchState.FETCHING), (ResetPolicy.NONE, FetchState.FAILED)]
)
def test_an_offset_that_the_log_does_not_have_is_out_of_range(it: Any, policy: ResetPolicy, state: FetchState) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    it.write(key, 7)
    consumer = it.reader(key, reset=policy)
    it.run(1_000)
    consumer.seek(it.cluster.now, key, 8)
    it.cluster.flush(consumer.node)
    it.run(2_000)
    assert (consumer.positions[key].state, consumer.positions[key].error) == (state, Error.OFFSET_OUT_OF_RANGE)


def unclean_fail_over(it: Any, key: Any) -> None:
    """Broker 2 leaves the ISR, more is written, broker 1 dies, broker 2 leads without what was written."""
    it.cluster.kill(2)
    it.run(15_000)
    it.write(key, 5)
    it.run(15_500)
    it.cluster.kill(1)
    it.start(2)


@pytest.mark.parametrize("policy", [ResetPolicy.LATEST, ResetPolicy.NONE])
def test_n20_a_consumer_notices_that_a_new_leader_lacks_what_it_read(lab: Any, policy: ResetPolicy) -> None:
    """N20, KIP-320: it asks where the epoch it read ends, and goes on there, or fails without a reset policy."""
    it = lab(eligible_leader_replicas=False)
    (key,) = it.topic("t", [(1, 2)], unclean=True)
    consumer = it.reader(key, reset=policy)
    consumer.seek(it.cluster.now, key, 0)
    it.write(key, 10)
    it.run(1_000)
    unclean_fail_over(it, key)
    it.run(40_000)
    assert consumer.fetching.truncations == [(key, 15, 10)]
    it.write(key, 3)
    it.run(41_000)
    read_again = [] if policy is ResetPolicy.NONE else [Span(it.state(key).leader_epoch, 10, 13)]
    assert spans(consumer, key) == [Span(0, 0, 15), *read_again]
    expected = FetchState.FAILED if policy is ResetPolicy.NONE else FetchState.FETCHING
    assert consumer.positions[key].state is expected


def test_a_consumer_finds_the_new_leader_and_reads_on_where_it_was(it: Any) -> None:
    (key,) = it.topic("t", [(1, 2, 3)])
    it.keep_writing(key, 1, 100)
    consumer = it.reader(key)
    it.run(5_000)
    it.cluster.kill(1)
    it.run(20_000)
    (first, second) = spans(consumer, key)
    assert (first.start, first.end, second.end) == (0, second.start, it.high_watermark(2, key))
    assert consumer.fetching.truncations == []


@pytest.mark.parametrize(
    ("isolation", "while_open", "in_the_end"),
    [
        (IsolationLevel.READ_UNCOMMITTED, [Span(0, 0, 3)], [Span(0, 0, 3), Span(0, 4, 5)]),
        (IsolationLevel.READ_COMMITTED, [Span(0, 0, 1)], [Span(0, 0, 1), Span(0, 4, 5)]),
    ],
)
def test_statement_24_a_reader_of_committed_records_sees_nothing_of_an_aborted_transaction(
    it: Any, isolation: IsolationLevel, while_open: list[Span], in_the_end: list[Span]
) -> None:
    """It waits for the end of the transaction, and then reads past it."""
    it.topic(TRANSACTION_STATE, [(3, 1, 2)], min_isr=2)
    (key,) = it.topic("t", [(1, 2, 3)])
    producer, consumer = it.transactional("payments"), it.reader(key, isolation=isolation)
    it.write(key)
    it.run(2_000)
    it.transact(producer, producer.begin)
    it.send(producer, key, 2)
    it.run(3_000)
    assert spans(consumer, key) == while_open
    it.transact(producer, producer.abort)
    it.run(4_000)
    it.write(key)
    it.run(5_000)
    assert spans(consumer, key) == in_the_end


def test_a_reader_that_begins_within_an_aborted_batch_reads_past_it(it: Any) -> None:
    it.topic(TRANSACTION_STATE, [(3, 1, 2)], min_isr=2)
    (key,) = it.topic("t", [(1, 2, 3)])
    producer = it.transactional("payments")
    it.run(2_000)
    it.transact(producer, producer.begin)
    it.send(producer, key, 4)
    it.run(3_000)
    it.transact(producer, producer.abort)
    it.run(4_000)
    consumer = it.reader(key, isolation=IsolationLevel.READ_COMMITTED)
    consumer.seek(it.cluster.now, key, 2)
    it.run(5_000)
    assert (spans(consumer, key), consumer.positions[key].offset) == ([], 5)


TRANSACTIONAL = Batch(0, 2, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
ANSWER = ConsumerFetchedPartition(
    ("t", 0),  # type: ignore[arg-type]
    fetch_offset=0,
    end_offset=9,
    epochs=((0, 0), (1, 6)),
    batches=(
        TRANSACTIONAL._replace(base_offset=1),
        TRANSACTIONAL._replace(base_offset=3, size=1, producer_id=-1, marker=Marker.ABORT)._replace(producer_id=7),
        TRANSACTIONAL._replace(base_offset=4, base_sequence=2),
        TRANSACTIONAL._replace(base_offset=8, size=1, marker=Marker.COMMIT),
    ),
    aborted=(AbortedTransaction(7, 1, 3),),
)


@pytest.mark.parametrize(
    ("isolation", "runs"),
    [
        (IsolationLevel.READ_UNCOMMITTED, [(0, 0, 3), (0, 4, 6), (1, 6, 8)]),
        (IsolationLevel.READ_COMMITTED, [(0, 0, 1), (0, 4, 6), (1, 6, 8)]),
    ],
)
def test_aborted_records_and_markers_are_not_returned(
    isolation: IsolationLevel, runs: list[tuple[int, int, int]]
) -> None:
    """The second transaction of the same producer was committed; records 0, 6 and 7 are nobody's."""
    assert returned(ANSWER, isolation) == runs


def test_what_compaction_took_out_is_not_returned() -> None:
    batch = Batch(0, 4, keys=("a", "b"), values=(1, 2), deltas=(1, 3))
    answer = ConsumerFetchedPartition(
        ("t", 0),  # type: ignore[arg-type]
        fetch_offset=0,
        end_offset=5,
        epochs=((0, 0),),
        batches=(batch,),
    )
    assert returned(answer, IsolationLevel.READ_UNCOMMITTED) == [(0, 1, 2), (0, 3, 5)]


@pytest.mark.parametrize("after", FetchState)
@pytest.mark.parametrize("before", FetchState)
def test_a_position_takes_the_steps_of_the_table_only(before: FetchState, after: FetchState) -> None:
    position = Position()
    position.state = before
    if before in MAY_FOLLOW[after]:
        position.move(after)
        assert position.state is after
    else:
        with pytest.raises(AssertionError):
            position.move(after)
