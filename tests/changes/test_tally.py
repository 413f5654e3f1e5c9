from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.advice.suspects import (
    SuspectTally,
    Suspicion,
    contributions_with_blame,
    partition_suspects,
    scores,
)
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.columns import BROKER_COUNTS, CLUSTER_COUNTS, CLUSTER_TOTALS
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, Micros
from streaming.contracts.observations import ConfigOrigin, Observation
from streaming.contracts.state import BrokerState, ObservedTime, PartitionState
from streaming.contracts.tally import Shape
from tests.changes.conftest import FENCED, LAG, STOPPED, Story
from tests.changes.test_maintenance import Announcer
from tests.changes.test_revised_causes import proof
from tests.examples import examples

CLUSTER = ClusterId("cluster-1")
STEPS = [
    {"isr": (1, 2, 3), "leader": 1},
    {"isr": (1, 2), "leader": 1},
    {"isr": (2,), "leader": 2},
    {"isr": (2,), "leader": -1},
    {"replicas": (1, 2, 3, 4), "adding_replicas": (4,), "isr": (1, 2, 3), "leader": 1},
]


@st.composite
def stories(draw: st.DrawFn) -> list[Observation]:
    """A log of random steps of three partitions, with a minimum that comes and goes, and perhaps a deletion."""
    story = Story()
    story.snapshot([{}, {}, {}])
    epochs = [0, 0, 0]
    for number in draw(st.lists(st.integers(0, 3), max_size=12)):
        story.later(draw(st.integers(0, 3)))
        if number == len(epochs):
            story.config(draw(st.sampled_from(["1", "2", "3", None])))
            continue
        epochs[number] += 1
        fields: dict[str, Any] = draw(st.sampled_from(STEPS))
        story.partition(number, partition_epoch=epochs[number], leader_epoch=epochs[number], **fields, **LAG)
    if draw(st.booleans()):
        story.later().removed()
    return story.seen


def counted(told: Sequence[Observation], size: int) -> tuple[ReplicationState, SuspectTally]:
    """Fold in batches of one size, and keep a tally beside the state."""
    state, tally = ReplicationState(), SuspectTally()
    for start in range(0, len(told), size):
        touched = fold(state, told[start : start + size]).touched
        tally.apply(state, touched)
        state.apply(touched)
    return state, tally


NEVER = ObservedTime()


def shape_of(partition: PartitionState) -> Shape:
    return Shape(partition.partition == 0, *(getattr(partition, name) for name in Shape._fields[1:]))


BROKERS = [BrokerState(cluster_id=CLUSTER, cluster="orders-eu", broker=BrokerId(broker)) for broker in range(1, 5)]


def told_by(tally: SuspectTally, observed: ObservedTime = NEVER) -> dict[Any, Any]:
    """Every number of a tally."""
    brokers = {(b, c.name): tally.of_broker(CLUSTER, BrokerId(b), c.name) for b in range(1, 5) for c in BROKER_COUNTS}
    cluster = {column.name: tally.of_cluster(CLUSTER, column.name) for column in CLUSTER_COUNTS}
    scores: dict[Any, Any] = {**tally.suspect_scores(CLUSTER, BROKERS)}
    return brokers | cluster | scores | {c.name: tally.total(CLUSTER, c.name, observed) for c in CLUSTER_TOTALS}


@settings(max_examples=examples(20))
@given(told=stories(), size=st.integers(1, 30))
def test_a_tally_that_follows_the_changes_is_one_that_counts_anew(told: list[Observation], size: int) -> None:
    state, tally = counted(told, size)
    observed = state.clusters[CLUSTER].observed
    assert told_by(SuspectTally(state.partitions()), observed) == told_by(tally, observed)


