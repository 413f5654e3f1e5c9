"""Safety under random faults, then convergence once they stop.

Each example is a schedule of faults on a small cluster with two short topics; the laboratory checks every invariant
after every step. Hypothesis prints the schedule of a failure, and how to repeat it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples

BROKERS = (1, 2, 3)
SHORT = {"broker_session_timeout_ms": 1_600, "replica_lag_time_max_ms": 1_000, "broker_heartbeat_interval_ms": 300}

brokers = st.sampled_from(BROKERS)
nodes = st.sampled_from((*BROKERS, -100))
links = st.tuples(nodes, nodes).filter(lambda link: link[0] != link[1])
faults = st.one_of(
    st.tuples(st.sampled_from(["kill", "start", "stop", "pause", "resume", "lose_power", "sync", "wipe"]), brokers),
    st.tuples(st.sampled_from(["hold", "release"]), links),
)
schedules = st.lists(st.tuples(st.integers(1, 1_200), faults), max_size=12)


@pytest.mark.parametrize("elr", [True, False])
@settings(max_examples=examples(4), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(schedule=schedules)
@example(schedule=[(1, ("kill", 1)), (1_000, ("kill", 1))])  # a leader restarts within its session
def test_nothing_breaks_and_everything_heals(
    lab: Any, *, elr: bool, schedule: list[tuple[int, tuple[str, Any]]]
) -> None:
    it = lab(eligible_leader_replicas=elr, **SHORT)
    keys = [
        *it.topic("a", [(1, 2, 3), (2, 3, 1)], min_isr=2),
        *it.topic("b", [(3, 1)], min_isr=1),
        *it.topic("c", [(2, 3)], min_isr=1, unclean=True),
    ]
    for key in keys[1:]:
        it.keep_writing(key, 3, 40)
    for wait, fault in schedule:
        it.run(it.cluster.now + wait)
        it.inflict(fault)
    for _ in range(2):  # a broker that was stopping is started again once it has stopped
        it.heal(BROKERS)
        it.run(it.cluster.now + 8_000)
        if it.is_whole(keys):
            break
    for key in keys:
        state = it.state(key)
        assert set(state.isr) == set(state.replicas), f"{key}: {state}"
        assert state.leader in state.isr
    before = {key: it.high_watermark(it.state(key).leader, key) for key in keys[1:]}
    it.run(it.cluster.now + 400)
    assert all(it.high_watermark(it.state(key).leader, key) > offset for key, offset in before.items())
