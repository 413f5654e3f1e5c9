"""A cluster gets another name in the configuration: its id stays, and its numbers go on under the new name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import SnapshotReason
from tests.changes.conftest import Story

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.changes.state import Change
    from streaming.contracts.observations import Observation


def named(name: str, observations: Iterable[Observation]) -> list[Observation]:
    return [replace(observed, cluster=name) for observed in observations]


def name_after(*batches: Sequence[Observation]) -> str:
    state = ReplicationState()
    for batch in batches:
        state.apply(fold(state, batch).touched)
    return state.clusters[ClusterId("cluster-1")].cluster


def test_the_next_full_report_gives_the_cluster_its_new_name(story: Story) -> None:
    story.snapshot()
    before = len(story.seen)
    story.later(30).snapshot(reason=SnapshotReason.PERIODIC)

    folded = fold(ReplicationState(), [*story.seen[:before], *named("payments", story.seen[before:])])

    assert name_after(story.seen[:before], named("payments", story.seen[before:])) == "payments"
    steps = [change for change in folded.changes if change.cluster_after is not None]
    assert steps[-1].cluster_after is not None
    assert steps[-1].cluster_after.cluster == "payments", "the tables get it, too"
    assert not steps[-1].events


def test_two_collectors_with_two_names_do_not_take_turns(story: Story) -> None:
    other = Story("metadata_log:b")
    story.snapshot()
    other.later(20).snapshot(reason=SnapshotReason.START)
    story.later(40).heartbeat()
    old = list(story.seen)
    other.later(30).snapshot(reason=SnapshotReason.PERIODIC)
    late = other.seen[-5:]

    assert name_after(old, named("payments", other.seen)) == "orders-eu"
    assert name_after(old[:-1], named("payments", [*other.seen[:-5], *late])) == "orders-eu"

    other.later(120).snapshot(reason=SnapshotReason.PERIODIC)
    assert name_after(old, named("payments", other.seen)) == "payments", "nobody uses the first name any more"


def test_two_collectors_with_two_names_do_not_rename_the_brokers_in_turn(story: Story) -> None:
    other = Story("metadata_log:b")
    story.snapshot()
    other.later(20).snapshot(reason=SnapshotReason.START)
    story.later(40).snapshot(reason=SnapshotReason.PERIODIC)
    other.later(40).snapshot(reason=SnapshotReason.PERIODIC)
    state = ReplicationState()
    steps = [
        change.broker_after
        for batch in (story.seen, named("payments", other.seen))
        for change in folded_into(state, batch)
        if change.broker_after is not None
    ]

    assert state.brokers
    assert len(steps) == len(state.brokers), "each is seen for the first time, and then no more"
    assert {broker.cluster for broker in state.brokers.values()} == {"orders-eu"}

    other.later(120).snapshot(reason=SnapshotReason.PERIODIC)
    folded_into(state, named("payments", other.seen))
    assert {broker.cluster for broker in state.brokers.values()} == {"payments"}


def folded_into(state: ReplicationState, batch: Sequence[Observation]) -> Sequence[Change]:
    folded = fold(state, batch)
    state.apply(folded.touched)
    return folded.changes
