"""What the demo shows: open incidents on top, the risk of the last minutes, one line for what happened at once."""

from __future__ import annotations

import io
from typing import Any

import pytest

from exporters.demo.live import view
from exporters.demo.risk import STEP_SECONDS, RiskHistory
from exporters.read_model.snapshot import (
    ClusterIncidents,
    ClusterSnapshot,
    EventRow,
    PartitionCounts,
    ReplicationSnapshot,
)
from streaming.contracts.state import ClusterState
from streaming.terminal import Terminal
from tests.exporters.event_rows import NOW, event_row

SECOND = 1_000_000
CONSEQUENCE = "acks=all writers of topic payments fail"


def incident(number: int = 1, **values: Any) -> dict[str, Any]:
    """A loss of broker 3 that goes on for 12 s."""
    return {
        "incident_id": f"loss:{number}", "short_id": f"kafka-{number}", "incident_class": "broker_loss",
        "opened_at": NOW - 12 * SECOND,
        "updated_at": NOW - 2 * SECOND, "closed_at": None, "recovered_at": None, "merged_into": None,
        "suspects": [{"broker": 3, "score": 1.0}], "consequence": CONSEQUENCE, "summary": "broker 3 was lost",
        "next_step": "start broker 3", **values,
    }  # fmt: skip


def snapshot(
    *incidents: dict[str, Any], events: tuple[EventRow, ...] = (), is_known: bool = True, **states: int
) -> ReplicationSnapshot:
    cluster = ClusterSnapshot(
        cluster=ClusterState("c", "kafka", primary_watermark=NOW),
        counts=PartitionCounts(states={"partitions": 50, **states}),
        incidents=ClusterIncidents(incidents) if is_known else None,
    )
    return ReplicationSnapshot(clusters={"c": cluster}, recent_events=events)


def pictured(of: ReplicationSnapshot, width: int = 100, height: int = 40, risk: RiskHistory | None = None) -> list[str]:
    output = io.StringIO()
    console = Terminal(file=output, width=width, height=height)
    console.print(view(of, risk or RiskHistory(), console, now=NOW, beside=4))
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_an_open_incident_stands_on_top_with_its_suspects_what_it_means_and_what_to_do() -> None:
    assert pictured(snapshot(incident()))[:4] == [
        "kafka-1  broker_loss  open 12.0s  suspects 3 (1.00)",
        f"  {CONSEQUENCE}",
        "  do first: start broker 3",
        "",
    ]


def test_one_that_has_recovered_stands_below_those_that_go_on_and_the_others_are_counted() -> None:
    over = incident(1, recovered_at=NOW - 2 * SECOND, opened_at=NOW - SECOND * 10)
    lines = pictured(snapshot(over, *(incident(number) for number in range(2, 6))))
    assert lines[0].startswith("kafka-2  broker_loss  open")
    assert "and 2 more open incidents" in lines
    assert pictured(snapshot(over))[0] == "kafka-1  broker_loss  recovered after 8.0s  suspects 3 (1.00)"


def test_no_incident_is_no_good_news_while_partitions_are_at_risk() -> None:
    assert pictured(snapshot(under_replicated=3))[0] == "no incident so far"
    assert pictured(snapshot(unknown_min_isr=50))[0] == "no incident so far"


@pytest.mark.parametrize(("is_known", "said"), [(True, "no open incident"), (False, "incidents: unknown so far")])
def test_without_incidents_it_says_whether_there_are_none_or_nobody_knows(*, is_known: bool, said: str) -> None:
    assert pictured(snapshot(is_known=is_known))[0] == said


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50)])
def test_a_picture_fits_the_terminal_and_cuts_no_name_and_no_number(width: int, height: int) -> None:
    topic = "orders-of-the-european-warehouse"
    events = tuple(event_row(topic=topic, partition=n, occurred_not_after=NOW + n) for n in range(60))
    risk = RiskHistory()
    risk.add(snapshot(under_replicated=5), NOW)
    lines = pictured(snapshot(incident(), events=events), width, height, risk)
    assert len(lines) <= height - 4
    assert max(map(len, lines)) <= width
    assert [line for line in lines if "…" in line] == []
    shown = [word for line in lines for word in line.split() if word.startswith(topic)]
    assert shown == [f"{topic}-{number}" for number in range(59, 59 - len(shown), -1)], "the newest first"
    assert len(shown) >= 1


def test_what_happened_to_many_partitions_at_once_is_one_line() -> None:
    (line,) = (
        line for line in pictured(snapshot(events=tuple(event_row(partition=n) for n in range(28)))) if "orders" in line
    )
    assert line.startswith("22:13:20.000  28 partitions  broker 2 left the ISR (orders-0 orders-1 orders-2 ...)")


def test_the_risk_is_the_largest_number_of_each_step_and_never_lower_than_one_look() -> None:
    risk = RiskHistory()
    looks = [(0, 0), (1, 28), (2, 14), (STEP_SECONDS, 0), (2 * STEP_SECONDS, 4), (4 * STEP_SECONDS, 1)]
    for seconds, count in looks:
        risk.add(snapshot(under_replicated=count, offline=0), NOW + seconds * SECOND)
    title, offline, _, under_replicated = (line.plain for line in risk.lines())
    assert title == "partitions at risk over the last 1 min, largest number of each 4 s"
    assert under_replicated == "under-replicated  █▁▂ ▂  now 1, most 28"
    assert offline == "offline           ▁▁▁ ▁  now 0, most 0"


def test_what_the_risk_says_of_now_is_the_state_and_not_the_largest_number_of_the_last_seconds() -> None:
    risk = RiskHistory()
    risk.add(snapshot(under_replicated=28, offline=1), NOW)
    risk.add(snapshot(under_replicated=0, offline=0), NOW + SECOND)
    _, offline, _, under_replicated = (line.plain for line in risk.lines())
    assert under_replicated == "under-replicated  █  now 0, most 28"
    assert offline == "offline           █  now 0, most 1"


def test_the_risk_is_unknown_where_min_isr_is_and_where_there_is_no_cluster() -> None:
    risk = RiskHistory()
    risk.add(ReplicationSnapshot(), NOW)
    risk.add(snapshot(unknown_min_isr=50, under_min_isr=0), NOW + STEP_SECONDS * SECOND)
    _, offline, under_min_isr, _ = (line.plain for line in risk.lines())
    assert (offline.split()[1], under_min_isr.split()[3]) == ("?▁", "??")
    assert under_min_isr.endswith("now ?, most 0")


def test_the_risk_of_long_ago_is_forgotten() -> None:
    risk = RiskHistory()
    for step in range(100):
        risk.add(snapshot(offline=100 - step), NOW + step * STEP_SECONDS * SECOND)
    title, offline, *_ = (line.plain for line in risk.lines())
    assert title.startswith("partitions at risk over the last 4 min")
    assert offline.endswith("now 1, most 60")
