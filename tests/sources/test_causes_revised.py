"""Causes that a later record proves: judged by the model, and by what real clusters wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, EventKind, Evidence, Subject
from streaming.contracts.identifiers import ClusterId, Micros, Offset
from streaming.contracts.observations import CauseRevised, PartitionObserved
from streaming.contracts.records import (
    BrokerRegistrationChange,
    FeatureLevel,
    LeaderChange,
    NoOp,
    RecordBatch,
    RegisterBroker,
)
from streaming.model.controller.change import Mode
from streaming.sources.metadata_log.image import ClusterImage
from tests.blocks import singly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.changes.state import Change
    from streaming.contracts.observations import Observation
    from streaming.contracts.records import MetadataRecord

    Lab = Callable[..., Any]

pytest_plugins = ["tests.plugins.laboratory"]
SESSION = 9_000


def told(batches: Iterable[RecordBatch], *, restarts: bool = False) -> list[Observation]:
    """What a source tells of a log; it may start again from its checkpoint after each batch."""
    image = ClusterImage(cluster_id=ClusterId("c"), cluster="c", source="metadata_log:a")
    seen: list[Observation] = []
    for batch in batches:
        seen += singly(image.apply(batch, Micros(1)))
        if restarts:
            image = ClusterImage.from_document(json.loads(json.dumps(image.to_document())))
    return seen


def revisions(seen: Iterable[Observation]) -> list[CauseRevised]:
    return [observed for observed in seen if isinstance(observed, CauseRevised)]


def changes(seen: Iterable[Observation]) -> tuple[ReplicationState, list[Change]]:
    state = ReplicationState()
    folded = fold(state, seen)
    state.apply(folded.touched)
    return state, [change for change in folded.changes if change.subject is Subject.PARTITION]


def log_of(lab: Lab, action: str, lessons: int = 2) -> list[RecordBatch]:
    return [commit.batch for commit in ended(lab, action, lessons).commits]


def ended(lab: Lab, action: str, lessons: int = 2) -> Any:
    """A cluster whose broker 3, which leads nothing, has ended and stayed away.

    Before, broker 1, which leads, stops for a while so many times: that shows the session timeout.
    """
    it = lab(broker_session_timeout_ms=SESSION)
    it.topic("a", [(1, 3), (2, 3)], min_isr=1)
    it.run(it.cluster.now + 2_000)
    for _ in range(lessons):
        it.inflict(("stop", 1))
        it.run(it.cluster.now + 2 * SESSION)
        it.inflict(("start", 1))
        it.run(it.cluster.now + 2_000)
        it.cluster.admin.elect_leaders(Mode.PREFERRED, [it.key("a", 0), it.key("a", 1)])
        it.run(it.cluster.now + 2_000)
    it.inflict((action, 3))
    it.run(it.cluster.now + 4 * SESSION)
    return it


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clean_stop_that_looked_like_an_expired_session_is_proven_later(lab: Lab, *, restarts: bool) -> None:
    it = ended(lab, "stop")
    seen = told([commit.batch for commit in it.commits], restarts=restarts)
    state, stepped = changes(seen)
    revised = [change for change in stepped if isinstance(change.observation, CauseRevised)]
    assert {(change.cause, change.evidence) for change in revised} == {(Cause.CONTROLLED_SHUTDOWN, Evidence.PROVEN)}
    assert [[event.event for event in change.events] for change in revised] == [[EventKind.CAUSE_REVISED]] * 2
    assert [it.causes(it.key("a", number))[-1] for number in (0, 1)] == [Cause.CONTROLLED_SHUTDOWN] * 2
    for partition in state.partitions():
        assert (partition.last_cause, partition.last_evidence) == (Cause.CONTROLLED_SHUTDOWN, Evidence.PROVEN)
    assert [change.left_isr for change in stepped if change.left_isr == (3,)] == [(3,), (3,)], "counted once"


@pytest.mark.parametrize("lessons", [0, 1])
def test_until_two_shutdowns_have_shown_the_session_timeout_a_fencing_proves_nothing(lab: Lab, lessons: int) -> None:
    assert revisions(told(log_of(lab, "stop", lessons))) == []


def test_a_second_fencing_at_another_time_than_a_session_timeout_proves_nothing(lab: Lab) -> None:
    """A broker whose session expired is fenced again when its process, not unfenced yet, asks to shut down."""
    batches = log_of(lab, "kill")
    place, fencing = next(
        (number, record)
        for number, batch in reversed([*enumerate(batches)])
        for record in batch.records
        if isinstance(record, BrokerRegistrationChange) and record.broker == 3 and record.fenced > 0
    )
    expired = batches[place]
    later = [batch for batch in batches[place + 1 :] if batch.timestamp - expired.timestamp <= 3 * SESSION * 1000]

    def fenced_again(after_ms: int) -> list[RecordBatch]:
        at, time = Offset(later[0].base_offset), Micros(expired.timestamp + after_ms * 1000)
        return [*batches[: place + 1], replace(expired, base_offset=at, timestamp=time, records=(fencing,))]

    doubtful = [item for item in told(batches) if isinstance(item, PartitionObserved)][-1]
    assert doubtful.candidates == (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)
    assert [len(revisions(told(fenced_again(ms)))) for ms in (100, 4_000, SESSION - 1_500, 13_000)] == [0, 0, 0, 0]
    assert len(revisions(told(fenced_again(SESSION + 200)))) == 2, "as after a clean stop"


def test_of_controllers_that_are_not_known_to_be_of_4_0_a_second_fencing_proves_nothing(lab: Lab) -> None:
    batches = log_of(lab, "stop")

    def with_features(*features: FeatureLevel) -> list[RecordBatch]:
        others = [
            replace(batch, records=tuple(NoOp() if isinstance(it, FeatureLevel) else it for it in batch.records))
            for batch in batches
        ]
        first = others[0]
        return [replace(first, records=(*(features or (NoOp(),)), *first.records[1:])), *others[1:]]

    assert revisions(told(with_features())) == []
    assert revisions(told(with_features(FeatureLevel(feature="metadata.version", level=21)))) == []
    assert len(revisions(told(with_features(FeatureLevel(feature="metadata.version", level=22))))) == 2


@pytest.mark.parametrize("action", ["kill", "pause"])
def test_a_session_that_expired_is_never_taken_for_a_clean_stop(lab: Lab, action: str) -> None:
    seen = told(log_of(lab, action))
    assert [observed.evidence for observed in seen if isinstance(observed, PartitionObserved)][-1] is Evidence.AMBIGUOUS
    assert revisions(seen) == []


@pytest.mark.parametrize("kind", [RegisterBroker, LeaderChange])
def test_what_gives_a_session_anew_or_forgets_all_leaves_the_doubt(lab: Lab, kind: type[MetadataRecord]) -> None:
    batches = log_of(lab, "stop")
    (proof, *_) = revisions(told(batches))
    place = next(number for number, batch in enumerate(batches) if batch.base_offset == proof.metadata_offset)
    known = [record for batch in batches for record in batch.records if isinstance(record, kind)]
    of_broker_3 = [record for record in known if getattr(record, "broker", 3) == 3]  # there is one controller
    between = replace(batches[place], records=(of_broker_3[-1],))
    later = [replace(batch, base_offset=batch.base_offset + 1) for batch in batches[place:]]
    assert revisions(told([*batches[:place], between, *later])) == []


def test_a_proof_leaves_alone_what_happened_since_and_says_what_it_is_about(lab: Lab) -> None:
    seen = told(log_of(lab, "stop"))
    (first, *_) = revisions(seen)
    about = next(
        item for item in seen if isinstance(item, PartitionObserved) and item.metadata_offset == first.revised_offset
    )
    state, _ = changes(seen[: seen.index(first)])
    before = state.topics[ClusterId("c"), first.topic_id][first.partition]
    state.topics[ClusterId("c"), first.topic_id][first.partition] = before._replace(
        last_cause=Cause.EXPAND, last_evidence=Evidence.PROVEN, last_cause_offset=first.revised_offset + 1
    )
    folded = fold(state, [replace(first, sequence=0)])
    (change,) = (item for item in folded.changes if item.subject is Subject.PARTITION)

    assert change.after is not None
    assert (change.after.last_cause, change.after.partition_epoch) == (Cause.EXPAND, about.partition_epoch)
    assert f"offset {first.revised_offset}" in (change.events[0].detail or "")


def test_another_collectors_proof_is_a_repetition(lab: Lab) -> None:
    seen = told(log_of(lab, "stop"))
    _, once = changes(seen)
    _, twice = changes([*seen, *seen])
    assert [change.after for change in twice] == [change.after for change in once]


@pytest.mark.parametrize("log", ["one_controller", "controller_failover", "replication_links"])
def test_in_the_logs_of_real_clusters_a_proof_is_about_a_step_that_was_reported_ambiguous(
    recorded_log: Callable[[str], list[RecordBatch]], log: str
) -> None:
    seen = told(recorded_log(log))
    ambiguous = {
        (item.topic_id, item.partition, item.metadata_offset)
        for item in seen
        if isinstance(item, PartitionObserved) and item.candidates == (Cause.FENCED, Cause.CONTROLLED_SHUTDOWN)
    }
    assert {(item.topic_id, item.partition, item.revised_offset) for item in revisions(seen)} <= ambiguous
