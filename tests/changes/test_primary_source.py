from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.changes.sources import has_passed, has_reported
from streaming.contracts.observations import Heartbeat, Observation, SourceKind
from streaming.contracts.state import SourceState
from tests.changes.conftest import Story


def heard(authority: SourceKind = SourceKind.METADATA_LOG) -> Observation:
    story = Story(authority=authority)
    story.heartbeat()
    (observed,) = story.seen
    return observed if authority is SourceKind.METADATA_LOG else replace(observed, metadata_offset=None)  # type: ignore[call-arg]


def other(observed: Observation, authority: SourceKind, **fields: int | None) -> SourceState:
    state = SourceState(cluster_id=observed.cluster_id, cluster=observed.cluster, source="b", authority=authority)
    return state._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ahead", "expected"), [(-1, False), (0, True), (1, True)])
def test_a_source_has_reported_up_to_its_offset_in_the_log_and_up_to_its_time_without(
    ahead: int,
    *,
    expected: bool,
) -> None:
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
    ("authority", "at", "offset", "expected"),
    [
        (SourceKind.METADATA_LOG, 11, 10, True),
        (SourceKind.METADATA_LOG, 10, 10, False),
        (SourceKind.METADATA_LOG, None, 10, False),
        (SourceKind.METADATA_LOG, 11, None, False),
        (SourceKind.POLL, 11, 10, False),
    ],
)
def test_only_a_reader_of_the_log_that_is_beyond_an_offset_has_passed_it(
    authority: SourceKind,
    at: int | None,
    offset: int | None,
    *,
    expected: bool,
) -> None:
    assert has_passed(other(heard(), authority, offset=at), offset) == expected
