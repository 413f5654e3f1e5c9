"""Any interleaving of sources that keeps each one's order, with any repetition, yields the same tables; and gaps do.

Observations that never arrive are reported once, counted by the epochs, and made good by the next snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.sources import SILENCE
from streaming.changes.state import Change, ReplicationState
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.observations import (
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from tests.changes.worlds import (
    WORLDS,
    applied,
    baseline,
    behind_the_log,
    log_of,
    mixed,
    numbered,
    polls_of,
    seen_by_another,
    stretched,
    told_of_kafka,
    truth_of,
)
from tests.examples import examples

worlds = st.integers(0, WORLDS - 1)
dice = st.integers(0, 2**32).map(Random)
checked = settings(max_examples=examples(4))

SLOW = 10  # so that a world lasts for several silences


def seen_by_all(state: ReplicationState) -> dict[Any, Any]:
    """What a poll can see of the partitions that exist."""
    return {
        (it.cluster_id, it.topic, it.topic_id, it.partition): (it.replicas, set(it.isr), it.leader)
        for it in state.partitions()
        if not it.is_deleted
    }


def seconds_of(state: ReplicationState) -> list[float]:
    names = ("offline_seconds", "under_replicated_seconds", "under_min_isr_seconds", "unknown_seconds")
    return [getattr(it, name) for it in state.partitions() for name in names]


def events(changes: Sequence[Change], *kinds: EventKind) -> list[Any]:
    return [event for change in changes for event in change.events if not kinds or event.event in kinds]


@checked
@given(world=worlds, dice=dice)
def test_two_collectors_of_one_log_tell_what_one_tells_however_far_one_is_behind(world: int, dice: Random) -> None:
    log = log_of(world)
    alone = applied([log])
    both = applied(mixed([log, seen_by_another(log, dice)], dice))
    assert told_of_kafka(both.changes) == told_of_kafka(alone.changes)
    assert truth_of(both.state) == truth_of(alone.state)
    assert len({it.event_id for it in events(both.changes)}) == len(events(both.changes))


def begun_late(log: Sequence[Observation], dice: Random) -> tuple[Observation, ...]:
    """A collector that is started in the middle: a START snapshot first, then what follows."""
    begins = [n for n, it in enumerate(log) if isinstance(it, SnapshotBegin)]
    first = dice.choice(begins[1:])
    opening = replace(log[first], reason=SnapshotReason.START)  # type: ignore[call-arg]
    return numbered([opening, *log[first + 1 :]], "metadata_log:late")


@checked
@given(world=worlds, dice=dice)
def test_a_late_collector_brings_the_same_state_and_each_step_is_told_or_missed(world: int, dice: Random) -> None:
    log = log_of(world)
    alone = applied([log])
    first = baseline(log)
    both = applied([log[:first], *mixed([log[first:], begun_late(log, dice)], dice)])
    assert seen_by_all(both.state) == seen_by_all(alone.state)
    assert {key: it.is_fenced for key, it in both.state.brokers.items()} == {
        key: it.is_fenced for key, it in alone.state.brokers.items()
    }
    assert steps_or_missed(both.changes) == steps_or_missed(alone.changes)
    assert min([0.0, *seconds_of(both.state)]) == 0


def steps_or_missed(changes: Sequence[Change]) -> Counter[Any]:
    """Count the accepted steps and the missed ones of each partition that exists or existed, baseline left out."""
    counts: Counter[Any] = Counter()
    for it in changes:
        if it.after is not None and it.before is not None and it.after.partition_epoch != it.before.partition_epoch:
            counts[it.after.topic_id, it.after.partition] += 1 + it.missed
    return +Counter({key: n for key, n in counts.items() if key[0] in lasting(changes)})


def lasting(changes: Sequence[Change]) -> set[str]:
    """The topics that exist from the baseline to the end; of others only a part may have been seen."""
    # A first known minimum is written as a baseline row, too, also of a topic that was created meanwhile.
    first = {it.after.topic_id for it in changes if it.after is not None and it.is_baseline and it.before is None}
    gone = {it.after.topic_id for it in changes if it.after is not None and it.after.is_deleted}
    return first - gone


@checked
@given(world=worlds, dice=dice, source_kind=st.sampled_from([SourceKind.POLL, SourceKind.NONE]))
def test_a_poller_changes_nothing_while_it_is_no_further_ahead_of_the_log_than_the_silence(
    world: int, dice: Random, source_kind: SourceKind
) -> None:
    log = stretched(log_of(world), SLOW)
    alone = applied([log])
    both = applied(behind_the_log(log, polls_of(log, source_kind), dice, lead=SILENCE))
    assert told_of_kafka(both.changes) == told_of_kafka(alone.changes)
    assert both.state.topics == alone.state.topics
    assert both.state.brokers == alone.state.brokers
    assert both.state.configs == alone.state.configs


@checked
@given(world=worlds, dice=dice)
def test_a_poller_further_ahead_takes_over_until_the_logs_next_snapshot(world: int, dice: Random) -> None:
    log = stretched(log_of(world), SLOW)
    alone = applied([log])
    polls = [it for it in polls_of(log, SourceKind.POLL) if it.occurred_not_after < log[-1].occurred_not_after - 1]
    both = applied(behind_the_log(log, polls, dice, lead=20 * SILENCE))
    assert seen_by_all(both.state) == seen_by_all(alone.state)
    assert both.state.clusters["c1"].primary_source is SourceKind.METADATA_LOG
    assert {key: it.is_fenced for key, it in both.state.brokers.items()} == {
        key: it.is_fenced for key, it in alone.state.brokers.items()
    }
    assert min([0.0, *seconds_of(both.state)]) == 0
    assert len({it.event_id for it in events(both.changes)}) == len(events(both.changes))


@checked
@given(world=worlds, dice=dice)
def test_two_pollers_bring_the_state_of_one(world: int, dice: Random) -> None:
    polls = polls_of(log_of(world), SourceKind.POLL)
    alone = applied([polls])
    both = applied(mixed([polls, seen_by_another(polls, dice, "admin:b")], dice))
    assert told_of_kafka(both.changes) == told_of_kafka(alone.changes)
    assert truth_of(both.state) == truth_of(alone.state)


@checked
@given(world=worlds, dice=dice)
def test_each_life_of_a_topic_is_its_own_for_a_poller_too(world: int, dice: Random) -> None:
    log = log_of(world)
    polls = polls_of(log, SourceKind.POLL)
    shown = {(it.topic_id, it.partition) for it in polls if isinstance(it, PartitionObserved)}
    told = applied(mixed([polls], dice))
    assert seen_by_all(told.state) == seen_by_all(applied([polls]).state)
    assert {(it.topic_id, it.partition) for it in told.state.partitions()} == shown
    births = {EventKind.TOPIC_CREATED, EventKind.TOPIC_DELETED}
    lives = Counter(event.event_id for event in events(told.changes, *births))
    assert set(lives.values()) <= {1}
    removed = {it.topic_id for it in log if isinstance(it, TopicRemoved)}
    assert {it.topic_id for it in told.state.partitions() if it.is_deleted} == removed & {key[0] for key in shown}


@checked
@given(world=worlds, dice=dice)
def test_a_rebuilt_cluster_under_the_old_name_is_another_one(world: int, dice: Random) -> None:
    """The same names, topic ids, offsets and times, also of the source; only the cluster's id is another."""
    old, new = log_of(world), log_of(world, "c2")
    one_source = numbered([*old, *new])
    apart = [applied([old]), applied([new])]
    both = applied(mixed([one_source, seen_by_another(old, dice)], dice))
    assert told_of_kafka(both.changes) == told_of_kafka(apart[0].changes) + told_of_kafka(apart[1].changes)
    merged = {key: {**value, **truth_of(apart[1].state)[key]} for key, value in truth_of(apart[0].state).items()}
    assert truth_of(both.state) == merged


