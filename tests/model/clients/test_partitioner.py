"""Where records go: by key, and without one by turns, by batches, by load."""

from __future__ import annotations

from collections import Counter
from itertools import count, groupby
from random import Random

import pytest

from streaming.model.clients.partitioner import (
    AdaptiveSticky,
    Draw,
    PartitionerKind,
    RoundRobin,
    Sticky,
    TopicView,
    murmur2,
    partition_for_key,
)

FOUR = TopicView(4, (0, 1, 2, 3))


def counting() -> Draw:
    return count().__next__


def seeded(seed: int = 1) -> Draw:
    random = Random(seed)
    return lambda: random.getrandbits(31)


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        ("21", -973932308, 0),
        ("foobar", -790332482, 6),
        ("a-little-bit-long-string", -985981536, 8),
        ("a-little-bit-longer-string", -1486304829, 11),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971, 5),
        ("abc", 479470107, 3),
    ],
)
def test_statement_31_a_key_goes_where_murmur2_puts_it(key: str, hashed: int, partition: int) -> None:
    assert (murmur2(key.encode()), partition_for_key(key.encode(), 12)) == (hashed, partition)


def test_statement_36_the_order_of_a_key_ends_where_partitions_are_added() -> None:
    keys = [f"customer-{number}".encode() for number in range(100)]
    moved = [key for key in keys if partition_for_key(key, 12) != partition_for_key(key, 13)]
    assert len(moved) > 80


def test_statement_31_before_2_4_records_without_a_key_take_turns_among_partitions_with_a_leader() -> None:
    partitioner = RoundRobin(lambda: 6)
    assert [partitioner.partition(FOUR) for _ in range(5)] == [2, 3, 0, 1, 2]
    assert [partitioner.partition(TopicView(4, (1, 3))) for _ in range(3)] == [3, 1, 3]
    assert [partitioner.partition(TopicView(4, ())) for _ in range(3)] == [2, 3, 0]


def test_the_turns_go_on_after_the_largest_number() -> None:
    partitioner = RoundRobin(lambda: 2**31 - 1)
    assert [partitioner.partition(TopicView(3, (0, 1, 2))) for _ in range(3)] == [1, 0, 1]


def test_statement_31_since_2_4_one_partition_takes_a_batch_and_a_different_one_the_next() -> None:
    partitioner = Sticky(seeded())
    sent = []
    for number in range(1, 41):
        sent.append(partitioner.partition(FOUR))
        partitioner.appended(FOUR, 1, batch_complete=number % 4 == 0)
    assert [len(list(run)) for _, run in groupby(sent)] == [4] * 10


def test_a_sticky_partitioner_stays_where_it_is_the_only_one_with_a_leader() -> None:
    partitioner, lonely = Sticky(seeded()), TopicView(4, (2,))
    for _ in range(3):
        assert partitioner.partition(lonely) == 2
        partitioner.appended(lonely, 1, batch_complete=True)


@pytest.mark.parametrize(
    ("completes", "runs"),
    [
        (5, [10, 10, 10]),  # two batches make a share
        (4, [12, 12, 6]),  # the share is full within the third batch: it may be completed
        (100, [20, 10]),  # no batch ends: two shares are the limit
    ],
)
def test_statement_31_since_3_3_one_partition_takes_its_share_whatever_its_batches(
    completes: int, runs: list[int]
) -> None:
    partitioner = AdaptiveSticky(counting(), sticky_batch_size=10)
    sent = []
    for number in range(1, 31):
        sent.append(partitioner.partition(FOUR))
        partitioner.appended(FOUR, 1, batch_complete=number % completes == 0)
    assert [len(list(run)) for _, run in groupby(sent)] == runs


def chosen(partitioner: AdaptiveSticky, topic: TopicView, times: int) -> Counter[int]:
    seen: Counter[int] = Counter()
    for _ in range(times):
        seen[partitioner.partition(topic)] += 1
        partitioner.appended(topic, 2, batch_complete=False)
    return seen


def test_the_emptier_a_queue_the_likelier_its_partition() -> None:
    five = TopicView(5, (0, 1, 2, 3, 4))
    partitioner = AdaptiveSticky(counting(), sticky_batch_size=1)
    partitioner.queued(five, {0: 5, 1: 0, 2: 3, 3: 0, 4: 1})
    assert chosen(partitioner, five, 21) == {0: 1, 1: 6, 2: 3, 3: 6, 4: 5}


def test_equal_queues_are_drawn_uniformly_and_missing_ones_not_at_all() -> None:
    partitioner = AdaptiveSticky(counting(), sticky_batch_size=1)
    partitioner.queued(FOUR, dict.fromkeys(range(4), 7))
    assert chosen(partitioner, FOUR, 40) == {0: 10, 1: 10, 2: 10, 3: 10}
    partitioner = AdaptiveSticky(counting(), sticky_batch_size=1)
    partitioner.queued(FOUR, {0: 7, 1: 7, 3: 7})
    assert chosen(partitioner, FOUR, 30) == {0: 10, 1: 10, 3: 10}


def test_load_is_forgotten_when_nothing_may_be_chosen() -> None:
    partitioner = AdaptiveSticky(counting(), sticky_batch_size=1)
    partitioner.queued(FOUR, {0: 7, 1: 0})
    partitioner.queued(FOUR, {})
    assert chosen(partitioner, FOUR, 8) == {0: 2, 1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("slow_keeps", [False, True])
def test_a_slow_partition_draws_more_records_from_batches_than_from_shares(*, slow_keeps: bool) -> None:
    """KIP-794: partition 0 is slow, its batches fill to 8 records where the others leave with 1."""
    kind = PartitionerKind.STICKY if slow_keeps else PartitionerKind.ADAPTIVE_STICKY
    partitioner = kind.start(seeded(), 8)
    sent: Counter[int] = Counter()
    batch = 0
    for _ in range(8_000):
        partition = partitioner.partition(FOUR)
        sent[partition] += 1
        batch += 1
        complete = batch == (8 if partition == 0 else 1)
        batch = 0 if complete else batch
        partitioner.appended(FOUR, 1, batch_complete=complete)
    assert (sent[0] > 2 * sent[1]) is slow_keeps


def test_each_version_starts_its_own_partitioner() -> None:
    assert [type(kind.start(counting(), 16)) for kind in PartitionerKind] == [RoundRobin, Sticky, AdaptiveSticky]
