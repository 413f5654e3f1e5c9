"""Safety under random faults, then convergence once they stop, with KRaft and with ZooKeeper.

Each example is a schedule of faults on a small cluster with short topics; the laboratory checks every invariant after
every step. Links to -100 are links to the controller, or to ZooKeeper; there a broker may be the controller, and be cut
off, frozen or killed as such. Hypothesis prints the schedule of a failure, and how to repeat it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.examples import examples

BROKERS = (1, 2, 3)
SHORT = {"broker_session_timeout_ms": 1_600, "replica_lag_time_max_ms": 1_000}
WITH_ZOOKEEPER = SHORT | {"start_up_ms": 0, "auto_leader_rebalance_enable": False, "zookeeper_tick_ms": 200}
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

Schedule = list[tuple[int, tuple[str, Any]]]


def schedules(longest_wait_ms: int, *more_verbs: str) -> st.SearchStrategy[Schedule]:
    nodes = st.sampled_from((*BROKERS, -100))
    links = st.tuples(nodes, nodes).filter(lambda link: link[0] != link[1])
    verbs = st.sampled_from(["kill", "start", "stop", "pause", "resume", *more_verbs])
    faults = st.one_of(
        st.tuples(verbs, st.sampled_from(BROKERS)), st.tuples(st.sampled_from(["hold", "release"]), links)
    )
    return st.lists(st.tuples(st.integers(1, longest_wait_ms), faults), max_size=12)


def breaks_nothing_and_heals(it: Any, schedule: Schedule, *, unclean: bool, rounds: int) -> None:
    keys = [
        *it.topic("a", [(1, 2, 3), (2, 3, 1)], min_isr=2),
        *it.topic("b", [(3, 1)]),
        *it.topic("c", [(2, 3)], unclean=unclean),
    ]
    for key in keys[1:]:
        it.keep_writing(key, 3, 40)
    for wait, fault in schedule:
        it.run(it.cluster.now + wait)
        it.inflict(fault)
    for _ in range(rounds):  # a broker that was stopping is started again once it has stopped
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


@pytest.mark.parametrize("elr", [True, False])
@settings(max_examples=examples(4), suppress_health_check=SLOW)
@given(schedule=schedules(1_200, "lose_power", "sync", "wipe"))
@example(schedule=[(1, ("kill", 1)), (1_000, ("kill", 1))])  # a leader restarts within its session
def test_nothing_breaks_and_everything_heals(lab: Any, *, elr: bool, schedule: Schedule) -> None:
    it = lab(eligible_leader_replicas=elr, broker_heartbeat_interval_ms=300, **SHORT)
    breaks_nothing_and_heals(it, schedule, unclean=True, rounds=2)


@pytest.mark.parametrize("preset", ["legacy-0.8", "legacy-2.4", "zk-3.x"])
@settings(max_examples=examples(2), suppress_health_check=SLOW)
@given(schedule=schedules(2_400))
@example(schedule=[(1, ("pause", 1)), (2_400, ("resume", 1))])  # the controller wakes up and is none any more
@example(schedule=[(1, ("hold", (1, -100))), (2_400, ("kill", 3)), (100, ("release", (1, -100)))])
@example(schedule=[(1, ("hold", (-100, 1))), (2_400, ("kill", 2)), (100, ("release", (-100, 1)))])
def test_nothing_breaks_and_everything_heals_on_zookeeper(lab: Any, preset: str, schedule: Schedule) -> None:
    """A broker that is stopping needs up to 15 s here."""
    breaks_nothing_and_heals(lab(preset=preset, **WITH_ZOOKEEPER), schedule, unclean=False, rounds=3)
