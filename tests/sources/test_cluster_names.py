"""Two names of one configuration lead to one Kafka cluster: the first one counts, and the other one says so."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.cluster_settings import each_cluster
from streaming.commands import doctor
from streaming.commands.collect import together
from streaming.commands.doctor_machine import Finding, Status
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.observations import Channel
from streaming.errors import ConfigurationError
from streaming.settings import ClusterSettings, CollectSettings, Settings
from streaming.sources import source
from streaming.sources.collector import opening
from streaming.sources.collector.collector import Collector, Collectors
from streaming.sources.collector.opening import ClusterNames, open_sources
from tests.sources.scripted import heartbeat
from tests.sources.test_collector import ListBus, running
from tests.sources.test_collectors import Primary, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from prometheus_client import Metric

    from tests.plugins.fake_kafka import FakeKafka


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PAUSES", (0.05,))


def test_the_first_name_counts_whichever_is_known_first_and_a_rebuilt_cluster_is_another_one() -> None:
    names, one, other = ClusterNames(["a", "b", "c"]), ClusterId("one"), ClusterId("other")
    names.admit("b", one)
    names.admit("c", other)
    names.admit("a", one)
    with pytest.raises(ConfigurationError, match=r"cluster one is read as \[\[cluster\]\] a already: remove b, or"):
        names.admit("b", one)
    names.admit("a", other)
    names.admit("b", one)
    with pytest.raises(ConfigurationError, match="cluster other is read as"):
        names.admit("c", other)


class Companion:
    """Samples in another process, which cannot ask which cluster it is."""

    name = "samples:x"

    def __init__(self) -> None:
        self.is_started = False

    def start(self) -> None:
        self.is_started = True

    def stop(self) -> None:
        """End nothing."""

    wait = stop

    def problems(self) -> list[str]:
        return ["it hangs"]

    def collect(self) -> Iterable[Metric]:
        return ()


def test_nothing_is_published_before_its_cluster_is_admitted_and_samples_begin_after_that() -> None:
    bus, companions = ListBus(), {name: Companion() for name in "ab"}
    names = ClusterNames(["a", "b"])
    sources = {name: Primary(f"admin:{name}", [], [heartbeat(f"admin:{name}", 1)]) for name in "ab"}
    names.admit("a", ClusterId("c"))

    def of(name: str) -> Collector:
        admit = partial(names.admit, name)
        return Collector([sources[name]], lambda: bus, companions=[companions[name]], admit=admit)  # type: ignore[arg-type,return-value]

    admitted = of("a")
    with running(admitted):
        assert sources["a"].is_over.wait(30)
        assert admitted.problems() == ["it hangs"]
    refused = of("b")
    refused.start()
    with pytest.raises(ConfigurationError, match="remove b"):
        refused.wait()
    assert {each.source for each in bus.published} == {"admin:a"}
    assert [companions[name].is_started for name in "ab"] == [True, False]
    assert "hangs" not in str(refused.problems())


def configured(name: str, cluster: FakeKafka) -> Settings:
    servers = ClusterSettings(bootstrap_servers=cluster.bootstrap_servers, name=name)
    return Settings(cluster=servers, collect=CollectSettings(primary_source="poll", poll_interval=0.1, collector=name))


def test_a_collector_reads_one_cluster_by_one_name_and_says_why_not_by_the_other(
    fake_kafka: Callable[..., FakeKafka], tmp_path: Path
) -> None:
    one, other = fake_kafka(1, orders=1), fake_kafka(1, orders=1)
    other.cluster_id = "another-cluster"
    clusters = {"a": one, "b": one, "c": other}
    names, lines = ClusterNames([*clusters]), list[str]()
    publisher = partial(DirectoryPublisher, tmp_path / "bus", segment_bytes=1 << 20)

    def opener(name: str, cluster: FakeKafka) -> Callable[[Callable[[str], None]], Collector]:
        def opened(report: Callable[[str], None]) -> Collector:
            sources = open_sources(configured(name, cluster), tmp_path / "bus", report)
            return Collector(sources, publisher, cluster=name, report=report, admit=partial(names.admit, name))

        return opened

    collectors = Collectors({name: opener(name, each) for name, each in clusters.items()}, report=lines.append)
    with running(collectors):
        refused = "b: cluster {} is read as [[cluster]] a already: remove b, or correct its bootstrap_servers; "
        until(lambda: any(line.startswith(refused.format(one.cluster_id)) for line in lines))
        before = DirectoryReader(tmp_path / "bus").end_positions(Channel.REPLICATION).get("admin:b")
        time.sleep(0.3)
        after = DirectoryReader(tmp_path / "bus").end_positions(Channel.REPLICATION)
        assert after.get("admin:b") == before
        assert {"admin:a", "admin:c"} <= after.keys()
        assert collectors.problems() == []
    assert not [line for line in lines if line.startswith(("a: cluster", "c: cluster"))]


def test_the_command_asks_of_each_cluster_whether_it_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    admits: dict[str, Callable[[ClusterId], None]] = {}

    def opened(settings: Settings, *_: object, admit: Callable[[ClusterId], None]) -> Collector:
        admits[settings.cluster.name] = admit
        return Collector([Primary("admin:x")], ListBus)  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "open_collector", opened)
    with running(together([Settings(cluster=ClusterSettings(name=name)) for name in "ab"])):
        until(lambda: len(admits) == 2)
    admits["a"](ClusterId("one"))
    with pytest.raises(ConfigurationError, match=r"\[\[cluster\]\] a already: remove b"):
        admits["b"](ClusterId("one"))


def test_doctor_names_the_name_that_is_too_many(
    fake_kafka: Callable[..., FakeKafka], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {"brokers": doctor.CHECKS["brokers"]})
    cluster, config = fake_kafka(1), tmp_path / "isrwatch.toml"
    servers = {"prod": cluster.bootstrap_servers, "gone": "127.0.0.1:1", "main": cluster.bootstrap_servers}
    config.write_text(
        "".join(f'[[cluster]]\nname = "{name}"\nbootstrap_servers = "{each}"\n' for name, each in servers.items())
    )
    found = [*doctor.findings_of_clusters(each_cluster(config))]
    sentence = f"cluster {cluster.cluster_id} is read as [[cluster]] prod already: remove main, or correct its "
    assert found[-1] == Finding(
        check="brokers", status=Status.PROBLEM, sentence=f"{sentence}bootstrap_servers", cluster="main"
    )
    assert [each.cluster for each in found if each.status is Status.PROBLEM] == ["gone", "main"]
