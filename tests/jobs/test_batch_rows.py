"""Rows of batches in the log: what they say, and how many there are."""

from __future__ import annotations

import re

from streaming.jobs.batch_rows import BatchRows, row_of
from streaming.jobs.queries import BatchResult


def batch(observations: int = 3, changes: int = 1, number: int | None = 0, **more: object) -> BatchResult:
    given: dict[str, object] = {"refused": 0, "version": 7, "seconds": 0.25, "clusters": frozenset({"prod"}), **more}
    return BatchResult(observations=observations, changes=changes, number=number, **given)  # type: ignore[arg-type]  # of any field


def without_time(row: str) -> str:
    found, count = re.subn(r" at=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*Z", "", row)
    assert count == 1, row
    return found


class Written:
    """Rows, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.at, self.lines = 100.0, list[str]()
        self.rows = BatchRows(self.lines.append, lambda: self.at)


def test_a_row_has_query_batch_clusters_rows_changes_and_seconds() -> None:
    assert without_time(row_of("replication", [batch()])) == (
        "batch query=replication batch=0 batches=1 clusters=prod rows=3 changes=1 seconds=0.250 version=7"
    )


def test_what_is_not_known_is_left_out() -> None:
    assert without_time(row_of("incidents", [batch(0, 2, None, version=-1, clusters=frozenset())])) == (
        "batch query=incidents batches=1 rows=0 changes=2 seconds=0.250"
    )


def test_a_quiet_query_has_a_row_for_each_batch_at_once_and_many_share_one_in_ten_seconds() -> None:
    log = Written()
    log.rows.add("replication", batch(number=0))
    assert len(log.lines) == 1
    for number in range(1, 5):
        log.at += 2
        log.rows.add("replication", batch(number=number, version=8 + number, refused=1, clusters=frozenset({"b c"})))
    log.rows.write_due()
    assert len(log.lines) == 1, "the others wait"
    log.at += 2
    log.rows.write_due()
    assert without_time(log.lines[1]) == (
        'batch query=replication batch=1-4 batches=4 clusters="b c" rows=12 changes=4 refused=4 seconds=1.000 '
        "version=12"
    )
    log.at += 60
    log.rows.write_due()
    assert len(log.lines) == 2, "each batch is in one row"


def test_queries_do_not_wait_for_each_other_and_the_end_waits_for_nothing() -> None:
    log = Written()
    for query in ("replication", "samples"):
        log.rows.add(query, batch())
        log.rows.add(query, batch(number=1))
    assert len(log.lines) == 2
    log.rows.write_due(is_last=True)
    assert [row.split(" batches")[0].split("query=")[1] for row in log.lines[2:]] == [
        "replication batch=1",
        "samples batch=1",
    ]


def test_a_batch_that_applied_nothing_has_no_row() -> None:
    log = Written()
    log.rows.add("samples", batch(0, 0))
    log.rows.write_due(is_last=True)
    assert log.lines == []


def test_many_clusters_are_counted_and_odd_names_stay_one_word() -> None:
    names = frozenset({f"c{number}" for number in range(1, 9)} | {'a "b"\n'})
    assert r'clusters="a \"b\"\n",c1,c2,c3,c4,+4 ' in row_of("samples", [batch(clusters=names)])