@settings(max_examples=examples(20))
@given(told=stories())
def test_counts_and_totals_are_those_that_a_person_would_count(told: list[Observation]) -> None:
    state, tally = counted(told, 1)
    observed = state.clusters[CLUSTER].observed
    everything = list(state.partitions())
    live = [partition for partition in everything if not partition.is_deleted]

    numbers = told_by(tally, observed)

    assert numbers["partitions"] == len(live)
    assert numbers["topics"] == bool(live)
    assert numbers["under_replicated_partitions"] == sum(it.is_under_replicated for it in live)
    assert numbers["under_min_isr_partitions"] == sum(bool(it.is_under_min_isr) for it in live)
    assert numbers["unknown_min_isr_partitions"] == sum(it.is_under_min_isr is None for it in live)
    assert numbers["reassigning_partitions"] == sum(bool(it.adding_replicas) for it in live)
    assert numbers[2, "led_partitions"] == sum(it.leader == 2 for it in live)
    assert numbers[2, "in_sync_partitions"] == sum(2 in it.isr for it in live)
    assert numbers["isr_shrinks"] == sum(it.isr_shrinks for it in everything)
    for name in ("offline", "under_replicated", "under_min_isr", "unknown"):
        seconds = [observed.seconds_in(it, f"{name}_seconds") for it in everything]
        assert numbers[f"{name}_seconds"] == pytest.approx(sum(seconds), abs=1e-6)


def test_tallies_of_parts_add_up_to_the_tally_of_the_whole() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{}, {"isr": (1, 2)}, {"isr": (2,), "leader": 2}])
    state, whole = counted(story.seen, 100)
    partitions = list(state.partitions())
    parts = SuspectTally(partitions[:1])
    parts.update(SuspectTally(partitions[1:]))
    assert told_by(parts) == told_by(whole)


def test_an_episode_that_an_answer_reveals_begins_where_the_primary_source_was_heard(story: Story, poll: Story) -> None:
    story.snapshot([{"isr": (1,)}])
    poll.now = story.now
    poll.later(100).config("2", ConfigOrigin.DESCRIBE)
    state, tally = counted([*story.seen, *poll.seen], 1)
    (partition,) = state.partitions()
    assert partition.under_min_isr_since == story.now
    assert tally.total(CLUSTER, "under_min_isr_seconds", ObservedTime(Micros(story.now + 3_000_000))) == 3.0


def test_what_is_at_stake_with_each_broker() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{"isr": (1, 2)}, {"isr": (1,)}, {"isr": (3,), "leader": -1}, {}])
    state, _ = counted(story.seen, 100)

    at_stake = [
        {(broker, name) for broker, name in contributions_with_blame(shape_of(it)) if name.startswith("would_go")}
        for it in state.partitions()
    ]

    assert at_stake == [
        {(1, "would_go_under_min_isr"), (2, "would_go_under_min_isr")},
        {(1, "would_go_offline")},
        set(),
        set(),
    ]


def test_the_broker_that_every_shrunk_isr_lacks_is_the_suspect() -> None:
    story = Story()
    story.snapshot([{}, {}, {}])
    for number, isr in enumerate([(1, 2), (1, 2), (1,)]):
        story.later().partition(number, isr=isr, partition_epoch=1, **LAG)
    assert scored(story) == {1: 0.0, 2: pytest.approx(1 / 6), 3: pytest.approx(5 / 6)}


def scored(*stories: Story) -> dict[int, float]:
    """The scores after what several sources have told, however the batches were cut and the partitions spread."""
    told = sorted((seen for story in stories for seen in story.seen), key=lambda seen: seen.occurred_not_after)
    (state, tally), (_, singly) = counted(told, len(told)), counted(told, 1)
    spread = SuspectTally()
    for partition in state.partitions():
        spread.update(SuspectTally([partition]))
    each = [one.suspect_scores(CLUSTER, state.brokers.values()) for one in (tally, singly, spread)]
    assert each[0] == each[1] == each[2]
    return {**each[0]}


def test_a_planned_restart_scores_nothing_until_the_broker_has_caught_up() -> None:
    story = Story()
    story.snapshot([{}, {}])
    story.later().broker(3, in_controlled_shutdown=True)
    for number in (0, 1):
        story.partition(number, isr=(1, 2), partition_epoch=1, **STOPPED)
    stopping = scored(story)
    story.later().broker(3, fenced=True)
    fenced = scored(story)
    story.later().broker(3, broker_epoch=9, fenced=False, in_controlled_shutdown=False)
    assert stopping == fenced == scored(story) == {1: 0.0, 2: 0.0, 3: 0.0}


