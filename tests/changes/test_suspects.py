from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.suspects import partition_suspects, score
from streaming.contracts.events import Cause
from streaming.contracts.identifiers import NO_LEADER
from streaming.contracts.state import PartitionState


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


def test_who_alone_explains_everything_has_the_full_score() -> None:
    assert score(10, 10, 10) == 1.0


def test_who_explains_half_of_it_alone_has_half_the_score() -> None:
    assert score(5, 5, 10) == 0.5


def test_two_that_are_only_ever_blamed_together_have_none() -> None:
    assert score(10, 0, 10) == 0.0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_score_is_between_nothing_and_one(alone: int, together: int, others: int) -> None:
    assert 0.0 <= score(alone + together, alone, alone + together + others) <= 1.0
