"""Groups under random faults of brokers, members and links; then every partition has one reader, who has read all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import BrokerId
from streaming.model.clients.positions import GroupProtocol
from streaming.model.invariants.groups import GroupWatch
from streaming.model.messages.clients import CONSUMER_OFFSETS
from streaming.model.messages.network import CONTROLLER
from tests.examples import examples

BROKERS, MEMBERS = (1, 2, 3), (2_000, 2_001, 2_002)
SHORT = {
    "broker_session_timeout_ms": 1_600,
    "replica_lag_time_max_ms": 1_000,
    "broker_heartbeat_interval_ms": 300,
    "group_session_timeout_ms": 1_500,
    "group_heartbeat_interval_ms": 300,
    "group_consumer_heartbeat_interval_ms": 300,
    "group_initial_rebalance_delay_ms": 200,
    "max_poll_interval_ms": 2_000,
    "request_timeout_ms": 1_000,
    "offsets_commit_timeout_ms": 500,
}
PROTOCOLS = {
    "eager": {"assignors": ("range",)},
    "sticky": {"assignors": ("sticky",)},
    "cooperative": {"assignors": ("cooperative-sticky",)},
    "consumer": {"protocol": GroupProtocol.CONSUMER},
}

everybody = st.sampled_from((*BROKERS, *MEMBERS))
links = st.tuples(st.sampled_from((*BROKERS, *MEMBERS, CONTROLLER)), st.sampled_from(BROKERS))
faults = st.one_of(
    st.tuples(st.sampled_from(["kill", "start", "pause", "resume"]), everybody),
    st.tuples(st.sampled_from(["hold", "release"]), links.filter(lambda link: link[0] != link[1])),
)
schedules = st.lists(st.tuples(st.integers(1, 2_000), faults), max_size=8)


class World:
    """Three brokers, and three consumers of a group that reads four partitions and commits five times a second."""

    def __init__(self, it: Any, protocol: str) -> None:
        self.it = it
        self.watch = GroupWatch(it.cluster)
        self._options = {**PROTOCOLS[protocol], "auto_commit_interval_ms": 200}
        it.topic(CONSUMER_OFFSETS, [(1, 2, 3), (2, 3, 1)], min_isr=2)
        self.keys = it.topic("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)], min_isr=2)
        for key in self.keys:
            it.keep_writing(key, 1, 200)
        for member in MEMBERS:
            self.start(member)

    def start(self, node: int) -> None:
        if node in BROKERS:
            self.it.start(node)
        elif node not in self.it.cluster.clients:
            self.it.member("g", "t", node=node, **self._options)

    def inflict(self, fault: tuple[str, Any]) -> None:
        action, subject = fault
        if action == "start":
            self.start(subject)
        elif action in {"hold", "release"}:
            getattr(self.it, action)(*subject)
            getattr(self.it, action)(*reversed(subject))
        else:
            getattr(self.it.cluster, action)(subject)

    def run(self, duration_ms: int) -> None:
        until = self.it.cluster.now + duration_ms
        while self.it.cluster.now < until:
            self.it.run(min(until, self.it.cluster.now + 100))
            self.watch.check()

    def heal(self) -> None:
        for sender in (*BROKERS, *MEMBERS, CONTROLLER):
            for receiver in BROKERS:
                self.it.release(sender, receiver)
                self.it.release(receiver, sender)
        for node in (*BROKERS, *MEMBERS):
            self.it.cluster.resume(BrokerId(node))
            self.start(node)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(3), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(schedule=schedules)
@example(schedule=[(212, ("kill", 1)), (6_000, ("hold", (CONTROLLER, 2)))])
def test_no_partition_has_two_readers_and_no_commit_is_lost(
    lab: Any, protocol: str, schedule: list[tuple[int, tuple[str, Any]]]
) -> None:
    world = World(lab(**SHORT), protocol)
    for wait, fault in schedule:
        world.run(wait)
        world.inflict(fault)
    world.heal()
    world.run(10_000)
    members = [world.it.cluster.clients[node] for node in MEMBERS]
    assert sorted(key for member in members for key in member.membership.owned) == world.keys
    for member in members:
        for key in member.membership.owned:
            leader = world.it.state(key).leader
            assert member.positions[key].offset >= world.it.high_watermark(leader, key) - 1
