"""A state that is read from changes is the state that the fold left behind."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import (
    DISKLESS,
    MIN_ISR,
    BrokerObserved,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Heartbeat,
    MaintenanceObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.delta.changes.log import changes_to_arrow, in_commit
from streaming.delta.state import StateVersions, apply_changes
from tests.changes.conftest import START, Story, state_after
from tests.examples import examples
from tests.strategies import streams

SOURCES = {
    "admin:a": SourceKind.POLL,
    "config:a": SourceKind.NONE,
    "maintenance:a": SourceKind.NONE,
    "metadata_log:a": SourceKind.METADATA_LOG,
    "metadata_log:b": SourceKind.METADATA_LOG,
}
TOPICS = ("orders", "payments", "audit", "clicks", "returns")


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
            "cluster": "orders-eu",
            "source": source,
            "source_kind": SOURCES[source],
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
        epoch = draw(st.integers(0, 6)) if envelope["source_kind"] is SourceKind.METADATA_LOG else None
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
        is_log = envelope["source_kind"] is SourceKind.METADATA_LOG
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
        is_new_log = is_new_log and envelope["source_kind"] is SourceKind.METADATA_LOG
        return SnapshotBegin(**envelope, snapshot_id="s", reason=reason, is_new_log=is_new_log)
    named = draw(st.lists(st.sampled_from(TOPICS), unique=True))
    return SnapshotEnd(
        **envelope, snapshot_id="s", topic_ids=tuple(topic_id(topic, 1) for topic in named),
        partition_counts=tuple(draw(st.integers(1, 2)) for _ in named), brokers=(1, 2),
    )  # fmt: skip


def batches(history: list[Observation], cuts: Iterable[int]) -> Iterator[list[Observation]]:
    bounds = sorted({0, len(history), *(at for at in cuts if at < len(history))})
    for lower, upper in itertools.pairwise(bounds):
        yield history[lower:upper]


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("worth_choosing", [0, 1 << 30])
@settings(max_examples=examples(20))
@given(observations=streams())
def test_changes_give_the_state_with_replaced_ones_or_not(worth_choosing: int, observations: list[Observation]) -> None:
    folded = fold(ReplicationState(), observations)
    state = ReplicationState()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming.delta.state.WORTH_CHOOSING", worth_choosing)
        apply_changes(state, in_commit(changes_to_arrow(folded.changes), 1, 0))
    assert state.topics == folded.touched.topics
    assert state.brokers == folded.touched.brokers


@settings(max_examples=examples(20))
@given(histories(), st.lists(st.integers(0, 60), max_size=3))
def test_a_fold_over_what_was_read_is_one_over_what_was_left(history: list[Observation], cuts: list[int]) -> None:
    left, read = ReplicationState(), ReplicationState()
    for batch in batches(history, cuts):
        expected = fold(left, batch)
        left.apply(expected.touched)
        rows = changes_to_arrow(fold(read, batch).changes)
        assert rows.to_pylist() == changes_to_arrow(expected.changes).to_pylist()
        apply_changes(read, in_commit(rows, 1, 0))
    assert (read.clusters, read.sources) == (left.clusters, left.sources)


def test_the_row_of_a_cluster_does_not_move_back_what_its_sources_have_reported_since(story: Story) -> None:
    story.snapshot()
    state = state_after(story.seen)
    story.later().controller(9, 9)
    step = in_commit(changes_to_arrow(fold(ReplicationState(), story.seen).changes), 1, 0)
    story.later(30).heartbeat()
    whole = fold(ReplicationState(), story.seen).touched
    for source in whole.sources.values():  # their table is written more often than that of the clusters
        state.put_source(source)
    apply_changes(state, step, StateVersions(sources=1))
    assert {(each.watermark, each.primary_watermark) for each in state.clusters.values()} == {(story.now, story.now)}
    assert state.clusters == whole.clusters
