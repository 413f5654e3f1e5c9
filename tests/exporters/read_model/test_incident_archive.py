"""The archive of incidents: what is open, what was, what belongs together, and what happened in that time."""

from __future__ import annotations

from typing import Any

import pytest

from exporters.read_model import incident_archive
from exporters.read_model.incident_archive import IncidentArchive, IncidentUnknown, was_open
from streaming.contracts.tables import INCIDENTS
from streaming.errors import TableRefused
from tests.delta.test_layouts import set_layout

SECOND = 1_000_000
OVER: dict[str, Any] = {"carried": None}


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row["incident_id"] for row in rows]


@pytest.fixture
def archive(tables: Any, rows: Any, other_rows: Any) -> IncidentArchive:
    """Of main an open incident, two closed ones, and one that became part of the first; of other a closed one."""
    at = [rows.start + number * 10 * SECOND for number in range(9)]
    harm = {"severity": "critical", "offline_peak": 1}
    tables.put(
        "incidents",
        rows.incident("loss:1", "broker_loss", at[4], short_id="main-1", updated_at=at[6], **harm),
        rows.incident("lag:2", "slow_follower", at[0], short_id="main-2", closed_at=at[1], updated_at=at[1], **OVER),
        rows.incident("stop:3", "controlled_shutdown", at[2], short_id="main-3", closed_at=at[5], updated_at=at[5],
                      severity="info", under_min_isr_peak=2, **OVER),
        rows.incident("lag:4", "slow_follower", at[3], short_id="main-4", closed_at=at[4],
                      merged_into="loss:1", **OVER),
        other_rows.incident("loss:5", "broker_loss", at[3], short_id="other-1", closed_at=at[3], **OVER),
        as_of=1,
    )  # fmt: skip
    return IncidentArchive(tables.directory)


def test_open_ones_come_first_and_what_was_merged_is_found_by_its_id_alone(archive: IncidentArchive) -> None:
    assert ids(archive.all()) == ["loss:1", "loss:5", "stop:3", "lag:2"]
    assert ids(archive.all(["main"])) == ["loss:1", "stop:3", "lag:2"]
    assert ids(archive.all(["id-of-*", "!main"])) == ids(archive.all(["other"])) == ["loss:5"]
    assert archive.of_id("main-4")["incident_id"] == archive.of_id("lag:4")["incident_id"] == "loss:1"
    assert archive.parts(archive.of_id("main-1")) == ["main-4"]
    with pytest.raises(IncidentUnknown, match="3 incidents begin with 'l'"):
        archive.of_id("l")


def test_a_range_selects_what_lasted_within_and_a_moment_what_was_open_then(
    archive: IncidentArchive, rows: Any
) -> None:
    def then(moment: int) -> list[dict[str, Any]]:
        return [row for row in archive.all() if was_open(row, moment)]

    at = [rows.start + number * 10 * SECOND for number in range(9)]
    assert ids(archive.between(at[1], at[2], ["main"])) == ["stop:3", "lag:2"], "both ends are inclusive"
    assert ids(archive.between(at[7], None)) == ["loss:1"], "an open one lasts until now"
    assert ids(archive.between(None, at[0] - 1)) == []
    assert ids(then(at[4])) == ["loss:1", "stop:3"]
    assert ids(then(at[5])) == ["loss:1"], "at the moment of its end it is over"
    assert ids(then(at[0] - 1)) == []


def test_neighbours_are_of_the_same_cluster_in_the_order_of_their_begins(archive: IncidentArchive) -> None:
    first, second, third = (archive.of_id(each) for each in ("main-2", "main-3", "main-1"))
    assert archive.neighbours(first) == (None, second)
    assert archive.neighbours(second) == (first, third)
    assert archive.neighbours(third) == (second, None)
    assert archive.neighbours(archive.of_id("other-1")) == (None, None)


def test_planned_work_with_harm_names_the_harmful_incident_of_its_time(archive: IncidentArchive) -> None:
    assert archive.explained_by(archive.of_id("main-3")) == ["main-1"]
    assert archive.explained_by(archive.of_id("main-1")) == []


def test_a_closed_incident_is_decoded_once_however_often_the_table_changes(
    archive: IncidentArchive, tables: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = archive.of_id("main-2")
    decoded: list[int] = []
    read = incident_archive.columns_of
    monkeypatch.setattr(
        incident_archive, "columns_of", lambda table, names: decoded.append(table.num_rows) or read(table, names)
    )
    tables.put(
        "incidents",
        rows.incident("lag:2", "slow_follower", before["opened_at"], short_id="main-2", as_of_version=1, **OVER),
        rows.incident("loss:6", "broker_loss", rows.start, short_id="main-6", as_of_version=2),
    )
    assert set(ids(archive.all())) == {"lag:2", "loss:6"}, "what expired is gone"
    assert (decoded, archive.of_id("main-2")) == ([1], before)
    archive.all()
    assert decoded == [1], "the same version is not read again"


def test_the_archive_of_a_server_looks_again_after_a_while(tables: Any, rows: Any) -> None:
    clock = [0.0]
    archive = IncidentArchive(tables.directory, look_seconds=1.0, monotonic=lambda: clock[0])
    assert archive.all() == [], "there is no table"
    tables.put("incidents", rows.incident("loss:1", "broker_loss", rows.start), as_of=1)
    assert archive.all() == []
    clock[0] = 1.0
    assert ids(archive.all()) == ["loss:1"]


def test_a_table_that_cannot_be_read_is_no_table_without_incidents(tables: Any, rows: Any) -> None:
    clock = [0.0]
    archive = IncidentArchive(tables.directory, look_seconds=60.0, monotonic=lambda: clock[0])
    tables.put("incidents", rows.incident("loss:1", "broker_loss", rows.start), as_of=1)
    assert ids(archive.all()) == ["loss:1"]
    set_layout(tables.directory / "incidents", INCIDENTS.layout + 1)
    clock[0] = 60.0
    for _ in range(2):
        with pytest.raises(TableRefused, match="newer isrwatch"):
            archive.all()


def test_events_of_its_time_are_all_or_the_oldest_and_it_says_which(tables: Any, rows: Any) -> None:
    at = [rows.start + number * SECOND for number in range(4)]
    shrink = {"event": "isr_shrink", "event_broker": None, "detail": None}
    changes = [
        rows.partition("orders", number, rows.state([1, 2], [1], 1), each,
                       events=[{**shrink, "event_id": str(number)}], left_isr=[2])
        for number, each in enumerate(at)
    ]  # fmt: skip
    tables.commit(rows.cluster_row(), rows.source(rows.start), *changes)
    tables.put("incidents", rows.incident("loss:1", "broker_loss", at[1], updated_at=at[3]), as_of=1)
    archive = IncidentArchive(tables.directory)
    whole, oldest = archive.changes(archive.of_id("loss:1"), 3), archive.changes(archive.of_id("loss:1"), 2)
    assert ([event["occurred_not_after"] for event in whole.events], whole.is_complete) == (at[1:], True)
    assert ([event["occurred_not_after"] for event in oldest.events], oldest.is_complete) == (at[1:3], False)
