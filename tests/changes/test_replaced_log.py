"""Logs that were replaced: of each such source one change, and none of the others."""

from __future__ import annotations

from streaming.changes.sources import of_replaced_logs
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import ClusterId, LogPosition, Micros
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import SourceState


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
