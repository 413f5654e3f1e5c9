"""Rules of the protocol: each can be broken, and Kafka, as the model has it, breaks none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Observation
from streaming.contracts.records import RecordBatch
from streaming.sources.metadata_log.image import ClusterImage
from tests.changes.conftest import LAG, Story, only, state_after
from tests.examples import examples
from tests.plays import SCENARIOS, observations

pytest_plugins = ["tests.plugins.laboratory"]
BEFORE = {"isr": (1, 2), "leader": 1, "leader_epoch": 5, "partition_epoch": 7}


def breaches(told: Iterable[Observation]) -> list[str]:
    changes = fold(ReplicationState(), told).changes
    events = [event for change in changes for event in change.events]
    return [event.detail or "" for event in events if event.event is EventKind.PROTOCOL_VIOLATION]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"isr": (2,)}, "leader 1 is not in the ISR [2]"),
        ({"isr": (1, 9)}, "ISR [1, 9] is not within the replicas [1, 2, 3]"),
        ({"elr": (9,)}, "ELR [9] is not within the replicas [1, 2, 3]"),
        ({"elr": (1,)}, "ELR [1] and ISR [1, 2] overlap"),
        ({"leader_epoch": 4}, "leader epoch went back from 5 to 4"),
        ({"leader_epoch": 7}, "leader epoch jumped from 5 to 7 in one change"),
        ({"leader": 2}, "the leader changed from 1 to 2 within the leader epoch 5"),
        ({"partition_epoch": 7, "isr": (1,)}, "it changed, and its epoch 7 did not grow"),
        ({"partition_epoch": 7, "isr": (1, 2, 3)}, "it changed, and its epoch 7 did not grow"),
        (
            {"leader": 3, "isr": (3,), "leader_epoch": 6},
            "leader 3 was elected from outside ISR and ELR without being called unclean",
        ),
    ],
)
def test_each_rule_can_be_broken_and_a_breach_is_an_event(story: Story, fields: dict[str, Any], sentence: str) -> None:
    story.snapshot([BEFORE])
    story.later().partition(**{**BEFORE, "partition_epoch": 8, **fields}, **LAG)
    assert breaches(story.seen) == [sentence]
    assert only(state_after(story.seen)).missed_changes == 0


def test_a_partition_that_appears_is_checked_too(story: Story) -> None:
    story.snapshot([])
    story.later().partition(isr=(1, 9))
    assert breaches(story.seen) == ["ISR [1, 9] is not within the replicas [1, 2, 3]"]


def test_a_jump_of_epochs_is_changes_missed_and_no_breach(story: Story) -> None:
    story.snapshot([BEFORE])
    story.later().partition(isr=(3,), leader=3, leader_epoch=9, partition_epoch=12, **LAG)
    assert breaches(story.seen) == []


def test_a_reassignment_may_end_with_the_election_of_who_has_just_caught_up(story: Story) -> None:
    moving = {"replicas": (4, 1), "adding_replicas": (4,), "removing_replicas": (1,), "isr": (1,), "leader": 1}
    story.snapshot([{**moving, "leader_epoch": 5, "partition_epoch": 7}])
    story.later().partition(replicas=(4,), isr=(4,), leader=4, leader_epoch=6, partition_epoch=8, **LAG)
    assert breaches(story.seen) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_scenario_of_the_model_breaks_a_rule(name: str) -> None:
    assert breaches(observations(name)) == []


acts = st.tuples(
    st.sampled_from(["kill", "start", "stop", "pause", "resume", "lose_power", "wipe"]), st.sampled_from([1, 2, 3])
)


@pytest.mark.parametrize("elr", [True, False])
@settings(
    max_examples=examples(8),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schedule=st.lists(st.tuples(st.integers(1, 1_200), acts), max_size=12))
def test_no_fault_makes_the_model_break_a_rule(
    lab: Callable[..., Any],
    elr: bool,  # noqa: FBT001 - a parameter of the test
    schedule: list[tuple[int, tuple[str, int]]],
) -> None:
    it = lab(
        eligible_leader_replicas=elr,
        broker_session_timeout_ms=1_600,
        replica_lag_time_max_ms=1_000,
        broker_heartbeat_interval_ms=300,
    )
    it.topic("a", [(1, 2, 3), (2, 3, 1)], min_isr=2)
    it.topic("c", [(2, 3)], min_isr=1, unclean=True)
    for wait, act in schedule:
        it.run(it.cluster.now + wait)
        it.inflict(act)
    it.heal((1, 2, 3))
    it.run(it.cluster.now + 8_000)
    image = ClusterImage(cluster_id=ClusterId("c"), cluster="c", source="metadata_log:a")

    assert breaches(told for commit in it.commits for told in image.apply(commit.batch, Micros(1))) == []


@pytest.mark.parametrize("log", ["one_controller", "controller_failover", "replication_links"])
def test_no_real_cluster_broke_a_rule(recorded_log: Callable[[str], list[RecordBatch]], log: str) -> None:
    image = ClusterImage(cluster_id=ClusterId("c"), cluster="c", source="metadata_log:a")
    assert breaches(told for batch in recorded_log(log) for told in image.apply(batch, Micros(1))) == []
