"""An incident as a row of its table."""

from __future__ import annotations

from streaming.changes.incidents.document import encode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.delta.incidents.rows import incident_row
from tests.changes.test_announced_incidents import played


def test_writing_a_row_moves_nothing_of_the_incident_that_the_fold_continues_with() -> None:
    fold = IncidentFold(IncidentGaps())
    (incident,) = fold.fold(played([(10, "kill", {"broker": 3})], 40, []))
    incident.updated_at += 5_000_000  # the counts of the fold are behind it
    before = encode_incident(incident)

    rows = [incident_row(incident, 1, fold.times("c"), may_go_on=True) for _ in range(2)]

    assert encode_incident(incident) == before
    assert rows[0] == rows[1]