@checked
@given(world=worlds, dice=dice)
def test_batches_cut_anywhere_give_the_same_changes(world: int, dice: Random) -> None:
    """With runs of what was confirmed, revised causes and the burial of tombstones."""
    days = 4_000  # a world of two days
    log = stretched(log_of(world), days)

    def told(cut: Sequence[Sequence[Observation]], *, quick: bool) -> tuple[Counter[str], dict[str, Any]]:
        it = applied(cut, quick=quick)
        return told_of_kafka(change for change in it.changes if change.cluster_after is None), truth_of(it.state)

    expected = told([[it] for it in log], quick=False)
    assert told(mixed([log], dice), quick=True) == expected


def with_gaps(log: Sequence[Observation], dice: Random) -> tuple[Observation, ...]:
    """Lose some of what stands between the first snapshot and the last."""
    last = max(n for n, it in enumerate(log) if it.kind == "snapshot_begin")
    lost = set(dice.sample(range(baseline(log), last), min(6, last - baseline(log))))
    return tuple(it for n, it in enumerate(log) if n not in lost)


def gaps_told(changes: Sequence[Change]) -> list[str]:
    return [
        event.event_id
        for it in changes
        if it.subject is Subject.CLUSTER
        for event in it.events
        if event.event is EventKind.CHANGES_MISSED
    ]


