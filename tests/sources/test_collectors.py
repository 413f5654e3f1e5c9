"""Several clusters in one collector: what ends one, or keeps it from beginning, costs no other anything."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streaming.bus.memory import MemoryBus
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources import source
from streaming.sources.collector.collector import Collector, Collectors
from tests.sources.test_collector import PATIENCE, FullDisk, Scripted, heartbeat, running, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming.bus.directory import Publisher
    from streaming.sources.source import Source

    OpenSources = Callable[[Callable[[str], None]], Sequence[Source]]
    Start = Callable[[Mapping[str, OpenSources]], tuple[Collectors, MemoryBus, list[str]]]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PAUSES", (0.01, 0.02))


class Primary(Scripted):
    """A source that orders partitions."""

    is_primary = True


class Opened:
    """What creates the sources of a cluster: an exception of the script is raised, once each."""

    def __init__(self, *script: Exception | Scripted) -> None:
        self.script = list(script)
        self.opened = 0

    def __call__(self, report: Callable[[str], None]) -> Sequence[Source]:
        self.opened += 1
        item = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(item, Exception):
            raise item
        report("opened")
        return [item]


def collectors_of(
    clusters: Mapping[str, OpenSources], open_publisher: Callable[[], Publisher], report: Callable[[str], None]
) -> Collectors:
    def opener(name: str, open_sources: OpenSources) -> Callable[[Callable[[str], None]], Collector]:
        return lambda report: Collector(open_sources(report), open_publisher, cluster=name, report=report)

    return Collectors({name: opener(name, sources) for name, sources in clusters.items()}, report=report)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def started(clusters: Mapping[str, OpenSources]) -> tuple[Collectors, MemoryBus, list[str]]:
            bus, lines = MemoryBus(), list[str]()
            collectors = collectors_of(clusters, lambda: bus, lines.append)
            stack.enter_context(running(collectors))
            return collectors, bus, lines

        yield started


def up(collectors: Collectors) -> dict[tuple[str, str], float]:
    """Read ``source_up`` of the page; a family that stands on it twice is refused by the parser's names."""
    text = generate_latest(collectors.registry).decode()
    declared = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared))
    (family,) = (one for one in text_string_to_metric_families(text) if one.name == "isrwatch_collector_source_up")
    return {(sample.labels["cluster"], sample.labels["source"]): sample.value for sample in family.samples}


def test_one_page_has_the_sources_of_every_cluster(start: Start) -> None:
    first, second = (Primary(f"admin:{name}", [heartbeat(f"admin:{name}", 1)]) for name in "ab")
    collectors, bus, lines = start({"a": Opened(first), "b": Opened(second)})
    until(lambda: first.is_over.is_set() and second.is_over.is_set())
    assert up(collectors) == {("a", "admin:a"): 1, ("b", "admin:b"): 1}
    assert (told(bus, "admin:a"), told(bus, "admin:b")) == ([1], [1])
    assert sorted(lines) == ["a: opened", "b: opened"]
    assert collectors.problems() == []


def test_a_cluster_that_cannot_be_opened_is_tried_again_and_is_down_meanwhile(start: Start) -> None:
    healthy = Primary("admin:a", [heartbeat("admin:a", 1)])
    wrong = Opened(ConfigurationError("ssl.ca.location is missing"))
    collectors, _, lines = start({"a": Opened(healthy), "b": wrong})
    until(lambda: wrong.opened > 2 and healthy.is_over.is_set())
    assert up(collectors) == {("a", "admin:a"): 1, ("b", "all:b"): 0}
    assert collectors.problems() == []  # a restart would blind the other cluster
    assert "b: ssl.ca.location is missing; starting this cluster again in 0.01 s" in lines
    wrong.script = [Primary("admin:b", [heartbeat("admin:b", 2)])]
    until(lambda: up(collectors) == {("a", "admin:a"): 1, ("b", "admin:b"): 1})


def test_what_ends_one_cluster_ends_no_other_and_names_the_place_of_a_mistake(start: Start) -> None:
    healthy = Primary("admin:a", [heartbeat("admin:a", 1)])
    broken = Primary("admin:b", AssertionError("epochs only grow"))
    mended = Primary("admin:b", [heartbeat("admin:b", 2)])
    collectors, bus, lines = start({"a": Opened(healthy), "b": Opened(broken, mended)})
    until(lambda: mended.is_over.is_set() and healthy.is_over.is_set())
    assert (told(bus, "admin:a"), told(bus, "admin:b")) == ([1], [2])
    assert "closed" not in healthy.events
    assert broken.events[-1] == "closed"
    (line,) = (line for line in lines if "AssertionError" in line)
    assert line.startswith("b: AssertionError: epochs only grow (")
    assert up(collectors)["b", "admin:b"] == 1


def test_where_no_cluster_is_read_each_says_why(start: Start) -> None:
    refused = Primary("admin:b", *[ConnectionRefused("b:9092 cannot be reached")] * 100)
    collectors, _, _ = start({"a": Opened(ConfigurationError("no address")), "b": Opened(refused)})
    until(lambda: "refused" in refused.events and collectors.problems()[0] == "a: no address")
    until(lambda: collectors.problems() == ["a: no address", "b: admin:b: b:9092 cannot be reached"])


def test_a_bus_that_cannot_be_written_is_tried_again() -> None:
    source, lines = Opened(Primary("admin:a", [heartbeat("admin:a", 1)])), list[str]()
    with running(collectors_of({"a": source}, FullDisk, lines.append)):
        until(lambda: source.opened > 1)
    assert "a: cannot write the bus below /bus: No space left on device; starting this cluster again in 0.01 s" in lines


def test_a_stop_closes_the_sources_of_every_cluster() -> None:
    sources = [Primary(f"admin:{name}") for name in "abc"]
    with running(collectors_of({source.name: Opened(source) for source in sources}, MemoryBus, lambda _: None)):
        pass
    assert all(source.events[-1:] in ([], ["closed"]) for source in sources)
