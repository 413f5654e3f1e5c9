"""Where replicas go with KRaft: outcomes that Kafka's own tests assert, and what holds for any cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerEpoch, BrokerId
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.placement import JavaRandom, UsableBroker, check_assignments, place, usable_brokers
from streaming.model.messages.registrations import BrokerRegistration
from tests.examples import examples
from tests.plugins.transcript_vectors import kafkas_mock_random, usable


def cluster(text: str) -> list[UsableBroker]:
    return usable(text.split())


def test_all_pairs_of_leader_and_follower_occur_for_the_order_is_shuffled_once_all_have_led() -> None:
    placed = place(cluster("0 1 2 3"), 200, 2, kafkas_mock_random())
    counts = Counter("".join(map(str, replicas)) for replicas in placed)
    assert " ".join(f"{pair}:{count}" for pair, count in sorted(counts.items())) == (
        "01:14 02:22 03:14 10:17 12:17 13:16 20:13 21:17 23:20 30:20 31:19 32:11"
    )


@pytest.mark.parametrize(
    ("brokers", "replication_factor"), [("1 2 3", 0), ("1 2 3", -1), ("1 2 3", 4), ("1f 2f", 1), ("", 1)]
)
def test_statement_03_a_replication_factor_the_cluster_cannot_have_is_refused(
    brokers: str, replication_factor: int
) -> None:
    with pytest.raises(RefusedRequest) as refused:
        place(cluster(brokers), 1, replication_factor, kafkas_mock_random())
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR


clusters = st.lists(
    st.builds(UsableBroker, st.integers(0, 20).map(BrokerId), st.sampled_from("ABC"), st.booleans()),
    min_size=1,
    unique_by=lambda it: it.broker,
).filter(lambda brokers: any(not it.fenced for it in brokers))


@settings(max_examples=examples(20))
@given(brokers=clusters, data=st.data(), seed=st.integers())
def test_leaders_live_brokers_differ_and_racks_are_used_up_first(
    brokers: Sequence[UsableBroker], data: st.DataObject, seed: int
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, 20, replication_factor, JavaRandom(Random(seed).getrandbits))
    known = {it.broker: it for it in brokers}
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert not known[replicas[0]].fenced
        racks = {known[broker].rack for broker in replicas}
        assert len(racks) == min(replication_factor, len({it.rack for it in brokers}))


@settings(max_examples=examples(20))
@given(bound=st.integers(1, 2**31 - 1), seed=st.integers())
def test_java_draws_below_the_bound(bound: int, seed: int) -> None:
    assert 0 <= JavaRandom(Random(seed).getrandbits).next_int(bound) < bound


def test_java_draws_again_beyond_the_last_multiple_of_the_bound() -> None:
    drawn = iter([2**31 - 1, 5])
    assert JavaRandom(lambda _: next(drawn)).next_int(3) == 2


def registered() -> dict[BrokerId, BrokerRegistration]:
    alive = BrokerRegistration(BrokerEpoch(1), "i", fenced=False)
    leaving = alive._replace(in_controlled_shutdown=True)
    return {
        BrokerId(1): alive._replace(rack="a"),
        BrokerId(2): alive,
        BrokerId(3): alive._replace(fenced=True),
        BrokerId(4): leaving,
        BrokerId(5): leaving._replace(fenced=True),
    }


def test_who_is_shutting_down_gets_no_replicas_but_who_is_fenced_does() -> None:
    assert usable_brokers(registered()) == cluster("1@a 2 3f 5f")


@pytest.mark.parametrize(
    ("assignments", "reason"),
    [
        ([[]], "a replica list is empty"),
        ([[1, 2], [1]], "different lengths"),
        ([[1, 9]], "broker 9 is not registered"),
        ([[1, 1]], "names a broker twice"),
        ([[3, 4, 5]], "fenced or shutting down"),
    ],
)
def test_an_assignment_by_hand_is_refused_with_its_reason(assignments: list[list[int]], reason: str) -> None:
    with pytest.raises(match=reason) as refused:
        check_assignments([tuple(map(BrokerId, replicas)) for replicas in assignments], registered())
    assert refused.value.error is Error.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_by_hand_needs_one_live_broker_a_partition() -> None:
    check_assignments([(BrokerId(3), BrokerId(1)), (BrokerId(2), BrokerId(4))], registered())
