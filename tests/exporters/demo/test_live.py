"""The live part of a demo: what is new, how long it took, and where it is shown."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest

from exporters.demo.command import DemoRun
from exporters.demo.live import DemoProgress, newest, screen
from exporters.demo.location import DemoLocation, free_port
from exporters.read_model.reader import TablesReader
from exporters.read_model.snapshot import ClusterSnapshot, EventRow, ReplicationSnapshot, TopicPartitions
from exporters.running.supervision import Supervisor
from streaming.contracts.state import ClusterState, PartitionState
from streaming.delta.changes.reader import ChangesRestarted
from streaming.terminal import Terminal
from tests.exporters.demo.test_view import incident
from tests.exporters.demo.test_view import snapshot as of_incident
from tests.exporters.event_rows import NOW, event_row

SECOND = 1_000_000


def event(number: int, **values: Any) -> EventRow:
    lost = {"event": "offline", "cause": None, "left_isr": (), "leader_before": number}
    return event_row(event_id=str(number), partition=number, **lost, **values)


def snapshot(*events: EventRow, watermark: int | None = None, partitions: int = 0) -> ReplicationSnapshot:
    states = (PartitionState("c", "kafka", "t", "orders", number, (), ()) for number in range(partitions))
    topic = TopicPartitions("t", "orders", dict(enumerate(states)))
    cluster = ClusterSnapshot(cluster=ClusterState("c", "kafka", primary_watermark=watermark), topics={"t": topic})
    return ReplicationSnapshot(clusters={"c": cluster}, recent_events=events)


def test_an_event_is_new_once() -> None:
    progress = DemoProgress(snapshot(event(1)))
    assert [new.event_id for new in progress.update(snapshot(event(1), event(2), event(3)), NOW)] == ["2", "3"]
    assert progress.update(snapshot(event(2), event(3)), NOW) == []


def test_latency_is_from_the_event_to_its_snapshot_for_new_events_only() -> None:
    progress = DemoProgress(snapshot(event(1)))
    progress.update(snapshot(event(1), event(2)), NOW + SECOND // 2)
    progress.update(snapshot(event(1), event(2), event(3)), NOW + 2 * SECOND)
    assert progress.latencies == [0.5, 2.0]


@pytest.mark.parametrize(("later", "moved"), [(NOW, False), (NOW + 1, True), (None, False)])
def test_heartbeats_flow_when_the_watermark_advances(later: int | None, *, moved: bool) -> None:
    progress = DemoProgress(snapshot(watermark=NOW))
    progress.update(snapshot(watermark=later), NOW)
    assert progress.moved() is moved


def test_partitions_are_counted_in_the_newest_snapshot() -> None:
    progress = DemoProgress(snapshot())
    assert progress.partitions() == 0
    progress.update(snapshot(partitions=12), NOW)
    assert progress.partitions() == 12


def test_during_a_gap_in_the_changes_the_last_snapshot_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TablesReader(tmp_path)
    last = snapshot(event(1))
    reader.snapshot = last

    def gap() -> ReplicationSnapshot:
        raise ChangesRestarted("history is gone")

    monkeypatch.setattr(reader, "refresh", gap)
    assert newest(reader) is last


def console(**settings: Any) -> tuple[Terminal, io.StringIO]:
    output = io.StringIO()
    return Terminal(file=output, width=100, height=30, **settings), output


def test_a_pipe_gets_one_line_per_event() -> None:
    piped, output = console()
    with screen(piped, "isrwatch demo") as shown:
        shown.show(snapshot(event(1)), [event(1)], NOW, "ends in 3 s")
        shown.show(snapshot(event(1)), [], NOW, "ends in 2 s")
        shown.show(snapshot(event(1), event(2)), [event(2)], NOW, "ends in 1 s")
    assert output.getvalue().splitlines() == [
        "isrwatch demo",
        "22:13:20.000  orders-1  offline",
        "22:13:20.000  orders-2  offline",
    ]


def test_a_pipe_gets_one_line_for_what_happened_at_once() -> None:
    piped, output = console()
    at_once = [event(number) for number in range(5)]
    with screen(piped, "isrwatch demo") as shown:
        shown.show(snapshot(*at_once), at_once, NOW, "ends in 3 s")
    assert output.getvalue().splitlines()[1:] == [
        "22:13:20.000  5 partitions  offline (orders-0 orders-1 orders-2 ...)"
    ]


def test_a_pipe_gets_no_line_that_is_wider_than_100_columns() -> None:
    piped, output = console()
    at_once = [event(number, topic="orders-of-the-european-warehouse") for number in range(5)]
    known = of_incident(incident(consequence="acks=all writers of topics payments, refunds and settlements fail " * 2))
    with screen(piped, "isrwatch demo") as shown:
        shown.show(known, at_once, NOW, "ends in 3 s")
    _, *lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split("  ")[1] for line in lines if not line.startswith("    ")] == ["5 partitions", "incident"]
    assert " ".join(output.getvalue().split()).count("settlements fail") == 2, "nothing is cut"


def test_a_pipe_gets_a_line_when_an_incident_begins_becomes_worse_or_recovers() -> None:
    piped, output = console()
    stages: list[dict[str, Any]] = [{}, {}, {"incident_class": "unclean_election"}, {"recovered_at": NOW}]
    with screen(piped, "isrwatch demo") as shown:
        for stage in stages:
            shown.show(of_incident(incident(**stage)), [], NOW, "ends in 3 s")
    assert [line.split("  ")[1:4] for line in output.getvalue().splitlines()[1:] if line[0] != " "] == [
        ["incident", "kafka-1", "broker_loss"],
        ["incident", "kafka-1", "unclean_election"],
        ["incident", "kafka-1", "broker_loss"],
    ]


def test_a_terminal_gets_a_picture_of_everything() -> None:
    terminal, output = console(force_terminal=True)
    with screen(terminal, "isrwatch demo") as shown:
        shown.show(snapshot(event(1), watermark=NOW, partitions=2), [event(1)], NOW, "ends in 3 s")
    picture = output.getvalue()
    assert [text in picture for text in ("isrwatch demo", "cluster ", "orders-1", "ends in 3 s")] == [True] * 4


def test_the_live_view_ends_when_its_time_is_over(tmp_path: Path) -> None:
    location = DemoLocation(directory=tmp_path, port=free_port(None))
    piped, output = console()
    began = time.monotonic()
    nothing = Supervisor({}, lambda _name, _line: None, lambda _: None)
    progress, metrics = DemoRun(piped, nothing, location).watch(TablesReader(location.tables), 0.3, "scenario steady")
    assert 0.3 <= time.monotonic() - began < 60
    assert (progress.partitions(), metrics) == (0, "")
    assert output.getvalue().startswith("isrwatch demo  scenario steady")
