"""Time without observation: unknown for every partition, healthy ones too, unless the log's epochs prove it.

What the model's cluster did is accounted for a second time, from what each look showed alone: a state holds until the
next look, and a look after a blind time says nothing of that time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.state import ReplicationState
from streaming.contracts.observations import (
    ConfigObserved,
    ConfigOrigin,
    Heartbeat,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotReason,
    SourceKind,
)
from streaming.contracts.state import SECONDS
from streaming.delta.projections.of_clusters import cluster_rows
from tests.changes.conftest import LAG, Story
from tests.changes.worlds import WORLDS, applied, log_of, mixed, numbered, polls_of
from tests.examples import examples

MICROS = 1_000_000
HOUR = 3_600


def seconds_of(state: ReplicationState, cluster_id: str = "cluster-1") -> dict[str, float]:
    """The totals of all partitions, as ``cluster_state`` has them."""
    tally = SuspectTally(state.partitions())
    (row,) = (row for row in cluster_rows(state, tally, 1) if row["cluster_id"] == cluster_id)
    return {name: row[name] for name in SECONDS}


def look(story: Story, *partitions: dict[str, Any]) -> None:
    """Report as a poller does that goes on; the first one after a failure is longer than a silence after the last."""
    seen = [{"partition_epoch": None, "leader_epoch": None, **fields} for fields in partitions]
    story.snapshot(seen, reason=SnapshotReason.PERIODIC)


def test_a_poller_that_was_blind_knows_nothing_of_that_time_although_it_finds_the_same() -> None:
    story = Story("admin:a", SourceKind.POLL)
    story.config("2", ConfigOrigin.DESCRIBE)
    look(story, {"isr": (1,)}, {})
    story.later(20).heartbeat()
    story.later(2 * HOUR)
    look(story, {"isr": (1,)}, {})

    state = applied([story.seen]).state
    (cluster,) = state.clusters.values()
    one, two = state.partitions()

    assert [cluster.observed.seconds_in(one, name) for name in SECONDS] == [0, 20, 20, 2 * HOUR]
    assert [cluster.observed.seconds_in(two, name) for name in SECONDS] == [0, 0, 0, 2 * HOUR]
    assert seconds_of(state) == dict(zip(SECONDS, (0, 20, 20, 4 * HOUR), strict=True))

    story.later(5)
    look(story, {"isr": (1, 2)}, {})
    story.later(HOUR)
    look(story, {"isr": (1, 2, 3)}, {})
    state, changes = applied([story.seen])
    assert seconds_of(state) == dict(zip(SECONDS, (0, 25, 25, 6 * HOUR), strict=True))
    assert [it.under_replicated_since for it in state.partitions()] == [None, None]
    (back,) = (it.observation for it in changes if it.joined_isr == (3,))
    assert back.occurred_not_after - back.occurred_not_before == HOUR * MICROS


def test_an_equal_epoch_of_the_log_proves_the_time() -> None:
    story = Story()
    story.config("2")
    story.snapshot([{"isr": (1,), "partition_epoch": 3}, {}])
    story.later(2 * HOUR)
    story.snapshot([{"isr": (1,), "partition_epoch": 3}, {}])
    state = applied([story.seen]).state
    assert seconds_of(state) == dict(zip(SECONDS, (0, 2 * HOUR, 2 * HOUR, 0), strict=True))


@pytest.mark.parametrize("is_log_first", [True, False])
def test_a_primary_source_that_takes_over_after_a_silence_proves_nothing_of_it(is_log_first: bool) -> None:  # noqa: FBT001 - a parameter
    log, poll = Story(), Story("admin:a", SourceKind.POLL)
    first, second = (log, poll) if is_log_first else (poll, log)
    epoch = {False: {"partition_epoch": None, "leader_epoch": None}, True: {"partition_epoch": 3}}
    first.snapshot([{"isr": (1, 2), **epoch[is_log_first]}, epoch[is_log_first]])
    second.now = first.now + HOUR * MICROS
    second.snapshot([{"isr": (1, 2), **epoch[not is_log_first]}, epoch[not is_log_first]])
    assert seconds_of(applied([first.seen, second.seen]).state)["unknown_seconds"] == 2 * HOUR


@pytest.mark.parametrize(("later", "unknown"), [(50, 0), (70, 2 * 70)])
def test_a_second_poller_that_starts_while_the_first_polls_follows_no_darkness(later: int, unknown: int) -> None:
    first, second = Story("admin:a", SourceKind.POLL), Story("admin:b", SourceKind.POLL)
    epochs = {"leader_epoch": None, "partition_epoch": None}
    first.snapshot([epochs, epochs])
    second.now = first.now
    second.later(later).snapshot([epochs, epochs])
    state = applied([[*first.seen, *second.seen]]).state
    assert seconds_of(state)["unknown_seconds"] == unknown


def test_a_topic_that_vanished_in_the_dark_keeps_its_unknown_time_and_gets_no_more() -> None:
    story = Story("admin:a", SourceKind.POLL)
    look(story, {"isr": (1, 2)})
    story.later(HOUR)
    look(story)
    story.later(HOUR)
    look(story)
    assert seconds_of(applied([story.seen]).state)["unknown_seconds"] == HOUR


class Look(NamedTuple):
    """What was there at a time; and whether nobody looked since the time before."""

    at: int
    states: dict[Any, PartitionObserved]
    is_after_gap: bool


def account(looks: Sequence[Look]) -> dict[Any, Counter[str]]:
    """Add up the microseconds of each partition, look by look."""
    spent: dict[Any, Counter[str]] = {}
    for one, two in pairwise(looks):
        lasted = two.at - one.at
        for key, observed in one.states.items():
            each = spent.setdefault(key, Counter())
            if two.is_after_gap:
                each["unknown_seconds"] += lasted
                continue
            each["offline_seconds"] += lasted * (observed.leader == -1)
            each["under_replicated_seconds"] += lasted * (len(observed.isr) < len(observed.replicas))
            each["under_min_isr_seconds"] += lasted * (len(observed.isr) < min(2, len(observed.replicas)))
    return spent


def with_blind_times(polls: Sequence[Observation], dice: Random) -> tuple[list[Observation], list[Look]]:
    """Lose some polls in a row; the next one says that it lost history, as the poller does after a failure."""
    rounds: list[list[Observation]] = []
    for it in polls:
        if isinstance(it, SnapshotBegin):
            rounds.append([])
        rounds[-1].append(it)
    kept, looks, is_blind = list[Observation](), list[Look](), False
    for number, each in enumerate(rounds):
        if number and dice.random() < (0.6 if is_blind else 0.15):
            is_blind = True
            continue
        is_after_gap, is_blind = is_blind, False
        reason = SnapshotReason.HISTORY_LOST if is_after_gap else SnapshotReason.PERIODIC
        kept += [replace(it, reason=reason) if isinstance(it, SnapshotBegin) else it for it in each]
        states = {(it.topic_id, it.partition): it for it in each if isinstance(it, PartitionObserved)}
        looks.append(Look(each[0].occurred_not_after, states, is_after_gap))
    return kept, looks


def with_minima(polls: list[Observation]) -> list[Observation]:
    envelope = {item: getattr(polls[0], item) for item in ("cluster_id", "cluster", "source", "source_kind",
        "occurred_not_before", "occurred_not_after", "collected_at")}  # fmt: skip
    topics = {it.topic for it in polls if isinstance(it, PartitionObserved)}
    return [
        *(
            ConfigObserved(**envelope, topic=topic, key="min.insync.replicas", value="2", origin=ConfigOrigin.DESCRIBE)
            for topic in sorted(topics)
        ),
        *polls,
    ]


@settings(max_examples=examples(8))
@given(world=st.integers(0, WORLDS - 1), dice=st.integers(0, 2**32).map(Random))
def test_totals_are_the_models_own_account_whatever_was_deleted_or_not_seen(world: int, dice: Random) -> None:
    """Two clusters of one name at once, the second one rebuilt; topics are deleted, and created again, in both."""
    sources, accounts = [], {}
    for cluster_id in ("c1", "c2"):
        told, looks = with_blind_times(
            polls_of(log_of(world, cluster_id), SourceKind.POLL, f"admin:{cluster_id}"), dice
        )
        sources.append(numbered(with_minima(told)))
        accounts[cluster_id] = account(looks)

    state = applied(mixed(sources, dice)).state

    for cluster_id, spent in accounts.items():
        observed = state.clusters[cluster_id].observed  # type: ignore[index]
        for it in state.partitions():
            if it.cluster_id == cluster_id:
                expected = spent.get((it.topic_id, it.partition), Counter())
                seconds = {name: observed.seconds_in(it, name) for name in SECONDS}
                assert seconds == pytest.approx({name: expected[name] / MICROS for name in SECONDS}, abs=1e-6), it
        sums: Counter[str] = sum(spent.values(), Counter())
        of_cluster = {name: sums[name] / MICROS for name in SECONDS}
        assert seconds_of(state, cluster_id) == pytest.approx(of_cluster, abs=1e-5)


def test_a_story_is_told_by_the_log_between_two_polls() -> None:
    """The log ends, a poller takes over, and the log comes back: each stretch is counted once."""
    log, poll = Story(), Story("admin:a", SourceKind.POLL)
    log.config("2")
    log.snapshot([{"partition_epoch": 3}])
    log.later(10).partition(isr=(1,), partition_epoch=4, **LAG)
    poll.now = log.now + 100 * MICROS
    look(poll, {"isr": (1,)})
    poll.later(30).add(Heartbeat(**poll.envelope()))
    log.now = poll.now + 50 * MICROS
    log.offset += 10
    ended = len(log.seen)
    log.snapshot([{"isr": (1,), "partition_epoch": 9}])

    seconds = seconds_of(applied([log.seen[:ended], poll.seen, log.seen[ended:]]).state)

    assert seconds["unknown_seconds"] == 150
    assert seconds["under_min_isr_seconds"] == 30
