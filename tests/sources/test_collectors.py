"""Several clusters in one collector: what ends one, or keeps it from beginning, costs no other anything.

And the collector's own page: what each source reported, whether it answers, and health that asks for partition state.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streaming.bus.log import RemovedBytes
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.movement import STILL_SECONDS, Motion
from streaming.runtime.listening import address_of, listen
from streaming.sources import source
from streaming.sources.collector.collector import Collector, Collectors
from streaming.sources.collector.separate import SeparateCollector
from streaming.sources.protocol.addresses import Peers
from streaming.web.status import StatusServer
from tests.sources.scripted import Scripted, heartbeat
from tests.sources.test_collector import PATIENCE, FullDisk, ListBus, WithUndecodable, running, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming.bus.directory import DirectoryPublisher
    from streaming.contracts.identifiers import Micros
    from streaming.contracts.observations import Observation
    from streaming.sources.source import Source

    OpenSources = Callable[[Callable[[str], None]], Sequence[Source]]
    Start = Callable[[Mapping[str, OpenSources]], tuple[Collectors, ListBus, list[str]]]


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
    clusters: Mapping[str, OpenSources], open_publisher: Callable[[], DirectoryPublisher], report: Callable[[str], None]
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

        def started(clusters: Mapping[str, OpenSources]) -> tuple[Collectors, ListBus, list[str]]:
            bus, lines = ListBus(), list[str]()
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
    with running(collectors_of({source.name: Opened(source) for source in sources}, ListBus, lambda _: None)):
        pass
    assert all(source.events[-1:] in ([], ["closed"]) for source in sources)


LOG, ADMIN = "metadata_log:a", "admin:a"


class Ordering(Scripted):
    is_primary = False


class Kept:
    def publish(self, observations: Any) -> None:
        self.last = observations

    def publish_raw(self, *raw: Any) -> None:
        self.raw = raw

    def take_removed(self) -> RemovedBytes:
        return RemovedBytes(0, 0)

    def close(self) -> None:
        """Keep everything."""


def collected(*sources: Scripted) -> Collector:
    """Run sources until each has reported all that it has."""
    collector = Collector(sources, Kept, cluster="prod")  # type: ignore[arg-type]
    with running(collector):
        assert all(source.is_over.wait(PATIENCE) for source in sources)
    return collector


def values(text: str) -> dict[tuple[str, str], float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (sample.name.removeprefix("isrwatch_collector_"), sample.labels.get("source", "")): sample.value
        for sample in samples
    }


@pytest.fixture
def page() -> Iterator[Any]:
    with ExitStack() as stack:

        def of(collector: Collector) -> Any:
            opened, metrics = listen("127.0.0.1:0", "--listen"), collector.metrics
            said: Any = {"program": "collect", "prefix": "", "healthy": "it reads", "hangs": collector.hanging}
            stack.enter_context(closing(StatusServer([opened], metrics.registry, metrics.problems, **said)))
            return partial(get, address_of(opened))

        yield of


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with closing(urllib.request.urlopen(f"http://{address}{path}", timeout=10)) as response:
            return response.status, response.read().decode()
    except HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def beats(source: str, count: int) -> list[Observation]:
    return [heartbeat(source, at) for at in range(count)]


def test_what_a_source_reported_is_counted_and_whether_it_answers(page: Any) -> None:
    log = WithUndecodable(LOG, beats(LOG, 2), [], beats(LOG, 3))
    admin = Scripted(ADMIN, ConnectionRefused("no broker answers"), ConnectionRefused("no broker answers"))
    _, text = page(collected(log, admin))("/metrics")
    found = values(text)
    assert 'isrwatch_collector_source_up{cluster="prod",source="metadata_log:a"} 1.0' in text
    names = ("observations_total", "undecodable_total", "refused_polls_total", "source_up")
    assert [found[name, LOG] for name in names] == [5, 1, 0, 1]
    assert (found["observations_total", ADMIN], found["refused_polls_total", ADMIN]) == (0, 2)
    assert f'last_publication_timestamp_seconds{{cluster="prod",kind="heartbeat",source="{LOG}"}}' in text


def test_it_is_healthy_while_one_of_both_reads_partition_state_and_else_says_why_none_does(page: Any) -> None:
    log, admin = Ordering(LOG, ConnectionRefused("grant ClusterAction")), Ordering(ADMIN, [])
    collector = Collector([log, admin], Kept)  # type: ignore[arg-type]
    read = page(collector)
    assert read("/-/healthy") == (503, "no source has read partition state yet\n")

    collector.metrics.refused(log, ConnectionRefused("grant ClusterAction"))
    assert read("/-/healthy") == (503, "metadata_log:a: grant ClusterAction\n")

    admin.is_primary = True
    collector.metrics.published(admin, beats(ADMIN, 1), 0)
    assert read("/-/healthy") == (200, "it reads\n")
    assert values(read("/metrics")[1])["primary_source", ADMIN] == 1
    assert values(read("/metrics")[1])["primary_source", LOG] == 0

    collector.metrics.refused(admin, ConnectionRefused("no broker answers"))
    assert read("/-/healthy")[0] == 503
    assert read("/-/alive") == (200, "isrwatch collect does not hang\n"), "a restart would not bring the brokers back"


def test_a_source_that_orders_nothing_makes_nobody_unhealthy(page: Any) -> None:
    assert page(collected(Scripted("simulated:a", beats("simulated:a", 1))))("/-/healthy")[0] == 200


def test_a_source_that_hangs_makes_its_collector_unhealthy(monkeypatch: pytest.MonkeyPatch) -> None:
    released, now = threading.Event(), [1000.0]

    class Hanging(Primary):
        def poll(self, at: Micros) -> Sequence[Observation]:
            if now[0] > 1000:
                released.wait(30)
            return super().poll(at)

    monkeypatch.setattr("streaming.sources.collector.metrics.Motion", lambda: Motion(lambda: now[0]))
    collector = Collector([Hanging("log:a")], ListBus)
    with running(collector):
        until(lambda: collector.metrics.movements["log:a"].has_moved)
        assert collector.metrics.hanging() == []
        now[0] += STILL_SECONDS + 1
        until(lambda: len(collector.problems()) > 0)
        assert collector.problems()[0] == "log:a hangs: no answer came, and nothing was read or written, for 61 s"
        assert collector.hanging() == collector.problems()[:1]
        released.set()
        until(lambda: not collector.metrics.hanging())


def test_a_process_that_reports_nothing_hangs() -> None:
    def hanging(_: object) -> Sequence[Source]:
        raise AssertionError

    apart = SeparateCollector(hanging, ListBus, cluster="a", name="samples:a", peers=Peers(), report=print)  # type: ignore[arg-type]  # is never opened
    assert apart.problems() == []
    now = 1000.0
    apart.movement = Motion(lambda: now)
    apart.movement.note()
    now += STILL_SECONDS + 1
    assert apart.problems() == ["samples:a hangs: its process has reported nothing for 61 s"]
