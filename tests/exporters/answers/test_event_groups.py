"""What happened at one moment to many partitions, for the same cause, is one line."""

from __future__ import annotations

from typing import Any

import pytest

from exporters.answers.event_groups import by_moment
from exporters.read_model.snapshot import EventRow
from tests.exporters.event_rows import NOW, event_row


def lines(*events: EventRow) -> list[str]:
    return [group.line() for group in by_moment(events)]


def loss(partition: int, *kinds: str, **values: Any) -> list[EventRow]:
    """A change of orders-N in which broker 2 leaves the ISR, with its events."""
    return [event_row(event_id=f"{partition}-{kind}", event=kind, partition=partition, **values) for kind in kinds]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "22:13:20.000  orders-3  broker 2 left the ISR (ISR 1, 3)  fenced (proven)"),
        (
            {"event": "isr_expand", "left_isr": (), "joined_isr": (2, 3), "isr_after": (1, 2, 3), "cause": "expand"},
            "22:13:20.000  orders-3  brokers 2, 3 joined the ISR (ISR 1, 2, 3)  expand (proven)",
        ),
        (
            {"event": "offline", "leader_before": 2, "leader_after": -1, "left_isr": ()},
            "22:13:20.000  orders-3  offline  fenced (proven)",
        ),
        ({"isr_after": ()}, "22:13:20.000  orders-3  broker 2 left the ISR (ISR empty)  fenced (proven)"),
        (
            {"evidence": "ambiguous", "candidates": ("fenced", "controlled_shutdown")},
            "22:13:20.000  orders-3  broker 2 left the ISR (ISR 1, 3)  fenced (ambiguous, or controlled_shutdown)",
        ),
        (
            {"event": "fenced", "topic": None, "partition": None, "event_broker": 2, "cause": None},
            "22:13:20.000  broker 2  fenced",
        ),
        (
            {"subject": "cluster", "event": "controller_change", "topic": None, "partition": None, "cause": None,
             "detail": "controller 1 to 2"},
            "22:13:20.000  kafka  controller_change: controller 1 to 2",
        ),
        (
            {"subject": "source", "event": "primary_source_change", "topic": None, "partition": None, "cause": None},
            "22:13:20.000  metadata_log:collector-1  primary_source_change",
        ),
        (
            {"event": "topic_deleted", "partition": None, "cause": "deleted"},
            "22:13:20.000  orders  topic_deleted  deleted (proven)",
        ),
    ],
)  # fmt: skip
def test_an_event_alone_is_a_line(values: dict[str, Any], line: str) -> None:
    assert lines(event_row(**values)) == [line]


def test_what_many_partitions_lost_at_once_is_one_line_below_the_broker() -> None:
    events = [event for number in range(10) for event in loss(number, "isr_shrink", "under_replicated_began")]
    events += loss(20, "isr_shrink", "leader_change", "under_min_isr_began", leader_before=2, leader_after=1)
    events += loss(21, "isr_shrink", "leader_change", "offline", leader_before=2, leader_after=-1, isr_after=())
    fenced = event_row(event="fenced", topic=None, partition=None, event_broker=2, cause=None)
    what = "1 leader moved, 1 partition under min ISR, 1 partition offline"
    assert lines(*events, fenced) == [
        "22:13:20.000  broker 2  fenced",
        f"22:13:20.000  12 partitions  broker 2 left the ISR, {what} (orders-0 orders-1 orders-2 ...)  fenced (proven)",
    ]
    group = next(group for group in by_moment(events) if len(group.events) > 1)
    assert (len(group.events), group.style) == (26, "bold red"), "the colour of the worst"


@pytest.mark.parametrize(
    "different",
    [
        {"occurred_not_after": NOW + 1_000, "occurred_not_before": NOW + 1_000},
        {"cause": "lag"},
        {"evidence": "ambiguous"},
        {"left_isr": (3,)},
        {"source": "poll:collector-2"},
        {"cluster_id": "other"},
        {"occurred_not_before": NOW - 1_000},
    ],
)
def test_what_differs_in_time_cause_broker_or_source_is_another_line(different: dict[str, Any]) -> None:
    apart = [*by_moment([*loss(0, "isr_shrink"), *loss(1, "isr_shrink", **different)])]
    assert [group.subject for group in apart] == ["orders-0", "orders-1"]
    alike = [*by_moment([*loss(0, "isr_shrink"), *loss(1, "isr_shrink")])]
    assert [group.subject for group in alike] == ["2 partitions"]


def test_what_needs_its_own_words_stays_a_line_of_its_own() -> None:
    strange = loss(0, "protocol_violation", detail="the leader is not in the ISR") + loss(
        1, "changes_missed", detail="2"
    )
    assert [line.split("  ")[1:3] for line in lines(*strange)] == [
        ["orders-0", "protocol_violation: the leader is not in the ISR"],
        ["orders-1", "changes_missed: 2"],
    ]


def test_a_partition_that_lost_its_leader_and_got_none_is_offline_and_its_leader_did_not_move() -> None:
    lost = {"left_isr": (), "leader_before": 2, "leader_after": -1}
    events = [each for partition in (0, 1) for each in loss(partition, "leader_change", "offline", **lost)]
    assert lines(*events) == ["22:13:20.000  2 partitions  offline (orders-0 orders-1)  fenced (proven)"]
    moved = loss(2, "isr_shrink", "leader_change", leader_before=2, leader_after=1)
    mixed = [*moved, *(each for each in loss(3, "isr_shrink", "leader_change", "offline"))]
    said = "2 partitions  broker 2 left the ISR, 1 leader moved, 1 partition offline (orders-2 orders-3)"
    assert lines(*mixed) == [f"22:13:20.000  {said}  fenced (proven)"]


@pytest.mark.parametrize("number", [1, 2])
def test_what_becomes_of_a_reassignment_reads_well_of_one_partition_and_of_more(number: int) -> None:
    for kind, said in (("began", "being moved"), ("completed", "moved"), ("cancelled", "not moved, as cancelled")):
        events = [each for partition in range(number) for each in loss(partition, f"reassignment_{kind}", left_isr=())]
        who = "orders-0" if number == 1 else "2 partitions"
        assert lines(*events)[0].startswith(f"22:13:20.000  {who}  {said} ")


def test_an_unclean_election_is_never_hidden_behind_a_moved_leader() -> None:
    events = [event for number in range(2) for event in loss(number, "leader_change", "unclean_election", left_isr=())]
    (line,) = lines(*events)
    assert "2 leaders moved, 2 partitions with an unclean election" in line
    assert next(by_moment(events)).style == "bold red"
