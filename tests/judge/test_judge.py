"""The judge itself: its table, its arithmetic, and a few plays of it."""

from __future__ import annotations

from tests.judge.table import TABLE

WHENS = {"untouched", "fenced", "disk", "stalled", "lagged", "unclean", "unsafe", "away", "moved", "touched"}


def test_every_row_of_the_table_says_why_and_when() -> None:
    assert all(row.why and row.when in WHENS for row in TABLE.outcomes)
    assert all(bool(row.also) == bool(row.only_if) for row in TABLE.outcomes)


def test_no_row_of_the_table_is_hidden_by_one_before_it() -> None:
    for fault in {row.fault for row in TABLE.outcomes}:
        whens = [row.when for row in TABLE.of(fault)]
        assert len(whens) == len(set(whens))
