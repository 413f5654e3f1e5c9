"""A cluster on ZooKeeper under random faults: safe meanwhile, whole again once they stop.

The laboratory checks every invariant after every step. Links to -100 are links to ZooKeeper; a broker may be the
controller, and be cut off, frozen or killed as such.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples

BROKERS = (1, 2, 3)
SHORT = {
    "start_up_ms": 0,
    "auto_leader_rebalance_enable": False,
    "broker_session_timeout_ms": 1_600,
    "zookeeper_tick_ms": 200,
    "replica_lag_time_max_ms": 1_000,
}

brokers = st.sampled_from(BROKERS)
nodes = st.sampled_from((*BROKERS, -100))
links = st.tuples(nodes, nodes).filter(lambda link: link[0] != link[1])
faults = st.one_of(
    st.tuples(st.sampled_from(["kill", "start", "stop", "pause", "resume"]), brokers),
    st.tuples(st.sampled_from(["hold", "release"]), links),
)
schedules = st.lists(st.tuples(st.integers(1, 2_400), faults), max_size=12)


@pytest.mark.parametrize("preset", ["legacy-0.8", "legacy-2.4", "zk-3.x"])
@settings(max_examples=examples(2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(schedule=schedules)
@example(schedule=[(1, ("pause", 1)), (2_400, ("resume", 1))])  # the controller wakes up and is none any more
@example(schedule=[(1, ("hold", (1, -100))), (2_400, ("kill", 3)), (100, ("release", (1, -100)))])
@example(schedule=[(1, ("hold", (-100, 1))), (2_400, ("kill", 2)), (100, ("release", (-100, 1)))])
def test_nothing_breaks_and_everything_heals_on_zookeeper(
    lab: Any, preset: str, schedule: list[tuple[int, tuple[str, Any]]]
) -> None:
    it = lab(preset=preset, **SHORT)
    keys = [*it.topic("a", [(1, 2, 3), (2, 3, 1)], min_isr=2), *it.topic("b", [(3, 1)]), *it.topic("c", [(2, 3)])]
    for key in keys[1:]:
        it.keep_writing(key, 3, 40)
    for wait, fault in schedule:
        it.run(it.cluster.now + wait)
        it.inflict(fault)
    for _ in range(3):  # a broker that was stopping needs up to 15 s, and is started again once it has stopped
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
