"""The simulated source: observations against the truth, determinism, and what each scenario shows."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.codec import encode
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import CLUSTER_TIMES, DISKLESS, MIN_ISR, Observation, SnapshotReason, SourceKind
from streaming.contracts.samples import GroupObserved, GroupOffsetsObserved
from streaming.model.coordinators.group_log import Group
from streaming.sources.simulated import Scenario, SimulatedSource, TraceEntry, load_scenario
from streaming.sources.simulated.reports import Reports
from streaming.sources.simulated.scenario import Action, Fault, Placement, TopicPlan
from streaming.sources.simulated.simulation import Simulation
from tests.blocks import singly
from tests.examples import examples

EPOCH = 1_700_000_000_000_000
SECOND = 1_000_000
SCENARIOS = ("steady", "slow_follower", "broker_loss", "rolling_restart")


def source(scenario: Scenario | str, seed: int = 7) -> SimulatedSource:
    played = load_scenario(scenario) if isinstance(scenario, str) else scenario
    return SimulatedSource(
        played, seed=seed, cluster_id=ClusterId("c1"), cluster="demo", name="simulated:demo", epoch=Micros(EPOCH)
    )


def play(it: SimulatedSource, seconds: float, step: float | None = None) -> list[Observation]:
    """Poll up to ``seconds``, at once or in steps."""
    times = [seconds] if step is None else [step * n for n in range(1, int(seconds / step) + 1)]
    return [each for time in times for each in singly(it.poll(Micros(EPOCH + round(time * SECOND))))]


@cache
def played(name: str) -> tuple[list[Observation], SimulatedSource]:
    """A scenario that comes with the program, its whole first round: played once for every test that only looks."""
    it = source(name)
    return play(it, load_scenario(name).duration), it


def of_kind(observations: Iterable[Observation], kind: str) -> list[Any]:
    return [it for it in singly(observations) if it.kind == kind]


STEP = attrgetter(
    "topic_id", "topic", "partition", "partition_epoch", "leader_epoch", "leader", "replicas", "isr", "elr"
)


def told(observations: Iterable[Observation]) -> list[tuple[Any, ...]]:
    """The steps that observations tell of, deletions left out."""
    steps = [it for it in of_kind(observations, "partition") if not it.in_snapshot]
    return [(*STEP(it), it.occurred_not_after) for it in steps]


def true(trace: Iterable[TraceEntry]) -> list[tuple[Any, ...]]:
    return [(*STEP(it), it.time) for it in trace if not it.deleted]


def digest(observations: Iterable[Observation]) -> str:
    return hashlib.sha256(b"\n".join(encode(it) for it in observations)).hexdigest()


def test_the_first_poll_begins_with_a_snapshot_of_everything_as_it_truly_is() -> None:
    it = source("steady")
    observations = play(it, 0)
    kinds = [observation.kind for observation in observations]
    assert kinds[0] == "snapshot_begin"
    assert observations[0].reason is SnapshotReason.START  # type: ignore[attr-defined]
    (end,) = of_kind(observations, "snapshot_end")
    assert end.partition_counts == (12, 12)
    assert end.brokers == (1, 2, 3)
    told = {
        (each.topic_id, each.partition): (each.leader, each.isr, each.partition_epoch)
        for each in of_kind(observations, "partition")
    }
    assert told == {key: (state.leader, state.isr, state.partition_epoch) for key, state in it.partitions().items()}
    assert len(told) == 24
    assert {config.key for config in of_kind(observations, "config")} == {MIN_ISR, DISKLESS, *CLUSTER_TIMES}
    assert it.trace() == ()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_proven_cause_is_the_true_one_and_an_ambiguous_one_has_it_among_its_candidates(name: str) -> None:
    observations, it = played(name)
    steps = [each for each in of_kind(observations, "partition") if not each.in_snapshot]
    for observed, truth in zip(steps, it.trace(), strict=True):
        possible = {observed.cause} | set(observed.candidates)
        assert truth.cause in possible, f"{observed} but truly {truth}"
        assert len(possible) == 1 or observed.evidence is Evidence.AMBIGUOUS


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("steady", ""),
        ("slow_follower", "lag expand"),
        ("broker_loss", "fenced expand preferred_election unclean_restart last_known_leader elr_election"),
        ("rolling_restart", "controlled_shutdown expand preferred_election"),
    ],
)
def test_each_scenario_shows_its_causes_from_the_first_half_minute_on(name: str, causes: str) -> None:
    _, it = played(name)
    assert {str(entry.cause) for entry in it.trace()} == set(causes.split())
    assert not causes or it.trace()[0].time < EPOCH + 30 * SECOND


def is_healed(it: SimulatedSource) -> bool:
    return all(set(state.isr) == set(state.replicas) for state in it.partitions().values())


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_scenario_is_healed_at_the_end_of_its_round(name: str) -> None:
    assert is_healed(played(name)[1])


@pytest.mark.parametrize(
    "name", ["rolling_restart", *(pytest.param(it, marks=pytest.mark.long) for it in ("slow_follower", "broker_loss"))]
)
def test_the_next_round_is_like_the_first(name: str) -> None:
    it, duration = source(name), load_scenario(name).duration
    play(it, duration)
    steps = len(it.trace())
    play(it, 2 * duration)
    assert is_healed(it)
    assert len(it.trace()) >= 1.5 * steps


def test_a_rolling_restart_leaves_nothing_offline() -> None:
    _, it = played("rolling_restart")
    assert all(entry.leader != -1 for entry in it.trace())


def test_a_clean_stop_of_a_broker_without_leadership_is_ambiguous_to_an_observer() -> None:
    plan = TopicPlan(name="t", partitions=1, replication_factor=3, assignments=((1, 2, 3),))  # type: ignore[arg-type]
    faults = (Fault(at=1, action=Action.STOP, broker=3),)  # type: ignore[arg-type]
    scenario = Scenario(name="s", brokers=(1, 2, 3), topics=(plan,), faults=faults)  # type: ignore[arg-type]
    it = source(scenario)
    (step,) = [each for each in of_kind(play(it, 5), "partition") if not each.in_snapshot]
    assert [entry.cause for entry in it.trace()] == [Cause.CONTROLLED_SHUTDOWN]
    assert step.evidence is Evidence.AMBIGUOUS


def test_topics_come_and_go() -> None:
    plan = TopicPlan(name="t", partitions=4, create_at=5, delete_at=10)
    kept = TopicPlan(name="kept", partitions=2)
    scenario = Scenario(name="s", brokers=(1, 2, 3), duration=20, repeat=True, topics=(plan, kept))  # type: ignore[arg-type]
    it = source(scenario)
    observations = play(it, 40)
    assert [entry.cause for entry in it.trace()] == ([Cause.CREATED] * 4 + [Cause.DELETED] * 4) * 2
    assert len({entry.topic_id for entry in it.trace()}) == 2
    assert len(of_kind(observations, "topic_removed")) == 2
    assert [topic.topic for topic in it.topics().values()] == ["kept"]


def test_sight_is_confirmed_at_least_each_five_seconds() -> None:
    observations, _ = played("steady")
    of_the_log = [it.occurred_not_after for it in observations if it.source_kind is SourceKind.METADATA_LOG]
    gaps = [later - earlier for earlier, later in pairwise(of_the_log)]
    assert min(gaps) >= 0
    assert max(gaps) <= 5 * SECOND
    assert of_the_log[-1] >= EPOCH + 55 * SECOND


def test_offsets_grow_and_are_ordered() -> None:
    offsets = of_kind(played("steady")[0], "replica_offsets")
    assert len(offsets) == 7 * 24 * 3
    assert all(it.log_start_offset <= it.high_watermark <= it.log_end_offset for it in offsets)
    first, *_, last = [it for it in offsets if (it.topic, it.partition, it.broker) == ("orders", 0, 1)]
    assert last.log_end_offset == pytest.approx(60 * 20 + first.log_end_offset, rel=0.2)


def test_brokers_count_only_what_their_leaders_do() -> None:
    """A fence moves no meter; an expand moves the meter of the leader that proposed it."""
    observations, it = played("broker_loss")
    newest = {(it.broker, it.metric): it.metric_value for it in of_kind(observations, "broker_metric")}
    total = Counter[str]()
    for (_, metric), value in newest.items():
        total[metric.removeprefix("kafka_server_replicamanager_")] += value  # type: ignore[assignment]
    assert (total["isrshrinks_total"], total["underreplicatedpartitions"]) == (0, 0)
    # Broker 3 lost its meters in the crash; it led nothing before that.
    assert total["isrexpands_total"] == sum(entry.cause is Cause.EXPAND for entry in it.trace())
    assert total["partitioncount"] == 30 * 3 + 15 * 3 + 5


def test_a_broker_that_is_down_reports_nothing() -> None:
    observations = [it for it in played("broker_loss")[0] if it.collected_at < EPOCH + 25 * SECOND]
    dead = [it for it in observations if it.kind in {"replica_offsets", "broker_metric"} and it.broker == 3]  # type: ignore[attr-defined]
    assert max(it.collected_at for it in dead) < EPOCH + 3 * SECOND


@pytest.mark.parametrize("step", [0.013, 0.5, 7.0])
def test_time_may_be_cut_into_polls_in_any_way(step: float) -> None:
    whole, cut = source("slow_follower"), source("slow_follower")
    seconds = step * int(18 / step)
    assert digest(play(whole, seconds)) == digest(play(cut, seconds, step))


def test_another_seed_is_another_history() -> None:
    assert digest(play(source("broker_loss", seed=1), 12)) != digest(play(source("broker_loss", seed=2), 12))


def test_the_same_seed_gives_the_same_observations_in_another_process() -> None:
    """Also with another hash seed: no set order leaks into the order of anything."""
    program = f"import sys; sys.path[:0] = {sys.path!r}; import runpy; m = runpy.run_path({__file__!r}); "
    program += "print(m['digest'](m['play'](m['source']('broker_loss'), 12)))"
    expected = digest(play(source("broker_loss"), 12))
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        printed = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
        assert printed.strip() == expected


TIMES = st.floats(0, 19)
LINKS = st.tuples(st.integers(1, 3), st.integers(1, 3)).filter(lambda link: link[0] != link[1])
OF_BROKERS = st.sampled_from([Action.KILL, Action.START, Action.STOP, Action.PAUSE, Action.RESUME])
OF_LINKS = st.sampled_from([Action.HOLD, Action.RELEASE])
FAULTS = st.builds(Fault, at=TIMES, action=OF_BROKERS, broker=st.integers(1, 3)) | st.builds(
    Fault, at=TIMES, action=OF_LINKS, link=LINKS
)


@settings(max_examples=examples(15))
@given(faults=st.lists(FAULTS, max_size=10), seed=st.integers(0, 1_000))
def test_whatever_happens_observations_tell_exactly_the_true_steps(faults: list[Fault], seed: int) -> None:
    topics = (
        TopicPlan(name="a", partitions=4, min_insync_replicas=2, records_per_second=10),
        TopicPlan(name="b", partitions=2, replication_factor=1, unclean_leader_election=True, records_per_second=10),
    )
    constants = load_scenario("broker_loss").constants
    played: Any = {"brokers": (1, 2, 3), "topics": topics, "faults": tuple(faults), "constants": constants}
    it = source(Scenario(name="random", duration=20, **played), seed)
    assert told(play(it, 30)) == true(it.trace())
    final = {(each.topic_id, each.partition): each for each in it.trace()}
    for key, state in it.partitions().items():
        assert key not in final or (final[key].leader, final[key].isr) == (state.leader, state.isr)


def racked(placement: Placement) -> Scenario:
    return Scenario(
        name="racks",
        brokers=tuple(map(BrokerId, range(1, 7))),
        racks={BrokerId(broker): "aabbcc"[broker - 1] for broker in range(1, 7)},
        placement=placement,
        topics=(TopicPlan(name="t", partitions=12),),
    )


@pytest.mark.parametrize("placement", Placement)
def test_no_rack_gets_a_second_replica_and_brokers_tell_their_racks(placement: Placement) -> None:
    scenario = racked(placement)
    it = source(scenario)
    racks = {each.broker: each.rack for each in of_kind(play(it, 1), "broker")}
    assert racks == scenario.racks
    assert all(len({racks[broker] for broker in state.replicas}) == 3 for state in it.partitions().values())


def test_round_robin_is_the_same_for_every_seed_and_stripes_are_not() -> None:
    def leaders(placement: Placement, seed: int) -> list[BrokerId]:
        return [state.replicas[0] for state in source(racked(placement), seed).partitions().values()]

    assert leaders(Placement.ROUND_ROBIN, 1) == leaders(Placement.ROUND_ROBIN, 2)
    assert leaders(Placement.STRIPED, 1) == leaders(Placement.STRIPED, 1)
    assert leaders(Placement.STRIPED, 1) != leaders(Placement.STRIPED, 2)


def test_a_hanging_transaction_is_reported_although_no_coordinator_knows_it() -> None:
    transactions = of_kind(play(source("hanging_transaction"), 45), "transaction")
    hanging = [it for it in transactions if it.is_hanging]
    assert {it.transaction_partitions for it in hanging} == {("payments-0",)}
    assert min(it.collected_at for it in hanging) == EPOCH + 40 * SECOND  # released at 20, looked at each 10
    assert {it.transactional_id for it in transactions if not it.is_hanging} == {"billing"}


def test_a_failed_log_directory_is_told_as_offline() -> None:
    directories = of_kind(play(source("disk_failure"), 45), "log_directory")
    offline = {(it.broker, it.log_dir, (it.collected_at - EPOCH) // SECOND) for it in directories if not it.is_online}
    assert offline == {(2, "dir-1", at) for at in (10, 20, 30)}


def test_the_quorum_is_reported_with_its_new_leader() -> None:
    members = of_kind(play(source("controller_failover"), 45), "quorum_member")
    assert {it.node for it in members if it.is_voter} == {100, 101, 102}
    assert members[0].controller == 100
    assert members[-1].controller == 101


def test_settings_are_those_of_the_model() -> None:
    it = source("consumer_groups")
    observed = play(it, 61)
    topics = of_kind(observed, "topic_settings")
    registered = it.topics()
    factors = {key.topic_id: len(partition.replicas) for key, partition in it.partitions().items()}
    last = {each.topic_id: each for each in topics if each.collected_at == EPOCH + 60 * SECOND}
    assert last.keys() == registered.keys() > set()
    for topic_id, topic in registered.items():
        each = last[topic_id]
        assert (each.topic, each.partition_count, each.min_isr) == (topic.topic, topic.partitions, topic.min_isr)
        assert (each.allows_unclean_election, each.replication_factor) == (topic.unclean, factors[topic_id])
    policies = {each.topic: each.cleanup_policy for each in topics}
    assert policies["__consumer_offsets"] == "compact"
    assert {policies[topic] for topic in policies if not topic.startswith("__")} == {"delete"}
    brokers = {each.broker: each for each in of_kind(observed, "broker_settings")}
    assert brokers.keys() == {1, 2, 3}
    constants = load_scenario("consumer_groups").constants
    assert {each.broker_session_timeout_ms for each in brokers.values()} == {constants.broker_session_timeout_ms}


def test_administrators_ask_again_while_no_controller_is_active() -> None:
    late = TopicPlan(name="late", partitions=1, create_at=5.2, delete_at=40)
    it = source(replace(load_scenario("controller_failover"), topics=(late,)))
    play(it, 39)
    assert [topic.topic for topic in it.topics().values()] == ["late"]
    created = next(entry for entry in it.trace() if entry.topic == "late")
    assert EPOCH + 6 * SECOND < created.time < EPOCH + 10 * SECOND


def test_groups_are_reported_with_their_owners_and_what_they_committed() -> None:
    observed = of_kind(play(source("consumer_groups"), 125), "group_offsets")
    last = {(it.group, it.partition): it for it in observed}
    for group, protocol, size in (("billing", "classic", 2), ("shipping", "consumer", 2)):
        rows = [last[group, partition] for partition in range(6)]
        assert {it.group_protocol for it in rows} == {protocol}
        assert {it.members for it in rows} == {size}
        assert len({it.member for it in rows}) == size
        assert all(0 < it.committed_offset <= it.high_watermark for it in rows)
    before = {it.member for it in observed if it.group == "billing" and it.collected_at <= EPOCH + 20 * SECOND}
    assert len(before) == 3


@pytest.fixture
def simulation() -> Simulation:
    """Play until both groups are stable."""
    played = Simulation(load_scenario("consumer_groups"), seed=7, origin=Micros(0), watched=True)
    played.play(25_000, lambda: None)
    assert played.group_violations == {}
    return played


def group_of(simulation: Simulation, name: str) -> Group:
    brokers = simulation.cluster.brokers.values()
    return next(it.groups[name] for broker in brokers for it in broker.apis.groups.log.loaded() if name in it.groups)


def test_every_group_is_reported_by_its_coordinator_with_its_members(simulation: Simulation) -> None:
    reports = Reports(simulation.cluster, cluster_id=ClusterId("id"), cluster="c", source="simulated:a")
    reported = reports.groups(Micros(1))
    described = {each.group: each for each in reported if isinstance(each, GroupObserved)}
    with_offsets = {(each.group, each.group_state) for each in reported if isinstance(each, GroupOffsetsObserved)}
    assert {(name, each.group_state) for name, each in described.items()} == with_offsets
    for name, each in described.items():
        coordinator = simulation.cluster.brokers[each.coordinator].apis.groups.log
        assert any(name in loaded.groups for loaded in coordinator.loaded())
        classic, consumer = group_of(simulation, name).classic, group_of(simulation, name).consumer
        assert each.group_protocol == ("consumer" if classic is None else "classic")
        assert each.members == len(consumer.members if consumer else classic.members if classic else ()) > 0
        assert each.group_state == "Stable"
        assert each.assignor == ("uniform" if consumer else classic.assignor if classic else None)
    assert described.keys() == {"billing", "shipping"}


def test_a_broken_promise_to_a_group_is_kept_once(simulation: Simulation) -> None:
    billing = group_of(simulation, "billing").classic
    assert billing is not None
    billing.leader = "nobody"
    simulation.play(28_000, lambda: None)
    assert list(simulation.group_violations) == ["ValidClassicState"]
    assert "the leader nobody is no member" in str(simulation.group_violations["ValidClassicState"])


def test_where_records_may_be_lost_nothing_is_promised_to_groups(simulation: Simulation) -> None:
    billing = group_of(simulation, "billing").classic
    assert billing is not None
    billing.leader = "nobody"
    simulation.cluster.lose_power(BrokerId(3))
    simulation.play(28_000, lambda: None)
    assert simulation.group_violations == {}
