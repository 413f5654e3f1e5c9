"""The exporter beside the job's own writers: what it shows is what the fold made true, wherever it starts to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.cluster_health import HealthBasis, health_of
from exporters.read_model.conditions import ConditionInputs, raised
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import ExporterHealth, Refresher
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot, is_recovered
from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.conditions import Condition
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel
from streaming.contracts.sampled_conditions import PACE, SampledSpell
from streaming.contracts.state import SECONDS
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.changes.reader import ChangeReader
from streaming.jobs.incidents import IncidentsBatch
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.exporters.conftest import restless
from tests.exporters.metrics.test_exposition import samples
from tests.plugins.derived import Projections
from tests.plugins.local_http import wait_until
from tests.plugins.played import PlayedJob

EPOCH = 1_790_000_000_000_000
SECOND = 1_000_000


class Job:
    """Folds a simulated cluster into tables, batch by batch, as the Spark job does on its driver."""

    def __init__(self, directory: Path, scenario: str) -> None:
        played, named = load_scenario(scenario), {"cluster_id": ClusterId("c1"), "cluster": "demo", "name": "demo"}
        self._source = SimulatedSource(played, seed=7, epoch=Micros(EPOCH), **named)
        self._truth = ChangeLog(directory)
        self._projections = Projections(directory)
        self.held = self._projections.recover(self._truth.version)
        self.now = EPOCH

    @property
    def state(self) -> ReplicationState:
        return self.held.state

    def batch(self, seconds: int = 1) -> None:
        self.now += seconds * SECOND
        seen = [it for it in self._source.poll(Micros(self.now)) if it.channel is Channel.REPLICATION]
        folded = fold(self.state, seen)
        if folded.changes:
            version = self._truth.commit(changes_to_arrow(folded.changes), {"demo": self.now})
            self.held.applied(folded.touched, version)

    def project(self) -> None:
        self._projections.project(self.held)


def shown(reader: TablesReader, now: int) -> dict[Any, float]:
    health = ExporterHealth("1.2.3", 0, 0.0, 0)
    return samples(plain(Exposition(60.0).render(reader.refresh(), health, now, ScrapeRequest())).decode())


def test_advice_and_times_of_the_page_are_those_of_the_fold_and_the_lost_brokers_are_suspects(tmp_path: Path) -> None:
    job = Job(tmp_path, "broker_loss")
    suspects: set[str] = set()
    for second in range(3, 61, 3):
        job.batch(3)
        if second % 9:
            continue
        job.project()
        page = shown(TablesReader(tmp_path), job.now)
        tally, (cluster,) = job.held.tally, job.state.clusters.values()
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
        again = Projections(tmp_path).recover(job.held.version)
        assert set(again.tally.suspect_scores(ClusterId("c1"), again.state.brokers.values()).values()) == {0.0}
    assert shrunk > 1


def watched(tables: Path, name: str, seconds: int) -> Iterator[tuple[int, ClusterSnapshot]]:
    """Play a scenario through the job's own batches; every two seconds give its cluster as the exporter reads it."""
    job, played = PlayedJob(tables), load_scenario(name)
    identity: Any = {"cluster_id": ClusterId("id"), "cluster": "main", "name": "metadata_log:c"}
    source = SimulatedSource(played, seed=7, epoch=Micros(EPOCH), **identity)
    batch, reader, changes = (
        IncidentsBatch(tables, 5.0, 5.0),
        restless(tables),
        ChangeReader(tables / "partition_changes"),
    )
    for second in range(0, seconds, 2):
        job.apply(EPOCH + second * SECOND, source)
        batch.apply(list(changes.poll()))
        (one,) = reader.refresh().clusters.values()
        yield EPOCH + second * SECOND, one


@pytest.mark.parametrize(
    "name",
    [
        "unclean_election",
        "network_split",
        pytest.param("broker_loss", marks=pytest.mark.long),
        pytest.param("rolling_restart_unclean", marks=pytest.mark.long),
    ],
)
def test_an_incident_of_which_harm_is_left_never_lacks_a_condition(tmp_path: Path, name: str) -> None:
    """What an incident holds open are partitions that lack replicas or a leader, and brokers that are away."""
    harmful, basis = 0, HealthBasis(max_age_seconds=60.0)
    for now, one in watched(tmp_path, name, 70):
        assert one.incidents is not None
        if any(row["severity"] != "info" and not is_recovered(row) for row in one.incidents.open):
            harmful += 1
            assert health_of({one.name: one}, {}, now, basis).status == "unhealthy"
    assert harmful


def test_a_condition_is_raised_with_the_commit_that_shows_it_under_the_id_of_its_incident(tmp_path: Path) -> None:
    shown: list[list[tuple[str, ...]]] = []
    opened: set[str] = set()
    for now, one in watched(tmp_path, "unclean_election", 60):
        assert one.incidents is not None
        found = raised({"main": one}, ConditionInputs(now=now, stale_after=60.0))
        shown.append([each.labels for each in found])
        assert bool(found) == bool(one.totals.unclean_elections)
        opened |= {row["short_id"] for row in one.incidents.open}
        assert {each.short_id for each in found} <= opened
    assert shown[-1] == [("main", "unclean_election", "", "critical", "main-1")]
    assert [each for each in shown if each not in ([], shown[-1])] == [], "its labels never change"


def test_what_a_reassignment_fills_does_not_fill_up(tmp_path: Path) -> None:
    """Moves take moments, and have pauses; the pace of a volume has all of them in it."""
    filling = tuple(
        SampledSpell("s", "id", "main", condition, "2:/data", part, EPOCH, EPOCH, None, "2", EPOCH, None)  # type: ignore[arg-type]
        for condition, part in ((Condition.DISK_FILLS_UP, PACE), (Condition.DISK_NEARLY_FULL, ""))
    )
    moved = 0
    for now, one in watched(tmp_path, "reassignment", 40):
        full = replace(one, sampled_conditions=filling)
        conditions = {each.condition for each in raised({"main": full}, ConditionInputs(now=now, stale_after=60.0))}
        moved += bool(one.conditions)
        assert (Condition.DISK_FILLS_UP in conditions) == (not one.conditions)
        assert Condition.DISK_NEARLY_FULL in conditions
    assert moved > 5


class CountingReader(TablesReader):
    """Counts its refreshes."""

    refreshes = 0

    def refresh(self) -> ReplicationSnapshot:
        self.refreshes += 1
        return super().refresh()


def test_changes_are_read_at_once_however_seldom_the_tables_are_checked(tmp_path: Path) -> None:
    job = Job(tmp_path, "broker_loss")
    for _ in range(3):
        job.batch()
    reader = CountingReader(tmp_path)
    refresher = Refresher(reader, 3600.0, "1.2.3")
    refresher.start()
    try:
        wait_until(lambda: refresher.snapshot.version == job.held.version, what="the first reading")
        before = job.held.version
        while job.held.version == before:
            job.batch()
        wait_until(lambda: refresher.snapshot.version == job.held.version, what="what came since")
    finally:
        refresher.stop()
        refresher.join()
    assert reader.refreshes <= 1 + job.held.version, "none without news"
