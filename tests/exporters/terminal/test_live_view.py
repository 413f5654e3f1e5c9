"""A snapshot as text for a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from exporters.read_model.snapshot import (
    ClusterSnapshot,
    ClusterTotals,
    EventRow,
    PartitionCounts,
    ReplicationSnapshot,
)
from exporters.terminal import live_view
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import BrokerState, ClusterState

NOW = 1_700_000_000_000_000


def event(**values: Any) -> EventRow:
    """A shrink of orders-3: broker 2 left, fenced, proven."""
    defaults: dict[str, Any] = {
        "event_id": "1",
        "event": "isr_shrink",
        "event_broker": None,
        "detail": None,
        "cluster_id": "c",
        "cluster": "kafka",
        "subject": "partition",
        "topic": "orders",
        "partition": 3,
        "occurred_not_before": NOW,
        "occurred_not_after": NOW,
        "source": "metadata_log:collector-1",
        "cause": "fenced",
        "evidence": "proven",
        "candidates": (),
        "left_isr": (2,),
        "joined_isr": (),
        "leader_before": 1,
        "leader_after": 1,
        "isr_before": (1, 2, 3),
        "isr_after": (1, 3),
    }
    return EventRow(**{**defaults, **values})


def shown(renderable: RenderableType, **settings: Any) -> str:
    output = io.StringIO()
    Console(file=output, width=140, **settings).print(renderable)
    return output.getvalue()


def cluster() -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster=ClusterState("c", "kafka", authority_watermark=NOW - 1_500_000),
        brokers={
            1: BrokerState("c", "kafka", 1, is_fenced=False),
            2: BrokerState("c", "kafka", 2, is_fenced=True),
            3: BrokerState("c", "kafka", 3, is_fenced=False, is_shutting_down=True),
            4: BrokerState("c", "kafka", 4, is_registered=False),
        },
        totals=ClusterTotals(isr_shrinks=7, isr_expands=6, leader_changes=5, unclean_elections=1),
        counts=PartitionCounts(
            states={"partitions": 1200, "under_replicated": 9, "under_min_isr": 4, "offline": 2},
            led={1: 800, 3: 400},
            hosted={1: 1200, 2: 1200, 3: 1200},
            in_sync={1: 1200, 2: 3, 3: 1200},
        ),
    )


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, "22:13:20.000  orders-3  isr_shrink  broker 2 left (ISR 1, 3)  fenced (proven)"),
        (
            {"event": "isr_expand", "joined_isr": (2, 3), "isr_after": (1, 2, 3), "cause": "expand"},
            "22:13:20.000  orders-3  isr_expand  brokers 2, 3 joined (ISR 1, 2, 3)  expand (proven)",
        ),
        (
            {"event": "leader_change", "leader_before": 2, "leader_after": -1},
            "22:13:20.000  orders-3  leader_change  leader 2 → none  fenced (proven)",
        ),
        ({"isr_after": ()}, "22:13:20.000  orders-3  isr_shrink  broker 2 left (ISR empty)  fenced (proven)"),
        (
            {"evidence": "ambiguous", "candidates": ("fenced", "controlled_shutdown")},
            "22:13:20.000  orders-3  isr_shrink  broker 2 left (ISR 1, 3)  fenced (ambiguous, or controlled_shutdown)",
        ),
        (
            {"event": "fenced", "topic": None, "partition": None, "event_broker": 2, "cause": None},
            "22:13:20.000  broker 2  fenced",
        ),
        (
            {"subject": "cluster", "event": "controller_change", "topic": None, "partition": None, "cause": None,
             "detail": "controller 1 to 2"},
            "22:13:20.000  kafka  controller_change  controller 1 to 2",
        ),
        (
            {"subject": "source", "event": "authority_change", "topic": None, "partition": None, "cause": None},
            "22:13:20.000  metadata_log:collector-1  authority_change",
        ),
        (
            {"event": "topic_deleted", "partition": None, "cause": "deleted"},
            "22:13:20.000  orders  topic_deleted  deleted (proven)",
        ),
    ],
)  # fmt: skip
def test_an_event_is_one_line(values: dict[str, Any], line: str) -> None:
    assert live_view.event_line(event(**values)) == line


def test_the_view_shows_the_state_of_partitions_and_brokers() -> None:
    snapshot = ReplicationSnapshot(clusters={"c": cluster()})
    lines = [line.rstrip() for line in shown(live_view.view(snapshot, now=NOW, lines=5)).splitlines()]
    assert lines[:2] == [
        "cluster kafka  data age 1.5 s  partitions 1,200  under-replicated 9  at min ISR 0  under min ISR 4  offline 2",
        "totals  ISR shrinks 7  ISR expands 6  leader changes 5  unclean elections 1",
    ]
    rows = [line.split() for line in lines if line[:1].isdigit()]
    assert rows == [
        ["1", "active", "800", "1,200", "of", "1,200"],
        ["2", "fenced", "0", "3", "of", "1,200"],
        ["3", "shutting", "down", "400", "1,200", "of", "1,200"],
        ["4", "unregistered", "0", "0", "of", "0"],
    ]


def test_a_polled_broker_is_fenced_while_it_has_replicas_and_then_no_more_than_not_listed() -> None:
    states = []
    for hosted in (1200, 0):
        polled = replace(
            cluster(),
            cluster=ClusterState("c", "kafka", authority=SourceKind.POLL),
            counts=PartitionCounts(hosted={1: 1200, 2: hosted}),
        )
        states.append([live_view.broker_state(polled, broker)[0] for broker in (1, 2)])
    assert states == [["active", "fenced"], ["active", "not listed"]]


def test_the_newest_event_stands_first_and_old_ones_give_way() -> None:
    events = tuple(event(event_id=str(n), partition=n) for n in range(10))
    snapshot = ReplicationSnapshot(recent_events=events)
    lines = shown(live_view.view(snapshot, now=NOW, lines=3)).splitlines()
    assert [word for line in lines for word in line.split() if word.startswith("orders-")] == [
        "orders-9",
        "orders-8",
        "orders-7",
    ]


def test_on_a_narrow_terminal_time_and_subject_of_an_event_stay_whole() -> None:
    long = event(cause="preferred_election", evidence="ambiguous", candidates=("lag",), partition=12)
    output = io.StringIO()
    Console(file=output, width=80).print(live_view.view(ReplicationSnapshot(recent_events=(long,)), now=NOW, lines=3))
    (line,) = (line for line in output.getvalue().splitlines() if line.startswith("22:"))
    assert line.split()[:2] == [live_view.clock(long.occurred_not_after), "orders-12"]


def test_before_the_first_observation_the_view_says_so() -> None:
    empty = ReplicationSnapshot(clusters={"c": ClusterSnapshot(cluster=ClusterState("c", "kafka"))})
    assert "cluster kafka  no data yet" in shown(live_view.view(empty, now=NOW, lines=3))


def test_a_topic_name_is_never_read_as_markup() -> None:
    snapshot = ReplicationSnapshot(recent_events=(event(topic="[red]orders", detail="[/]", event="offline"),))
    assert "[red]orders-3" in shown(live_view.view(snapshot, now=NOW, lines=3))
    assert "[/]" in shown(live_view.view(snapshot, now=NOW, lines=3))


@pytest.mark.parametrize(("no_color", "coloured"), [(False, True), (True, False)])
def test_what_puts_data_at_risk_is_red(*, no_color: bool, coloured: bool) -> None:
    snapshot = ReplicationSnapshot(clusters={"c": cluster()})
    text = shown(
        live_view.view(snapshot, now=NOW, lines=3), force_terminal=True, color_system="standard", no_color=no_color
    )
    assert ("\x1b[1;31m2\x1b[0m" in text) is coloured


def test_the_summary_counts_by_event_and_cause_largest_first() -> None:
    counts = {("offline", "fenced"): 2, ("isr_shrink", "lag"): 1000, ("isr_shrink", "fenced"): 2}
    rows = [line.split() for line in shown(live_view.summary(counts)).splitlines()]
    assert rows == [
        ["event", "cause", "count"],
        ["isr_shrink", "lag", "1,000"],
        ["isr_shrink", "fenced", "2"],
        ["offline", "fenced", "2"],
    ]
