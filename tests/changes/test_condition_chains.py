"""Chains of spells: which incident names what follows, and what begins at once."""

from __future__ import annotations

from typing import Any

from streaming.contracts.conditions import Condition, Spell
from tests.changes.conftest import EXPAND, FENCED, Story, rows_from
from tests.changes.test_conditions import Watch


def refusing(*steps: tuple[float, int, tuple[int, ...], dict[str, Any]]) -> list[Spell]:
    """The spells of partitions that refuse writes. A step: seconds later, which partition, its ISR, the cause."""
    story, epochs, all_replicas = Story(), [0, 0], ((1, 2, 3), (1, 4, 5))
    story.config("3")
    story.snapshot([{"replicas": each, "isr": each} for each in all_replicas], (1, 2, 3, 4, 5))
    for seconds, number, isr, cause in steps:
        epochs[number] += 1
        story.later(seconds)
        story.partition(number, replicas=all_replicas[number], isr=isr, partition_epoch=epochs[number], **cause)
    watch = Watch()
    watch.follow(rows_from(story.seen))
    of_all = [it for it in watch.table.values() if it.condition == Condition.UNDER_MIN_ISR]
    return sorted(of_all, key=lambda it: it.began_at)


LOST_AND_BACK = (60, 0, (1, 2), FENCED), (1, 0, (1, 2, 3), EXPAND)


def test_what_was_too_short_to_be_raised_does_not_name_what_follows() -> None:
    first, second = refusing(*LOST_AND_BACK, (100, 1, (1, 4), FENCED))
    assert first.incident_id != second.incident_id == second.explained_by
    assert second.since == second.began_at


def test_what_was_raised_names_what_follows() -> None:
    lost, back = LOST_AND_BACK
    first, second = refusing(lost, (70, *back[1:]), (100, 1, (1, 4), FENCED))
    assert first.incident_id == second.incident_id != second.explained_by
    assert second.since == first.began_at


def test_what_begins_at_once_is_one_chain_and_the_newest_incident_names_it() -> None:
    first, second = refusing((60, 0, (1, 2), FENCED), (15, 1, (1, 4), FENCED))
    assert (first.since, first.incident_id) == (second.since, second.incident_id)
    assert first.explained_by != second.explained_by == second.incident_id
    alone, later = refusing((60, 0, (1, 2), FENCED), (25, 1, (1, 4), FENCED))
    assert alone.incident_id != later.incident_id


def test_harm_that_begins_soon_after_harm_that_was_raised_has_its_name() -> None:
    for seconds, has_its_name in ((50, False), (70, True), (299, True), (301, False)):
        first, second = refusing((60, 0, (1, 2), FENCED), (seconds, 1, (1, 4), FENCED))
        assert first.explained_by != second.explained_by
        assert (first.incident_id == second.incident_id) == has_its_name, seconds
        assert second.since == second.began_at
