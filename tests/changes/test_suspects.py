from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.advice.suspects import Suspicion, partition_suspects, scores
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId
from streaming.contracts.state import BrokerState, PartitionState


def partition(**fields: Any) -> PartitionState:
    told = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, "last_cause": Cause.LAG, **fields}
    return PartitionState(cluster_id="c", cluster="c", topic_id="t", topic="t", partition=0, **told)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"isr": (1, 2)}, (3,)),
        ({"isr": (1,), "last_cause": Cause.FENCED}, (2, 3)),
        ({"isr": (), "leader": NO_LEADER, "last_cause": Cause.FENCED}, (1, 2, 3)),
        ({"isr": (1, 2, 3)}, ()),
        ({"isr": (1,), "is_deleted": True}, ()),
    ],
)
def test_the_missing_brokers_are_blamed(state: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert partition_suspects(partition(**state)) == expected


def test_a_leader_that_stood_still_is_blamed_and_not_the_healthy_followers_it_expelled() -> None:
    assert partition_suspects(partition(isr=(1,), last_cause=Cause.LEADER_STALL)) == (1,)


def test_a_full_isr_blames_nobody_whatever_its_last_cause_was() -> None:
    assert partition_suspects(partition(last_cause=Cause.LEADER_STALL)) == ()


def test_replicas_on_the_move_are_not_missing() -> None:
    moving = partition(replicas=(1, 2, 3, 4), isr=(1, 2), adding_replicas=(4,), removing_replicas=(2,))

    assert partition_suspects(moving) == (3,)


def broker(number: int) -> BrokerState:
    return BrokerState(cluster_id=ClusterId("c"), cluster="c", broker=BrokerId(number))


def scored(*blamed: tuple[tuple[int, ...], int]) -> dict[int, float]:
    suspected = {Suspicion(tuple(map(BrokerId, who)), by_order=False): count for who, count in blamed}
    return {int(number): value for number, value in scores(suspected, map(broker, (1, 2, 3))).items()}


def test_who_alone_explains_everything_has_the_full_score() -> None:
    assert scored(((2,), 10)) == {1: 0.0, 2: 1.0, 3: 0.0}


def test_who_explains_half_of_it_has_half_the_score() -> None:
    assert scored(((1,), 5), ((2,), 5)) == {1: 0.5, 2: 0.5, 3: 0.0}


def test_two_that_are_missing_from_the_same_isrs_share_the_blame() -> None:
    assert scored(((1, 2), 8), ((2,), 2)) == {1: 0.4, 2: 0.6, 3: 0.0}


@given(st.dictionaries(st.sets(st.integers(1, 3), min_size=1).map(lambda who: tuple(sorted(who))), st.integers(1, 50)))
def test_together_brokers_explain_all_of_it(blamed: dict[tuple[int, ...], int]) -> None:
    assert sum(scored(*blamed.items()).values()) == pytest.approx(1.0 if blamed else 0.0)
