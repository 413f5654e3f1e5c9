"""A snapshot as text for a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import RenderableType

from exporters.answers.brokers import state_name
from exporters.demo import cluster_view
from exporters.read_model.snapshot import ClusterSnapshot, ClusterTotals, PartitionCounts
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import BrokerState, ClusterState
from streaming.terminal import Terminal

NOW = 1_700_000_000_000_000


def shown(renderable: RenderableType, **settings: Any) -> str:
    output = io.StringIO()
    Terminal(file=output, width=140, **settings).print(renderable)
    return output.getvalue()


def cluster() -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster=ClusterState("c", "kafka", primary_watermark=NOW - 1_500_000),
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


def pictured(of: ClusterSnapshot) -> list[str]:
    parts = (cluster_view.heading(of, NOW), cluster_view.totals(of), cluster_view.brokers_of(of))
    return "".join(map(shown, parts)).splitlines()


def test_the_view_shows_the_state_of_partitions_and_brokers() -> None:
    lines = [line.rstrip() for line in pictured(cluster())]
    assert lines[:2] == [
        "cluster kafka  1.5s ago  offline 2  under min ISR 4  under-replicated 9 of 1,200",
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
            cluster=ClusterState("c", "kafka", primary_source=SourceKind.POLL),
            counts=PartitionCounts(hosted={1: 1200, 2: hosted}),
        )
        states.append([state_name(polled, broker) for broker in (1, 2)])
    assert states == [["active", "fenced"], ["active", "not listed"]]


def test_a_broker_that_can_only_be_seen_in_isrs_is_unseen_and_neither_unknown_nor_fenced() -> None:
    one = cluster()
    polled = replace(one, brokers={1: one.brokers[1]._replace(is_unseen=True)})
    assert state_name(polled, 1) == "unseen"


def test_before_the_first_observation_the_heading_says_so() -> None:
    assert "cluster kafka  no data yet" in shown(
        cluster_view.heading(ClusterSnapshot(cluster=ClusterState("c", "kafka")), NOW)
    )


def test_what_depends_on_an_unknown_min_isr_is_a_question_mark_and_not_green() -> None:
    counts = PartitionCounts(states={"partitions": 3, "unknown_min_isr": 3})
    text = cluster_view.heading(replace(cluster(), counts=counts), NOW)
    assert text.plain.endswith("offline 0  under min ISR ?  at min ISR ?  under-replicated 0 of 3")
    assert [text.plain[span.start : span.end] for span in text.spans if span.style == "green"] == ["0", "0"]


def test_the_heading_of_a_large_cluster_fits_100_columns_and_begins_with_what_counts_most() -> None:
    states = {"partitions": 12_345, "under_replicated": 1_234, "at_min_isr": 12, "under_min_isr": 9, "offline": 3}
    large = replace(cluster(), counts=PartitionCounts(states=states))
    text = cluster_view.heading(large, NOW).plain
    assert text.split("  ")[2:5] == ["offline 3", "under min ISR 9", "at min ISR 12"]
    healthy = replace(
        cluster(),
        counts=PartitionCounts(states={"partitions": 12_345}),
        cluster=ClusterState("c", "warehouse-of-the-south", primary_watermark=NOW - 12_500_000),
    )
    assert [len(each) for each in (text, cluster_view.heading(healthy, NOW).plain) if len(each) > 100] == []


@pytest.mark.parametrize(("no_color", "coloured"), [(False, True), (True, False)])
def test_what_puts_data_at_risk_is_red(*, no_color: bool, coloured: bool) -> None:
    text = shown(cluster_view.heading(cluster(), NOW), force_terminal=True, color_system="standard", no_color=no_color)
    assert ("\x1b[1;31m2\x1b[0m" in text) is coloured
