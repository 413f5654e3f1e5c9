"""A batch cut into buckets gives what one fold gives: changes, totals of drops, and the state for the next batch."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.buckets import CLUSTER_BUCKET, Envelope, Router, owned_changes, owned_drops
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.changes.unchanged_run import UnchangedRun
from streaming.contracts.events import Cause, Evidence, Subject
from streaming.contracts.maintenance import MaintenanceObserved
from streaming.contracts.observations import (
    DISKLESS,
    MIN_ISR,
    BrokerObserved,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Heartbeat,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.delta.change_rows import changes_to_arrow
from streaming.delta.state_reader import apply_changes
from tests.changes.conftest import START, Story
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from streaming.contracts.observations import Observation

SOURCES = {
    "admin:a": SourceKind.POLL,
    "config:a": SourceKind.NONE,
    "maintenance:a": SourceKind.NONE,
    "metadata_log:a": SourceKind.METADATA_LOG,
    "metadata_log:b": SourceKind.METADATA_LOG,
}
TOPICS = ("orders", "payments", "audit", "clicks", "returns")
BUCKETS = 3


def bucket_of(observed: Observation) -> int:
    topic = getattr(observed, "topic", None)
    return 1 + TOPICS.index(topic) % BUCKETS if topic else CLUSTER_BUCKET


def topic_id(topic: str, life: int) -> str:
    return f"{topic}-{life}"


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    """Anything that sources may say in any order: gaps, replays, silence, take-overs, clock jumps, topics again."""
    sequences: Counter[str] = Counter()
    now = START
    seen: list[Observation] = []
    for _ in range(draw(st.integers(1, 60))):
        source = draw(st.sampled_from(sorted(SOURCES)))
        now += draw(st.sampled_from([0, 1, 1, 1, 5, 70, 7_200, -7_200])) * 1_000_000
        sequences[source] += draw(st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2, 3, 0]))
        envelope: dict[str, Any] = {
            "cluster_id": "c",
            "cluster": draw(st.sampled_from(["orders-eu"] * 6 + ["orders-us"])),
            "source": source,
            "authority": SOURCES[source],
            "sequence": max(1, sequences[source] - draw(st.sampled_from([0] * 8 + [1, 3]))),
            "occurred_not_before": now - draw(st.sampled_from([0, 3_000_000])),
            "occurred_not_after": now,
            "collected_at": now + draw(st.sampled_from([1, 1, 1, 1, -3_600_000_000])),
        }
        if SOURCES[source] is SourceKind.METADATA_LOG:
            envelope["metadata_offset"] = len(seen) + 10 - draw(st.sampled_from([0, 0, 0, 5]))
        seen.append(draw(_told(envelope)))
    return seen


@st.composite
def _told(draw: st.DrawFn, envelope: dict[str, Any]) -> Observation:  # noqa: PLR0911 - one per kind
    kind = draw(st.sampled_from([*["partition"] * 8, "removed", "broker", "controller", "config", "beat", "snapshot"]))
    if envelope["source"].startswith("maintenance"):
        lasts = draw(st.sampled_from([0, 1, 60, 600])) * 1_000_000
        return MaintenanceObserved(
            **envelope, broker=draw(st.integers(1, 3)), lease=draw(st.sampled_from("xy")), why="w",
            lease_until=max(0, envelope["occurred_not_after"] + lasts), is_renewal=draw(st.booleans()),
        )  # fmt: skip
    topic, life = draw(st.sampled_from(TOPICS)), draw(st.sampled_from([1, 1, 1, 2]))
    if kind == "partition":
        isr = draw(st.sampled_from([(1, 2, 3), (1, 2), (2,)]))
        epoch = draw(st.integers(0, 6)) if envelope["authority"] is SourceKind.METADATA_LOG else None
        cause = draw(st.sampled_from([{}, {"cause": Cause.LAG, "evidence": Evidence.PROVEN}]))
        return PartitionObserved(
            **envelope, topic_id=topic_id(topic, life), topic=topic, partition=draw(st.integers(0, 1)),
            replicas=(1, 2, 3), isr=isr, leader=isr[0], partition_epoch=epoch, in_snapshot=draw(st.booleans()), **cause,
        )  # fmt: skip
    if kind == "removed":
        return TopicRemoved(**envelope, topic_id=topic_id(topic, life), topic=topic)
    if kind == "broker":
        return BrokerObserved(**envelope, broker=draw(st.integers(1, 3)), fenced=draw(st.booleans()))
    if kind == "controller":
        return ControllerObserved(**envelope, controller=100, controller_epoch=draw(st.integers(1, 4)))
    if kind == "config":
        is_log = envelope["authority"] is SourceKind.METADATA_LOG
        return ConfigObserved(
            **envelope, topic=draw(st.sampled_from(["", "", *TOPICS])),
            key=draw(st.sampled_from([MIN_ISR, MIN_ISR, DISKLESS, DISKLESS, "other"])),
            value=draw(st.sampled_from([None, "1", "2", "true", "true", "false"])),
            origin=ConfigOrigin.LOG if is_log else ConfigOrigin.DESCRIBE,
        )  # fmt: skip
    return draw(_markers(envelope)) if kind == "snapshot" else Heartbeat(**envelope)


@st.composite
def _markers(draw: st.DrawFn, envelope: dict[str, Any]) -> Observation:
    if draw(st.booleans()):
        reason, is_new_log = draw(st.sampled_from(SnapshotReason)), draw(st.sampled_from([False, False, True]))
        is_new_log = is_new_log and envelope["authority"] is SourceKind.METADATA_LOG
        return SnapshotBegin(**envelope, snapshot_id="s", reason=reason, is_new_log=is_new_log)
    named = draw(st.lists(st.sampled_from(TOPICS), unique=True))
    return SnapshotEnd(
        **envelope, snapshot_id="s", topic_ids=tuple(topic_id(topic, 1) for topic in named),
        partition_counts=tuple(draw(st.integers(1, 2)) for _ in named), brokers=(1, 2),
    )  # fmt: skip


def cut(state: ReplicationState, observations: Sequence[Observation]) -> dict[int, list[Observation]]:
    """What each bucket sees."""
    buckets = {CLUSTER_BUCKET, *range(1, BUCKETS + 1)}
    router = Router(state, observations[0].cluster_id, sorted(buckets))
    views: dict[int, list[Observation]] = {bucket: [] for bucket in buckets}
    for routed in router.route([Envelope.of(observed, bucket_of(observed)) for observed in observations]):
        views[routed.bucket].append(routed.instead or observations[routed.order])
    return views


def part_of(state: ReplicationState, bucket: int) -> ReplicationState:
    """What a bucket knows: its own topics, and everything that is few."""
    part = ReplicationState(clusters=state.clusters, sources=state.sources)
    if bucket == CLUSTER_BUCKET:
        part.brokers, part.configs = state.brokers, state.configs
        return part
    names = {topic for topic in TOPICS if 1 + TOPICS.index(topic) % BUCKETS == bucket}
    part.topics = {key: value for key, value in state.topics.items() if next(iter(value.values())).topic in names}
    part.topic_ids = {key: value for key, value in state.topic_ids.items() if key[1] in names}
    part.configs = {key: value for key, value in state.configs.items() if key.topic in {"", *names}}
    return part


def folded_in_buckets(state: ReplicationState, observations: Sequence[Observation]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    drops: Counter[str] = Counter()
    for bucket, view in cut(state, observations).items():
        folded = fold(part_of(state, bucket), view)
        found += changes_to_arrow(owned_changes(bucket, folded)).to_pylist()
        if bucket != CLUSTER_BUCKET:
            drops.update(observed.source for observed in owned_drops(folded.dropped))
    for row in found:
        if row["subject"] == Subject.SOURCE:
            row["source_after"]["duplicates"] += drops[row["source"]]
    return found


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=repr)


def batches(history: list[Observation], cuts: Iterable[int]) -> Iterator[list[Observation]]:
    bounds = sorted({0, len(history), *(at for at in cuts if at < len(history))})
    for lower, upper in itertools.pairwise(bounds):
        yield history[lower:upper]


@settings(max_examples=examples(20))
@given(histories(), st.lists(st.integers(0, 60), max_size=3))
def test_a_fold_of_every_bucket_is_the_fold_of_everything(history: list[Observation], cuts: list[int]) -> None:
    whole, rebuilt = ReplicationState(), ReplicationState()
    for batch in batches(history, cuts):
        folded = fold(whole, batch)
        whole.apply(folded.touched)

        found = folded_in_buckets(rebuilt, batch)

        expected = changes_to_arrow(folded.changes)
        assert in_order(found) == in_order(expected.to_pylist())
        apply_changes(rebuilt, expected)


def test_a_bucket_sees_the_others_as_few_runs() -> None:
    story = Story()
    story.snapshot([{}] * 50)
    for number in range(50):
        story.later().partition(number, isr=(1,), partition_epoch=1)

    views = cut(ReplicationState(), story.seen)

    assert [len(views[bucket]) for bucket in (2, 3)] == [3, 3]  # the two markers, and one run between them
    assert len([seen for seen in views[CLUSTER_BUCKET] if not isinstance(seen, UnchangedRun)]) == 6


@pytest.mark.parametrize("bucket", range(BUCKETS + 1))
def test_a_collectors_clock_that_was_set_back_makes_no_run_look_older_than_it_is(bucket: int) -> None:
    """One run over it would end long after it was collected, and be corrected for that, in the buckets of others."""
    story = Story()
    story.snapshot([{}])
    story.later(100).partition(0, isr=(1,), partition_epoch=1)
    for epoch in (2, 3):
        set_back = replace(story.later().partition(0, isr=(epoch,), partition_epoch=epoch), collected_at=START)
        story.seen[-1] = replace(set_back, occurred_not_before=START, occurred_not_after=START)

    state = ReplicationState()
    state.apply(fold(state, cut(state, story.seen)[bucket]).touched)

    (source,) = state.sources.values()
    assert (source.observed_until, source.collected_at) == (START + 100_000_000, START)


@pytest.mark.parametrize("bucket", range(1, BUCKETS + 1))
def test_a_gap_in_the_numbers_is_told_once_by_the_clusters_bucket(bucket: int) -> None:
    story = Story()
    story.snapshot()
    story.sequence += 4
    story.later().partition(topic=TOPICS[bucket - 1], topic_id="t", partition_epoch=0)

    rows = folded_in_buckets(ReplicationState(), story.seen)
    missed = [row for row in rows for event in row["events"] if event["event"] == "changes_missed"]

    assert [row["subject"] for row in missed] == ["cluster"]
