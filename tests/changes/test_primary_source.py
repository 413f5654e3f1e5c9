"""Sources beside each other: who has reported what, whose log was replaced, and the order in which they are folded."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.changes.fold import merged
from streaming.changes.sources import has_passed, has_reported, of_replaced_logs
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import ClusterId, LogPosition, Micros
from streaming.contracts.observations import Heartbeat, Observation, SourceKind
from streaming.contracts.state import SourceState
from tests.changes.conftest import Story


def heard(source_kind: SourceKind = SourceKind.METADATA_LOG) -> Observation:
    story = Story(source_kind=source_kind)
    story.heartbeat()
    return story.seen[0]


def other(observed: Observation, source_kind: SourceKind, **fields: int | None) -> SourceState:
    state = SourceState(cluster_id=observed.cluster_id, cluster=observed.cluster, source="b", source_kind=source_kind)
    return state._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ahead", "expected"), [(-1, False), (0, True), (1, True)])
def test_a_source_has_reported_up_to_its_offset_or_without_one_its_time(ahead: int, *, expected: bool) -> None:
    log, poll = heard(), heard(SourceKind.POLL)
    assert isinstance(log, Heartbeat)
    assert log.metadata_offset is not None
    by_offset = other(log, SourceKind.METADATA_LOG, offset=log.metadata_offset + ahead, observed_until=0)
    by_time = other(poll, SourceKind.POLL, observed_until=poll.occurred_not_after + ahead)
    assert has_reported(by_offset, log) == expected
    assert has_reported(by_time, poll) == expected


def test_who_has_reported_nothing_or_has_a_lower_rank_has_reported_nothing_of_it() -> None:
    log, poll = heard(), heard(SourceKind.POLL)
    late = log.occurred_not_after + 9
    assert not has_reported(other(poll, SourceKind.POLL), poll)
    assert not has_reported(other(log, SourceKind.POLL, observed_until=late), log)
    assert not has_reported(other(log, SourceKind.NONE, observed_until=late), log)
    assert has_reported(other(poll, SourceKind.METADATA_LOG, observed_until=late), poll)


@pytest.mark.parametrize(
    ("source_kind", "at", "offset", "expected"),
    [
        (SourceKind.METADATA_LOG, 11, 10, True),
        (SourceKind.METADATA_LOG, 10, 10, False),
        (SourceKind.METADATA_LOG, None, 10, False),
        (SourceKind.METADATA_LOG, 11, None, False),
        (SourceKind.POLL, 11, 10, False),
    ],
)
def test_only_a_reader_of_the_log_that_is_beyond_an_offset_has_passed_it(
    source_kind: SourceKind, at: int | None, offset: int | None, *, expected: bool
) -> None:
    assert has_passed(other(heard(), source_kind, offset=at), offset) == expected


def test_a_source_whose_log_is_another_one_begins_again_and_what_is_missing_is_an_event() -> None:
    kept, replaced = (
        SourceState(
            ClusterId("c"),
            "c",
            name,
            SourceKind.METADATA_LOG,
            position=70,
            sequence=9,
            observed_until=Micros(5),
            log_id=1,
        )
        for name in ("log:kept", "log:replaced")
    )

    (change,) = of_replaced_logs([kept, replaced], {"log:replaced": LogPosition(20, 2), "log:other": LogPosition(1, 3)})

    assert change.subject is Subject.SOURCE
    assert change.source_after == replaced._replace(position=20, log_id=2, sequence=0, observed_until=None)
    assert change.observation.occurred_not_after == replaced.observed_until
    (event,) = change.events
    assert event.event is EventKind.CHANGES_MISSED
    assert "log:replaced" in (event.detail or "")
    assert "after number 9" in (event.detail or "")


REPORTED = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=20).map(
    lambda pairs: [(source, moment, (source, number, moment)) for number, (source, moment) in enumerate(pairs)]
)


@given(REPORTED)
def test_each_source_keeps_its_order_and_nothing_is_lost(reported: list[tuple[str, int, tuple[str, int, int]]]) -> None:
    order = merged(reported)
    assert sorted(order) == sorted(item for _, _, item in reported)
    for _, items in groupby(sorted(order, key=lambda item: item[0]), lambda item: item[0]):
        numbers = [number for _, number, _ in items]
        assert numbers == sorted(numbers)


def test_sources_are_merged_by_time_and_a_clock_that_runs_back_is_held() -> None:
    assert merged([("a", 1, "a1"), ("a", 5, "a2"), ("a", 2, "a3"), ("b", 3, "b1"), ("b", 6, "b2")]) == [
        "a1", "b1", "a2", "a3", "b2",
    ]  # fmt: skip