@checked
@given(world=worlds, dice=dice)
def test_each_gap_is_told_once_and_the_next_snapshot_makes_the_states_good(world: int, dice: Random) -> None:
    log = log_of(world)
    torn = with_gaps(log, dice)
    holes = sum(later.sequence > before.sequence + 1 for before, later in pairwise(torn))

    told, whole = applied(mixed([torn], dice)), applied([log])

    assert len(set(gaps_told(told.changes))) == len(gaps_told(told.changes)) == holes
    assert truth_of(told.state)["configs"] == truth_of(whole.state)["configs"]
    for key, parts in told.state.topics.items():
        for number, it in parts.items():
            true = whole.state.topics[key][number]
            assert (it.is_deleted, it.leader, it.isr, it.elr, it.is_offline, it.is_under_min_isr) == (
                true.is_deleted, true.leader, true.isr, true.elr, true.is_offline, true.is_under_min_isr
            )  # fmt: skip
            assert it.unknown_seconds >= 0
    assert {key: (it.is_registered, it.is_fenced) for key, it in told.state.brokers.items()} == {
        key: (it.is_registered, it.is_fenced) for key, it in whole.state.brokers.items()
    }


@checked
@given(world=worlds, dice=dice)
def test_what_a_second_collector_has_told_already_was_not_missed(world: int, dice: Random) -> None:
    log = log_of(world)
    ahead = seen_by_another(log, dice)
    late = with_gaps(log, dice)
    told = applied([*mixed([ahead], dice), *mixed([late], dice)])
    assert gaps_told(told.changes) == []
    assert told_of_kafka(told.changes) == told_of_kafka(applied([log]).changes)


@checked
@given(world=worlds, dice=dice)
def test_two_collectors_with_gaps_of_their_own_bring_the_true_state(world: int, dice: Random) -> None:
    log = log_of(world)
    whole = applied([log])
    both = applied(mixed([with_gaps(log, dice), with_gaps(seen_by_another(log, dice), dice)], dice))
    assert {key: {n: (it.isr, it.leader, it.partition_epoch) for n, it in parts.items() if not it.is_deleted}
            for key, parts in both.state.topics.items()} == {
        key: {n: (it.isr, it.leader, it.partition_epoch) for n, it in parts.items() if not it.is_deleted}
        for key, parts in whole.state.topics.items() if key in both.state.topics
    }  # fmt: skip
    accounted = [it.after for it in both.changes if it.after is not None and it.missed]
    assert all(it.missed_changes <= (it.partition_epoch or 0) for it in accounted)
