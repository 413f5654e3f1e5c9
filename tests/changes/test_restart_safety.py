"""Advice to stop a broker, judged by stopping it in the model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from streaming.changes.advice.restart_safety import RestartAdvice, restart_advice
from streaming.changes.advice.suspects import SuspectTally, contributions_with_blame
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, Micros
from streaming.contracts.observations import (
    EXPIRED_CERTIFICATE,
    IN_ITS_TAIL,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    MaintenanceObserved,
    Observation,
    SourceKind,
)
from streaming.sources.metadata_log.image import ClusterImage
from tests.changes.conftest import Story, state_after
from tests.changes.restart_oracle import judge
from tests.changes.test_tally import shape_of
from tests.examples import examples

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
    max_examples=examples(12),
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
            if any(who == victim and each.startswith(name) for who, each in contributions_with_blame(shape_of(p)))
        }
        for name in ("would_go_offline", "would_go_under_min_isr")
    }

    tally = SuspectTally(before.partitions())
    would_go_offline = restart_advice(before.brokers.values(), before.clusters[CLUSTER], tally)[BrokerId(victim)][0]
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
    assert would_go_offline == len(offline)
    assert all(now.leader != NO_LEADER for was, now in pairs if not was.is_offline and victim not in was.isr)


def known(told: Sequence[Observation]) -> tuple[ReplicationState, SuspectTally]:
    state = state_after(told)
    return state, SuspectTally(state.partitions())


def advised(told: Sequence[Observation], **quorum: Any) -> dict[int, RestartAdvice]:
    state, tally = known(told)
    cluster = state.clusters[CLUSTER]._replace(**quorum)
    return {int(broker): each for broker, each in restart_advice(state.brokers.values(), cluster, tally).items()}


def advice(told: Sequence[Observation]) -> tuple[dict[int, bool | None], list[int]]:
    each = advised(told)
    placed = sorted((advice.restart_order, broker) for broker, advice in each.items() if advice.restart_order)
    return {broker: advice.is_safe_to_stop for broker, advice in each.items()}, [broker for _, broker in placed]


def test_brokers_with_few_leaders_come_first_and_the_controller_last(story: Story) -> None:
    story.controller(2, 1)
    story.config("2")
    story.snapshot([{"leader": 1}, {"leader": 1}, {"leader": 3}])
    assert advice(story.seen) == ({1: True, 2: True, 3: True}, [3, 1, 2])


def test_while_another_broker_may_go_down_for_planned_work_only_that_one_is_safe(story: Story) -> None:
    story.config("1")
    story.snapshot([{}])
    lease = story.lease(3, 600)
    assert advice([*story.seen, lease]) == ({1: False, 2: False, 3: True}, [3])
    assert advised([*story.seen, lease])[3].restart_order == 1
    assert advised([*story.seen, lease])[1].restart_reason == (
        "planned work on broker 3 is announced, which may go down: wait until it is over, or end it with "
        "isrwatch maintenance --broker 3 --end when that broker is back and in sync"
    )
    story.later().broker(3, fenced=True)
    story.partition(isr=(1, 2), partition_epoch=1)
    safe, order = advice([*story.seen[:-2], lease, *story.seen[-2:]])
    assert (safe[1], safe[2], order) == (True, True, [2, 1])


def test_a_broker_whose_loss_would_stop_writes_is_not_safe_and_waits_for_the_one_that_is_behind(story: Story) -> None:
    story.config("2")
    story.snapshot([{"isr": (1, 2)}])
    assert advice(story.seen) == ({1: False, 2: False, 3: True}, [3, 2, 1])
    assert advised(story.seen)[2].restart_reason.startswith("only after broker 3 has caught up")
    story.later().broker(3, fenced=True)
    assert advice(story.seen) == ({1: False, 2: False, 3: None}, [])
    down = "1 partition would go under min ISR: broker 3 must catch up first (down: 3)"
    assert advised(story.seen)[1].restart_reason.startswith(down)


def test_no_broker_of_a_partition_under_its_minimum_is_safe(story: Story) -> None:
    """Whoever is stopped cannot catch up, and it refuses writes until somebody has."""
    story.config("3")
    story.snapshot([{"isr": (1, 2)}, {"replicas": (4, 5, 6), "isr": (4, 5, 6), "leader": 4}], brokers=(1, 2, 3, 7))
    assert advice(story.seen) == ({1: False, 2: False, 3: False, 7: True}, [7])
    waiting = "1 partition it has a replica of is under min ISR already: wait until it has recovered"
    assert advised(story.seen)[3].restart_reason.startswith(waiting)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 partition it has a replica of is offline: bring it back first"),
        (2, "2 partitions it has a replica of are offline: bring them back first"),
    ],
)
def test_no_broker_of_a_partition_that_is_offline_is_safe(story: Story, count: int, said: str) -> None:
    story.config("1")
    story.snapshot([{"isr": (2,), "leader": NO_LEADER}] * count)
    assert advice(story.seen)[0][1] is False
    assert advised(story.seen)[1].restart_reason.split("; ")[0] == said


def test_partitions_that_would_newly_refuse_writes_are_named_beside_those_that_do(story: Story) -> None:
    story.config("2")
    refusing, alone = {"isr": (1,)}, {"replicas": (1,), "isr": (1,)}
    story.snapshot([refusing, alone, {"isr": (1, 3)}, {"isr": (1, 3)}])
    assert advised(story.seen)[1].restart_reason.split("; ")[:2] == [
        "1 partition it has a replica of is under min ISR already, and 1 would go offline: wait until it has recovered",
        "2 more partitions would go under min ISR: broker 2 must catch up first",
    ]


def test_what_the_configuration_makes_unavoidable_is_named_and_does_not_empty_the_order(story: Story) -> None:
    story.config("2")
    one, two = {"replicas": (1,), "isr": (1,)}, {"replicas": (2, 3), "isr": (2, 3), "leader": 2}
    story.snapshot([one, two, {"leader": 3}])
    assert advice(story.seen) == ({1: False, 2: False, 3: False}, [1, 2, 3])
    each = advised(story.seen)
    assert [(e.unavoidable_offline, e.unavoidable_under_min_isr) for e in each.values()] == [(1, 0), (0, 1), (0, 1)]
    assert "1 partition with one replica goes offline while it is down" in each[1].restart_reason
    assert "no more replicas than min ISR refuses acks=all writes" in each[2].restart_reason


@pytest.mark.parametrize(
    ("voters", "caught_up", "safe", "words"),
    [
        ((1, 2, 3), (1, 2, 3), {1: True, 2: True, 3: True}, "every partition stays"),
        ((1, 2, 3), (1, 2), {1: False, 2: False, 3: True}, "only after"),
        ((1, 8, 9), (1, 8), {1: False, 2: True, 3: True}, "would lose its majority: voter 9 must catch up first"),
        ((7, 8, 9), (7, 9), {1: True, 2: True, 3: True}, "every partition stays"),
        ((7, 8, 9), (7,), {1: False, 2: False, 3: False}, "has no majority to elect other leaders: voter 8, 9 must"),
        ((7, 8, 9), None, {1: None, 2: None, 3: None}, "unknown: which voters"),
        ((1,), (1,), {1: False, 2: True, 3: True}, "the controller quorum of 1 voters has no majority"),
        ((1, 2, 3), None, {1: None, 2: None, 3: None}, "unknown: which voters"),
        (None, None, {1: True, 2: True, 3: True}, "whether it has a vote in the controller quorum is unknown"),
    ],
)
def test_a_vote_in_the_controller_quorum_counts(
    story: Story, voters: Any, caught_up: Any, safe: dict[int, bool | None], words: str
) -> None:
    story.config("1")
    story.snapshot()
    each = advised(story.seen, quorum_voters=voters, quorum_caught_up=caught_up)
    assert {broker: advice.is_safe_to_stop for broker, advice in each.items()} == safe
    assert words in each[1].restart_reason
    is_voter = None if voters is None else 1 in voters
    assert each[1].is_quorum_voter is is_voter


def test_the_reason_of_a_polled_broker_says_that_it_is_as_old_as_the_last_poll() -> None:
    said = {}
    for kind in (SourceKind.METADATA_LOG, SourceKind.POLL):
        story = Story("source:a", kind)
        story.config("1")
        story.snapshot([{}])
        said[kind] = advised(story.seen)[1].restart_reason
    of_polls = "; the brokers are polled: what happened since the last poll is not in this"
    assert said[SourceKind.POLL] == said[SourceKind.METADATA_LOG] + of_polls


def test_while_a_certificate_of_a_listener_has_ended_no_broker_is_restarted(story: Story) -> None:
    """All are up and in sync, because connections that are open go on; one that restarts would not come back."""

    def ended(value: str | None) -> ConfigObserved:
        seen = {**story.beside("listeners:a"), "topic": "", "key": EXPIRED_CERTIFICATE, "value": value}
        return ConfigObserved(**seen, origin=ConfigOrigin.DESCRIBE)

    story.config("1")
    story.snapshot()
    where = "listener REPLICATION of broker 3 at b:9093"
    assert advice([*story.seen, ended(where)]) == ({1: False, 2: False, 3: False}, [])
    assert advised([*story.seen, ended(where)])[1].restart_reason.startswith(
        f"the certificate of {where} has ended: renew it first, a node that restarts does not come back"
    )
    assert advice([*story.seen, ended(where), ended(None)]) == advice(story.seen)
    assert advice([*story.seen, ended(None)])[0] == {1: True, 2: True, 3: True}


def test_the_newest_report_of_the_voters_counts_and_an_old_one_says_nothing_of_who_has_caught_up(story: Story) -> None:
    def voters(source: str, at: int, *caught_up: int) -> ControllerObserved:
        times = {name: Micros(at) for name in ("occurred_not_before", "occurred_not_after", "collected_at")}
        told = {**story.beside(source), **times, "voters": (1, 2, 3), "caught_up": caught_up}
        return ControllerObserved(**told, controller=1, controller_epoch=1)

    story.config("1")
    story.snapshot()
    now = story.now
    state, _ = known([*story.seen, voters("quorum:a", now + 2, 1, 2), voters("quorum:b", now + 1, 1, 2, 3)])
    cluster = state.clusters[CLUSTER]
    assert (cluster.quorum_voters, cluster.quorum_caught_up) == ((1, 2, 3), (1, 2))

    quorum = {"quorum_voters": (1, 2, 3), "quorum_caught_up": (1, 2, 3), "quorum_observed_at": Micros(now)}
    assert advised(story.seen, **quorum)[1].is_safe_to_stop is True
    story.later(300).heartbeat()
    assert advised(story.seen, **quorum)[1].is_safe_to_stop is None


def test_random_clusters_by_brute_force() -> None:
    """All orders of all brokers that are up; ``python -m tests.changes.restart_oracle`` judges as many as asked."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"python -m tests.changes.restart_oracle --seed {seed} --states 400")
    judged = judge(400, seed)
    assert judged.states == 400
    assert min(judged.empty, judged.partial, judged.unavoidable) > 10


