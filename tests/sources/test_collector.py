"""The loop between sources and the bus: order, acknowledgement, lost connections, and a bus that cannot be written."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from streaming.bus.log import RemovedBytes
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Channel, Observation
from streaming.errors import BusFull, BusReplaced, ConnectionRefused, IsrwatchError
from streaming.sources.collector import collector
from streaming.sources.collector.collector import Collector, Collectors
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.source import PacedSource
from tests.sources.scripted import Scripted, heartbeat

PATIENCE = 30.0


class WithUndecodable(Scripted):
    def take_undecodable(self) -> list[bytes]:
        return [json.dumps({"kind": "undecodable"}).encode()] if len(self.asked) == 1 else []


class ListBus:
    """Collects what is published."""

    removed = RemovedBytes(0, 0)

    def __init__(self) -> None:
        self.published: list[Observation] = []
        self.raw: list[tuple[str, bytes]] = []

    def publish(self, observations: Sequence[Observation]) -> None:
        self.published += observations

    def publish_raw(self, channel: Channel, source: str, payload: bytes) -> None:
        assert channel is Channel.REPLICATION
        self.raw.append((source, payload))

    def take_removed(self) -> RemovedBytes:
        removed, self.removed = self.removed, RemovedBytes(0, 0)
        return removed

    def close(self) -> None:
        """Keep what was published."""


class FullDisk(ListBus):
    def publish(self, observations: Sequence[Observation]) -> None:
        del observations
        raise IsrwatchError("cannot write the bus below /bus: No space left on device")


def run(*sources: Scripted, bus: ListBus | None = None, **settings: Any) -> tuple[ListBus, list[str]]:
    """Run sources until each has said everything."""
    bus, lines = bus or ListBus(), []
    with running(Collector(sources, lambda: bus, report=lines.append, **settings)):
        for source in sources:
            assert source.is_over.wait(PATIENCE)
    return bus, lines


@contextmanager
def running(collector: Collector | Collectors) -> Iterator[None]:
    collector.start()
    yield
    collector.stop()
    collector.wait()


def told(bus: ListBus, source: str) -> list[int]:
    return [each.occurred_not_after for each in bus.published if each.source == source]


def test_what_sources_see_is_on_the_bus_in_their_own_order_and_acknowledged_after_each_publication() -> None:
    first = Scripted("a", [heartbeat("a", 1), heartbeat("a", 2)], [], [heartbeat("a", 3)])
    second = Scripted("b", [heartbeat("b", 7)], [heartbeat("b", 8)])
    bus, _ = run(first, second)
    assert told(bus, "a") == [1, 2, 3]
    assert told(bus, "b") == [7, 8]
    assert second.events[:4] == ["polled", "acknowledged", "polled", "acknowledged"]
    assert second.events[-1] == "closed"


def test_a_lost_connection_is_reported_once_and_so_is_its_return() -> None:
    lost = ConnectionRefused("127.0.0.1:9092 cannot be reached")
    source = Scripted("a", [heartbeat("a", 1)], lost, lost, lost, [heartbeat("a", 2)])
    bus, lines = run(source)
    assert told(bus, "a") == [1, 2]
    assert lines == ["a: 127.0.0.1:9092 cannot be reached; trying again", "a: reads the cluster again"]


def test_a_permission_that_is_missing_behind_another_is_reported_and_each_of_them_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "PAUSES", (0.01,))
    describe, action = ServiceRefused("lacks Describe"), ServiceRefused("lacks ClusterAction")
    lost = ConnectionRefused("no controller answers")
    _, lines = run(Scripted("a", describe, describe, action, lost, describe, [heartbeat("a", 1)], action))
    assert [line for line in lines if line.startswith("a: ")] == [
        "a: lacks Describe; trying again",
        "a: lacks ClusterAction; trying again",
        "a: reads the cluster again",
        "a: lacks ClusterAction; trying again",
    ]


def test_a_poll_without_a_response_does_not_end_a_lost_connection() -> None:
    lost = ConnectionRefused("127.0.0.1:1 cannot be reached")
    _, lines = run(Scripted("a", lost, [], lost, []))
    assert lines == ["a: 127.0.0.1:1 cannot be reached; trying again"]


def test_a_source_that_cannot_see_is_asked_later_and_later() -> None:
    lost = ConnectionRefused("no")
    source = Scripted("a", lost, lost, lost)
    run(source)
    waits = [after - before for before, after in zip(source.asked, source.asked[1:], strict=False)][:3]
    assert [wait >= least for wait, least in zip(waits, (100_000, 200_000, 500_000), strict=True)] == [True] * 3


def test_one_blind_source_does_not_hold_up_another() -> None:
    blind = Scripted("blind", *[ConnectionRefused("no")] * 3)
    seeing = Scripted("seeing", *[[heartbeat("seeing", at)] for at in range(50)])
    began = time.monotonic()
    with running(Collector([blind, seeing], ListBus)):
        assert seeing.is_over.wait(PATIENCE)
        assert not blind.is_over.is_set() or time.monotonic() - began > 0.8


def test_a_bus_that_cannot_be_written_stops_everything_without_an_acknowledgement() -> None:
    source, other = Scripted("a", [heartbeat("a", 1)]), Scripted("b")
    collector = Collector([source, other], FullDisk)
    collector.start()
    with pytest.raises(IsrwatchError, match="No space left"):
        collector.wait()
    assert source.events == ["polled", "closed"]
    assert other.events[-1] == "closed"


def test_a_mistake_of_our_own_stops_everything_and_is_raised() -> None:
    collector = Collector([Scripted("a", AssertionError("broken invariant")), Scripted("b")], ListBus)
    collector.start()
    with pytest.raises(AssertionError, match="broken invariant"):
        collector.wait()


def test_what_could_not_be_read_is_on_the_bus_as_well() -> None:
    bus, _ = run(WithUndecodable("a", []))
    assert [(source, json.loads(payload)) for source, payload in bus.raw] == [("a", {"kind": "undecodable"})]


def test_a_silent_source_is_not_asked_in_a_hot_loop() -> None:
    source = Scripted("a")
    with running(Collector([source], ListBus)):
        time.sleep(0.3)
    assert len(source.asked) <= 31


def test_a_paced_source_lives_in_a_faster_time() -> None:
    source = Scripted("a", [heartbeat("a", 1)])
    paced = PacedSource(source, start=Micros(1_000), speed=10.0)
    assert [one.occurred_not_after for one in paced.poll(Micros(1_500))] == [1]
    paced.acknowledge()
    paced.close()
    assert source.asked == [6_000]
    assert source.events == ["polled", "acknowledged", "closed"]
    assert paced.name == "a"


class FullForAWhile(ListBus):
    """A bus whose disk is full at the first tries, of which one wrote a part."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self._refusals = refusals

    def publish(self, observations: Sequence[Observation]) -> None:
        if self._refusals:
            self._refusals -= 1
            super().publish(observations[:1])
            raise BusFull("the disk of the bus is full")
        super().publish(observations)


