"""The exporter beside the job's own writers: what it shows is what the fold made true, wherever it starts to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import ExporterHealth, Refresher
from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.state import SECONDS
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.projections.projections import Projections
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.plugins.local_http import wait_until

EPOCH = 1_790_000_000_000_000
SECOND = 1_000_000


class Job:
    """Folds a simulated cluster into tables, batch by batch, as the Spark job does on its driver."""

    def __init__(self, directory: Path, scenario: str) -> None:
        self._source = SimulatedSource(
            load_scenario(scenario),
            seed=7,
            cluster_id=ClusterId("c1"),
            cluster="demo",
            name="demo",
            epoch=Micros(EPOCH),
        )
        self._truth = ChangeLog(directory)
        self._projections = Projections(directory)
        self.shared = self._projections.recover(self._truth.version)
        self.now = EPOCH

    @property
    def state(self) -> ReplicationState:
        return self.shared.state

    def batch(self, seconds: int = 1) -> None:
        self.now += seconds * SECOND
        seen = [it for it in self._source.poll(Micros(self.now)) if it.channel is Channel.REPLICATION]
        folded = fold(self.state, seen)
        if folded.changes:
            version = self._truth.commit(changes_to_arrow(folded.changes), {"demo": self.now})
            self.shared.applied(folded.touched, version)

    def project(self) -> None:
        self._projections.project(self.shared)


def shown(reader: TablesReader, now: int) -> dict[Any, float]:
    health = ExporterHealth("1.2.3", 0, 0.0, 0)
    text = plain(Exposition(60.0).render(reader.refresh(), health, now, ScrapeRequest())).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def live(state: ReplicationState) -> dict[Any, Any]:
    return {
        (partition.topic_id, partition.partition): partition
        for partition in state.partitions()
        if not partition.is_deleted
    }


@pytest.mark.parametrize("scenario", ["broker_loss", "rolling_restart", "slow_follower"])
def test_the_page_is_what_the_fold_made_true_and_the_same_from_every_starting_point(
    tmp_path: Path, scenario: str
) -> None:
    job = Job(tmp_path, scenario)
    following = TablesReader(tmp_path)
    last: dict[Any, float] = {}
    for second in range(1, 61):
        job.batch()
        if second % 12 == 0:
            page = shown(following, job.now)
            assert shown(TablesReader(tmp_path), job.now) == page
            cluster = following.snapshot.clusters["c1"]
            told = {
                (topic.topic_id, n): partition
                for topic in cluster.topics.values()
                for n, partition in topic.partitions.items()
            }
            assert told == live(job.state)
            back = {key for key, value in last.items() if key[0].endswith("_total") and page[key] < value}
            assert back == set()
            last = page
        if second % 21 == 0:
            job.project()
    assert sum(value for (name, _), value in last.items() if name.endswith("isr_departures_total")) > 0
    assert sum(value for (name, _), value in last.items() if name.endswith("under_replicated_seconds_total")) > 0


def test_advice_and_times_of_the_page_are_those_of_the_fold_and_the_lost_brokers_are_suspects(tmp_path: Path) -> None:
    job = Job(tmp_path, "broker_loss")
    suspects: set[str] = set()
    for second in range(3, 61, 3):
        job.batch(3)
        if second % 9:
            continue
        job.project()
        page = shown(TablesReader(tmp_path), job.now)
        tally, (cluster,) = job.shared.tally, job.state.clusters.values()
        advised = restart_advice(job.state.brokers.values(), cluster, tally)
        scores = tally.suspect_scores(ClusterId("c1"), job.state.brokers.values())
        for broker in job.state.brokers.values():
            expected = {
                "safe_to_stop": advised[broker.broker].is_safe_to_stop,
                "restart_order": advised[broker.broker].restart_order,
                "would_go_offline_partitions": advised[broker.broker].would_go_offline,
                "would_go_under_min_isr_partitions": tally.of_broker("c1", broker.broker, "would_go_under_min_isr"),
                "suspect_score": scores[broker.broker],
            }
            labels = (("broker", str(broker.broker)), ("cluster", "demo"))
            told = {name: page.get((f"kafka_replication_broker_{name}", labels)) for name in expected}
            assert told == expected
            suspects |= {str(broker.broker)} if expected["suspect_score"] else set()
        for name in SECONDS:
            partitions = sum(value for (metric, _), value in page.items() if metric.endswith(f"partition_{name}_total"))
            of_cluster = page[f"kafka_replication_cluster_{name}_total", (("cluster", "demo"),)]
            assert of_cluster == pytest.approx(partitions, abs=1e-5)
    assert suspects == {"2", "3"}


def test_a_rolling_restart_has_no_suspect_at_any_time_and_none_after_the_job_starts_again(tmp_path: Path) -> None:
    job = Job(tmp_path, "rolling_restart")
    shrunk = 0
    for second in range(3, 64, 3):
        job.batch(3)
        if second % 9:
            continue
        job.project()
        page = shown(TablesReader(tmp_path), job.now)
        shrunk += page["kafka_replication_cluster_under_replicated_partitions", (("cluster", "demo"),)] > 0
        assert {value for (name, _), value in page.items() if name.endswith("broker_suspect_score")} == {0.0}
        again = Projections(tmp_path).recover(job.shared.version)
        assert set(again.tally.suspect_scores(ClusterId("c1"), again.state.brokers.values()).values()) == {0.0}
    assert shrunk > 1


def test_changes_are_read_at_once_however_seldom_the_tables_are_checked(tmp_path: Path) -> None:
    job = Job(tmp_path, "broker_loss")
    for _ in range(3):
        job.batch()
    refresher = Refresher(TablesReader(tmp_path), 3600.0, "1.2.3")
    refresher.start()
    try:
        wait_until(lambda: refresher.snapshot.version == job.shared.version, what="the first reading")
        before = job.shared.version
        while job.shared.version == before:
            job.batch()
        wait_until(lambda: refresher.snapshot.version == job.shared.version, what="what came since")
    finally:
        refresher.stop()
        refresher.join()