def test_a_broker_with_a_partition_of_unknown_minimum_is_neither_safe_nor_unsafe(story: Story) -> None:
    story.snapshot([{"replicas": (1, 2), "isr": (1, 2)}])
    assert advice(story.seen) == ({1: None, 2: None, 3: True}, [3])
    reasons = {number: each.restart_reason for number, each in advised(story.seen).items()}
    assert reasons[1].startswith("unknown: the min ISR of 1 partition is unknown; ")
    assert reasons[3].startswith("every partition")


def announced(story: Story, lease: str, *brokers: int) -> list[MaintenanceObserved]:
    return [story.lease(broker, source=f"maintenance:{lease}", lease=lease, why="upgrade") for broker in brokers]


def test_one_announcement_of_several_brokers_does_not_block_its_own_order(story: Story) -> None:
    """Who announced them takes them down one after the other, and asks in which order."""
    story.config("2")
    story.snapshot([{}, {"leader": 2}, {"leader": 3}])
    rolling = [*story.seen, *announced(story, "a", 1, 2, 3)]
    assert advice(rolling) == ({1: True, 2: True, 3: True}, [1, 2, 3])
    each = advised([*story.seen, *announced(story, "a", 1, 2)])
    assert {number: one.restart_order for number, one in each.items()} == {1: 1, 2: 2, 3: None}
    assert each[3].restart_reason.startswith("planned work on brokers 1, 2 is announced")
    assert "isrwatch maintenance --broker 1 --broker 2 --end when they are back" in each[3].restart_reason
    each = advised([*rolling, *announced(story, "b", 2)])
    assert {number: one.is_safe_to_stop for number, one in each.items()} == {1: False, 2: True, 3: False}
    assert {number: one.restart_order for number, one in each.items()} == {1: None, 2: 1, 3: None}