class Limited(ListBus):
    """A bus that had to delete records of replication at its first write."""

    removed = RemovedBytes(10, 20)


class RemovedOnce(ListBus):
    """A bus whose folder is removed before its second write."""

    def publish(self, observations: Sequence[Observation]) -> None:
        is_second, self.writes = self.writes == 1, self.writes + 1
        if is_second:
            raise BusReplaced("/bus/x.log was removed")
        super().publish(observations)

    writes = 0


class Reporting(Scripted):
    def request_full_report(self) -> None:
        self.events.append("full report requested")


def test_while_the_disk_of_the_bus_is_full_a_source_waits_longer_each_time_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collector, "PAUSES", (0.0, 0.0, 0.2))
    began = time.monotonic()
    source = Scripted("a", [heartbeat("a", 1), heartbeat("a", 2)], [heartbeat("a", 3)])
    bus, lines = run(source, bus=FullForAWhile(3))
    assert time.monotonic() - began >= 0.2
    assert told(bus, "a") == [1, 1, 1, 1, 2, 3], "what is there twice, the job recognises"
    assert source.events[:4] == ["polled", "acknowledged", "polled", "acknowledged"]
    assert lines == ["a: the disk of the bus is full; trying again", "a: writes the bus again"]


def test_a_collector_that_waits_for_the_disk_can_be_stopped_and_acknowledges_nothing() -> None:
    source, lines = Scripted("a", [heartbeat("a", 1)]), []
    with running(Collector([source], lambda: FullForAWhile(1_000_000), report=lines.append)):
        deadline = time.monotonic() + PATIENCE
        while not lines and time.monotonic() < deadline:
            time.sleep(0.01)
    assert source.events == ["polled", "closed"]


def test_what_a_bus_deletes_at_its_limit_is_reported_and_a_full_report_is_requested() -> None:
    source = Reporting("a", [heartbeat("a", 1)], [heartbeat("a", 2)])
    _, lines = run(source, bus=Limited())
    assert source.events.count("full report requested") == 1
    (line,) = lines
    assert line.startswith("a: the bus holds more than bus.max_bytes, so 20 bytes of changes were deleted that the job")


def test_a_log_that_was_removed_is_begun_again_with_a_full_report() -> None:
    source = Reporting("a", [heartbeat("a", 1)], [heartbeat("a", 2)])
    bus, lines = run(source, bus=RemovedOnce())
    assert told(bus, "a") == [1, 2]
    assert source.events.count("full report requested") == 1
    assert lines == ["a: /bus/x.log was removed"]


@pytest.mark.parametrize(("hours", "way"), [(2, "ahead"), (-2, "back")])
def test_after_the_clock_was_set_everything_is_reported_again_once(hours: int, way: str) -> None:
    source = Reporting("a", [heartbeat("a", 1)], [heartbeat("a", 2)], [heartbeat("a", 3)])

    def clock() -> Micros:
        moved = hours * 3_600_000_000 - 5_000  # the two clocks are not read in the same microsecond
        return Micros(time.time_ns() // 1000 + (moved if len(source.asked) > 1 else 0))

    _, lines = run(source, clock=clock)

    polled = ["polled", "acknowledged"]
    assert source.events == [*polled, *polled, "full report requested", *polled, *source.events[7:]]
    assert source.events.count("full report requested") == 1
    (line,) = lines
    said = re.fullmatch(r"a: the clock of this machine was set (\w+) by (\d+) s: everything is reported again", line)
    assert said is not None
    assert (said[1], abs(int(said[2]) - 7200) < 5) == (way, True)  # a poll of a busy machine takes a second


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    """As one does that arrives just before the main thread waits: nothing wakes it up to run the handler."""
    collector = Collector([Scripted("a")], ListBus)
    before = signal.signal(signal.SIGUSR1, lambda *_: collector.stop())
    collector.start()
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
    too_late = threading.Timer(10, collector.stop)
    too_late.start()
    began = time.monotonic()
    collector.wait()
    too_late.cancel()
    signal.signal(signal.SIGUSR1, before)
    assert time.monotonic() - began < 5
