"""Advice to stop a broker, judged by stopping it in the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.restart_safety import is_safe_to_stop, restart_order
from streaming.changes.state import ReplicationState
from streaming.changes.tally import SuspectTally, contributions_with_blame
from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, Micros
from streaming.sources.image import ClusterImage
from tests.changes.conftest import Story
from tests.changes.test_tally import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.observations import Observation

pytest_plugins = ["tests.plugins.laboratory"]
BROKERS = (1, 2, 3)
CLUSTER = ClusterId("cluster-1")
SHORT = {"broker_session_timeout_ms": 1_600, "replica_lag_time_max_ms": 1_000, "broker_heartbeat_interval_ms": 300}
LONG_ENOUGH = 12_000  # every session, lag window and shutdown is over by then

faults = st.one_of(
    st.tuples(st.sampled_from(["kill", "start", "stop", "pause", "resume"]), st.sampled_from(BROKERS)),
    st.tuples(
        st.just("hold"), st.tuples(st.sampled_from(BROKERS), st.sampled_from(BROKERS)).filter(lambda x: x[0] != x[1])
    ),
)
schedules = st.lists(st.tuples(st.integers(1, 1_200), faults), max_size=8)


def seen(lab: Any) -> ReplicationState:
    """What a monitor knows that has read the whole metadata log."""
    image = ClusterImage(cluster_id=CLUSTER, cluster="main", source="metadata_log:a")
    state = ReplicationState()
    told = [observation for commit in lab.commits for observation in image.apply(commit.batch, Micros(1))]
    state.apply(fold(state, told).touched)
    return state


@pytest.mark.parametrize("elr", [True, False])
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schedule=schedules, victim=st.sampled_from(BROKERS))
@example(schedule=[(1, ("kill", 2)), (1, ("kill", 3))], victim=1)
@example(schedule=[(1, ("kill", 3))], victim=2)
@example(schedule=[], victim=1)
def test_what_is_told_of_stopping_a_broker_happens_when_it_stops(
    lab: Callable[..., Any],
    elr: bool,  # noqa: FBT001 - a parameter of the test
    schedule: list[tuple[int, tuple[str, Any]]],
    victim: int,
) -> None:
    it = lab(eligible_leader_replicas=elr, **SHORT)
    it.topic("a", [(1, 2, 3), (2, 3, 1)], min_isr=2)
    it.topic("b", [(3, 1), (1, 2)], min_isr=1)
    it.topic("d", [(1,), (2,)], min_isr=1)
    it.topic("c", [(2, 3, 1)], min_isr=3)
    for wait, fault in schedule:
        it.run(it.cluster.now + wait)
        it.inflict(fault)
    it.run(it.cluster.now + LONG_ENOUGH)
    before = seen(it)
    at_stake = {
        name: {
            (p.topic, p.partition)
            for p in before.partitions()
            if (victim, name) in set(contributions_with_blame(shape_of(p)))
        }
        for name in ("would_go_offline", "would_go_under_min_isr")
    }

    it.inflict(("kill", victim))
    it.run_until(lambda: it.cluster.controller.registry.brokers[victim].fenced)  # before anybody comes back
    pairs = list(zip(before.partitions(), seen(it).partitions(), strict=True))
    offline = {(was.topic, was.partition) for was, now in pairs if now.is_offline and not was.is_offline}
    under = {
        (was.topic, was.partition)
        for was, now in pairs
        if not was.is_under_min_isr and len(set(now.isr) - {victim}) < (now.min_isr_effective or 0)
    }

    assert at_stake["would_go_under_min_isr"] == under
    assert at_stake["would_go_offline"] >= offline
    assert elr or at_stake["would_go_offline"] == offline
    assert all(now.leader != NO_LEADER for was, now in pairs if not was.is_offline and victim not in was.isr)


def known(told: Sequence[Observation]) -> tuple[ReplicationState, SuspectTally]:
    state = ReplicationState()
    state.apply(fold(state, told).touched)
    return state, SuspectTally(state.partitions())


def advice(told: Sequence[Observation]) -> tuple[dict[int, bool | None], list[BrokerId]]:
    state, tally = known(told)
    cluster, brokers = state.clusters[CLUSTER], list(state.brokers.values())
    safe = {broker.broker: is_safe_to_stop(broker, cluster, tally) for broker in brokers}
    return safe, restart_order(brokers, cluster, tally)


def test_brokers_with_few_leaders_come_first_and_the_controller_last(story: Story) -> None:
    story.controller(2, 1)
    story.config("2")
    story.snapshot([{"leader": 1}, {"leader": 1}, {"leader": 3}])

    assert advice(story.seen) == ({1: True, 2: True, 3: True}, [3, 1, 2])


def test_a_broker_whose_loss_would_stop_writes_is_not_safe_and_has_no_place(story: Story) -> None:
    story.config("2")
    story.snapshot([{"isr": (1, 2)}])

    assert advice(story.seen) == ({1: False, 2: False, 3: True}, [3])


def test_a_broker_with_a_partition_of_unknown_minimum_is_neither_safe_nor_unsafe(story: Story) -> None:
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])

    assert advice(story.seen) == ({1: None, 2: None, 3: True}, [3])


def test_a_broker_that_is_on_its_way_down_has_no_place_in_the_order(story: Story) -> None:
    story.config("1")
    story.snapshot()
    story.later().broker(2, in_controlled_shutdown=True)
    story.later().broker(3, fenced=True)

    assert advice(story.seen)[1] == [1]


def test_nothing_is_said_of_a_broker_that_is_gone_nor_before_the_cluster_was_seen_whole(story: Story) -> None:
    story.config("1")
    story.snapshot()
    begun = story.seen[:-1]
    story.later().broker(3, registered=False)

    assert advice(begun) == ({1: None, 2: None, 3: None}, [])
    assert advice(story.seen)[0] == {1: True, 2: True, 3: None}


def test_no_broker_with_a_replica_of_an_offline_partition_is_safe(story: Story) -> None:
    """It may be the one that the partition waits for."""
    story.config("1")
    story.snapshot([{"replicas": (1, 2), "isr": (2,), "leader": NO_LEADER}])

    assert advice(story.seen)[0] == {1: False, 2: False, 3: True}