def test_the_order_beside_announced_work_waits_for_no_broker_that_has_no_place_in_it(story: Story) -> None:
    """Broker 1 may stop once 3 has caught up, which nobody restarts while work on 1 is announced."""
    story.config("2")
    story.snapshot([{"isr": (1, 2)}])
    assert [each.restart_order for each in advised(story.seen).values()] == [3, 2, 1]
    each = advised([*story.seen, *announced(story, "a", 1)])
    assert [one.restart_order for one in each.values()] == [None, None, None]


def test_a_broker_that_was_restarted_leads_nothing_and_is_not_the_first_to_restart_again(story: Story) -> None:
    """An operator who asks before each restart is sent to every broker but the controller."""
    story.config("1")
    for broker in BROKERS:
        story.broker(broker, broker_epoch=broker)
    story.snapshot([{"leader": 2}, {"leader": 3}])
    restarted = []
    for epoch in (11, 12, 13):
        first = advice(story.seen)[1][0]
        restarted.append(first)
        story.later().broker(first, broker_epoch=epoch)
    assert restarted == [1, 2, 3]


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


@pytest.mark.parametrize(
    ("fields", "is_safe"),
    [
        ({}, True),
        ({"ended_before": 8}, False),  # a broker that was killed would be up in the tables until its session expires
        ({"why": "upgrade"}, False),
        ({"isr": (1, 2)}, False),
    ],
    ids=["up and in sync", "within its session", "the command runs", "catches up"],
)
def test_a_command_that_has_ended_takes_nobody_down_once_its_broker_is_up_and_in_sync(
    story: Story, fields: dict[str, Any], *, is_safe: bool
) -> None:
    """Kafka's default session is 9 s. One replica is enough here, so only the announcement is against it."""
    story.config("1")
    story.snapshot([{"isr": fields.get("isr", (1, 2, 3))}])
    tail = story.lease(3, why=fields.get("why", f"upgrade{IN_ITS_TAIL}"))
    story.later(fields.get("ended_before", 10)).heartbeat()
    each = advised([*story.seen[:-1], tail, story.seen[-1]])
    assert (each[1].is_safe_to_stop, each[1].restart_reason.startswith("planned work on broker 3")) == (
        is_safe,
        not is_safe,
    )
