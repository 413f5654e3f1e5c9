"""Three controllers and three brokers under random faults: nothing uncommitted is ever seen, and everything heals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples

CONTROLLERS = (-100, -101, -102)
BROKERS = (1, 2, 3)
NODES = (*BROKERS, *CONTROLLERS)
SHORT = {
    "broker_session_timeout_ms": 3_000,
    "replica_lag_time_max_ms": 1_000,
    "broker_heartbeat_interval_ms": 300,
    "controller_quorum_election_timeout_ms": 300,
    "controller_quorum_fetch_timeout_ms": 600,
}

nodes = st.sampled_from(NODES)
links = st.tuples(nodes, nodes).filter(lambda link: link[0] != link[1])
controllers = st.sampled_from(CONTROLLERS)
verbs = st.sampled_from(["kill", "start", "stop", "pause", "resume"])
faults = st.one_of(
    st.tuples(verbs, controllers), st.tuples(verbs, nodes), st.tuples(st.sampled_from(["hold", "release"]), links)
)
schedules = st.lists(st.tuples(st.integers(1, 1_200), faults), max_size=14)

MISSED_SNAPSHOT = [
    (1, ("kill", 3)), (1, ("kill", -100)), (1, ("kill", -100)), (787, ("pause", -100)), (390, ("start", -100)),
    (1, ("pause", 1)), (471, ("kill", -100)), (130, ("kill", -100)), (1, ("kill", -100)), (390, ("kill", -100)),
]  # fmt: skip
"""A process of broker 3 that starts while controllers change hears the new one only after its snapshot."""


def replayed(it: Any) -> tuple[dict[Any, Any], int]:
    """What the committed batches amount to: the state of each partition, and the log's end. Offsets have no gap."""
    partitions: dict[Any, Any] = {}
    end, epoch = 0, 0
    for commit in it.commits:
        assert commit.batch.base_offset == end
        assert commit.batch.epoch >= epoch
        end, epoch = end + len(commit.batch.records), commit.batch.epoch
        for step in commit.transitions:
            assert partitions.get(step.topic_partition) == step.before
            partitions[step.topic_partition] = step.after
    return partitions, end


@pytest.mark.parametrize("linger", [0, 25])
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(schedule=schedules)
@example(schedule=[(1, ("pause", -100)), (1_100, ("kill", 1)), (1_100, ("resume", -100))])  # a zombie comes back
@example(schedule=[(1, ("hold", (-101, -100))), (1, ("hold", (-102, -100))), (1_000, ("kill", 2))])  # nothing commits
@example(schedule=MISSED_SNAPSHOT)
def test_statement_20_nothing_uncommitted_is_seen_and_everything_heals(
    lab: Any, linger: int, schedule: list[tuple[int, tuple[str, Any]]]
) -> None:
    it = lab(controllers=3, controller_quorum_append_linger_ms=linger, **SHORT)
    keys = [*it.topic("a", [(1, 2, 3), (2, 3, 1)], min_isr=2), *it.topic("b", [(3, 1)])]
    for key in keys:
        it.keep_writing(key, 3, 40)
    for wait, fault in schedule:
        it.run(it.cluster.now + wait)
        it.inflict(fault)
        replayed(it)
    for _ in range(2):  # a broker that was stopping is started again once it has stopped
        it.heal(BROKERS, CONTROLLERS)
        it.run(it.cluster.now + 12_000)
        if it.is_whole(keys):
            break
    assert it.cluster.controllers.active is not None
    partitions, end = replayed(it)
    for key in keys:
        assert partitions[key] == it.state(key)
        assert set(it.state(key).isr) == set(it.state(key).replicas), f"{key}: {it.state(key)}"
    logs = {process.raft.log.end for process in it.cluster.controllers.running.values()}
    assert end <= min(logs) <= max(logs) <= end + 1  # an idle heartbeat may be on its way