def test_a_stop_that_was_proven_afterwards_scores_nothing() -> None:
    story = Story()
    story.snapshot([{}])
    story.later().partition(isr=(1, 2), partition_epoch=1, **FENCED)
    removed_at = story.offset
    story.broker(3, fenced=True)
    assert scored(story)[3] == 1.0
    story.later().add(proof(story, removed_at))
    assert scored(story)[3] == 0.0


def test_a_crash_is_to_blame_alone_also_where_another_broker_is_being_restarted() -> None:
    story = Story()
    story.snapshot([{}, {}, {}])
    story.later().broker(3, fenced=True)
    for number in (0, 1):
        story.partition(number, isr=(1, 2), partition_epoch=1, **FENCED)
    story.later().broker(2, in_controlled_shutdown=True)
    for number, isr in enumerate([(1,), (1,), (1, 3)]):
        story.partition(number, isr=isr, partition_epoch=2, **STOPPED)
    assert scored(story) == {1: 0.0, 2: 0.0, 3: 1.0}


def test_a_broker_that_crashes_after_its_restart_is_to_blame_again() -> None:
    story = Story()
    story.snapshot([{}])
    story.later().broker(3, in_controlled_shutdown=True)
    story.partition(isr=(1, 2), partition_epoch=1, **STOPPED)
    story.later().broker(3, broker_epoch=9, fenced=False, in_controlled_shutdown=False)
    story.later().partition(partition_epoch=2, cause=Cause.EXPAND, evidence=Evidence.PROVEN)
    story.later().broker(3, broker_epoch=9, fenced=True)
    story.partition(isr=(1, 2), partition_epoch=3, **FENCED)
    assert scored(story)[3] == 1.0


def test_announced_work_scores_nothing_while_it_lasts_and_counts_when_it_overruns() -> None:
    story, desk = Story(), Announcer()
    story.snapshot([{}])
    desk.lease(at=0.5, until=60, broker=3)
    story.later().broker(3, fenced=True)
    story.partition(isr=(1, 2), partition_epoch=1, **FENCED)
    assert scored(story, desk)[3] == 0.0
    story.later(120).heartbeat()
    assert scored(story, desk)[3] == 1.0


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
        ({"isr": (1,), "last_cause": Cause.LEADER_STALL}, (1,)),  # and not the healthy followers that it expelled
        ({"last_cause": Cause.LEADER_STALL}, ()),
        ({"replicas": (1, 2, 3, 4), "isr": (1, 2), "adding_replicas": (4,), "removing_replicas": (2,)}, (3,)),
    ],
)
def test_the_missing_brokers_or_the_leader_that_stood_still_are_blamed(
    state: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert partition_suspects(partition(**state)) == expected


def broker(number: int) -> BrokerState:
    return BrokerState(cluster_id=ClusterId("c"), cluster="c", broker=BrokerId(number))


def scores_of(*blamed: tuple[tuple[int, ...], int]) -> dict[int, float]:
    suspected = {Suspicion(tuple(map(BrokerId, who)), by_order=False): count for who, count in blamed}
    return {int(number): value for number, value in scores(suspected, map(broker, (1, 2, 3))).items()}


@pytest.mark.parametrize(
    ("blamed", "expected"),
    [
        ([((2,), 10)], {1: 0.0, 2: 1.0, 3: 0.0}),
        ([((1,), 5), ((2,), 5)], {1: 0.5, 2: 0.5, 3: 0.0}),
        ([((1, 2), 8), ((2,), 2)], {1: 0.4, 2: 0.6, 3: 0.0}),
    ],
)
def test_the_score_is_the_share_of_what_a_broker_explains(blamed: list[Any], expected: dict[int, float]) -> None:
    assert scores_of(*blamed) == expected


@given(st.dictionaries(st.sets(st.integers(1, 3), min_size=1).map(lambda who: tuple(sorted(who))), st.integers(1, 50)))
def test_together_brokers_explain_all_of_it(blamed: dict[tuple[int, ...], int]) -> None:
    assert sum(scores_of(*blamed.items()).values()) == pytest.approx(1.0 if blamed else 0.0)
