"""Kafka's definitions of a healthy partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts import health
from streaming.contracts.identifiers import Micros

BROKERS = st.lists(st.integers(0, 5), min_size=1, max_size=5, unique=True).map(tuple)


@st.composite
def reassignments(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Replicas, in-sync replicas, and adding replicas of a partition on its way."""
    replicas = draw(BROKERS)
    isr = tuple(broker for broker in replicas if draw(st.booleans()))
    adding = tuple(broker for broker in replicas[1:] if draw(st.booleans()))
    return replicas, isr, adding


def test_a_full_isr_is_healthy() -> None:
    assert not health.is_under_replicated((1, 2, 3), (3, 2, 1), ())


def test_a_replica_that_a_reassignment_adds_is_not_missed() -> None:
    """KIP-352: growing a topic does not look under-replicated."""
    assert not health.is_under_replicated((1, 2, 3, 4), (1, 2, 3), (4,))
    assert health.is_under_replicated((1, 2, 3, 4), (1, 2), (4,))


def test_the_minimum_is_capped_by_the_replica_count() -> None:
    """KAFKA-15583."""
    assert health.effective_min_isr(2, (7,)) == 1
    assert health.effective_min_isr(2, (7, 8, 9)) == 2


def test_an_unknown_minimum_gives_no_answer() -> None:
    assert health.effective_min_isr(None, (1,)) is None
    assert health.is_under_min_isr(None, (1,)) is None
    assert health.is_at_min_isr(None, (1,), is_lacking=True) is None


def test_nobody_leads_an_offline_partition_and_that_is_not_a_preference() -> None:
    assert health.is_offline(-1)
    assert not health.is_offline(0)
    assert not health.is_off_preferred_leader((1, 2), -1)
    assert health.is_off_preferred_leader((1, 2), 2)
    assert not health.is_off_preferred_leader((1, 2), 1)


@given(reassignments())
def test_losing_a_replica_never_heals(partition: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]) -> None:
    replicas, isr, adding = partition
    before = health.is_under_replicated(replicas, isr, adding)
    assert health.is_under_replicated(replicas, isr[1:], adding) >= before


@given(reassignments(), st.integers(1, 6))
def test_at_and_under_the_minimum_exclude_each_other(
    partition: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], configured: int
) -> None:
    replicas, isr, adding = partition
    minimum = health.effective_min_isr(configured, replicas)
    is_lacking = health.is_under_replicated(replicas, isr, adding)
    assert not (health.is_under_min_isr(minimum, isr) and health.is_at_min_isr(minimum, isr, is_lacking=is_lacking))


@given(BROKERS, st.integers(1, 6))
def test_a_full_isr_is_never_at_the_minimum(replicas: tuple[int, ...], configured: int) -> None:
    """With as many replicas as the minimum Kafka says so for ever; nothing was lost."""
    assert health.is_at_min_isr(health.effective_min_isr(configured, replicas), replicas, is_lacking=False) is False


@given(BROKERS, st.integers(1, 6))
def test_a_full_isr_is_never_under_the_minimum(replicas: tuple[int, ...], configured: int) -> None:
    assert health.is_under_min_isr(health.effective_min_isr(configured, replicas), replicas) is False


def test_a_replica_of_a_busy_partition_is_not_behind_while_it_gets_what_there_was_at_the_look_before() -> None:
    since: Micros | None = None
    before: int | None = None
    told = []
    for at, end, leader_end in ((1, 10, 12), (2, 12, 14), (3, 13, 16), (4, 15, 18), (5, None, 18), (6, 15, 20)):
        since = health.behind_since(since, before, Micros(at), end, leader_end)
        before = leader_end
        told.append(since)
    assert told == [1, 2, 2, 2, None, 6]
    assert health.behind_since(Micros(6), 20, Micros(7), 20, 20) is None


@given(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))
def test_lag_is_never_negative_and_unknown_where_a_position_is(position: int | None, end: int | None) -> None:
    lag = health.lag(position, end)
    assert (lag is None) == (position is None or end is None)
    assert lag is None or lag >= 0


def test_a_count_that_needs_the_minimum_is_absent_only_while_no_minimum_is_there() -> None:
    assert health.known_by_minimum(3, 5, 5) is None
    assert health.known_by_minimum(3, 5, 4) == 3
    assert health.known_by_minimum(0, 0, 0) == 0


@given(st.integers(0, 2**50), st.integers(0, 2**31), st.integers(-5, 5))
def test_a_transaction_is_late_from_the_first_microsecond_after_its_timeout(
    start: int, timeout: int, more: int
) -> None:
    at = Micros(start + timeout * 1000 + more)
    assert health.is_late(Micros(start), timeout, at) is (more > 0)
    assert health.is_late(None, timeout, at) is None
    assert health.is_late(Micros(start), None, at) is None
