from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics import render_cache
from exporters.metrics.brokers import ISR_REMOVAL_CAUSES
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import plain
from exporters.metrics.exporter_metrics import PROCESS_METRICS
from exporters.metrics.exposition import Exposition
from exporters.metrics.metric import Freshness
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import ExporterHealth, TableHealth
from streaming.changes.incidents.context import FAMILY_OF
from streaming.contracts.events import Cause
from streaming.web.http_counts import HttpCounts

SECOND = 1_000_000
STALE_AFTER = 60.0
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def exposed(
    reader: TablesReader, now: int, request: ScrapeRequest | None = None, exposition: Exposition | None = None
) -> str:
    snapshot = reader.refresh()
    tables = (TableHealth("partition_changes", True, 0.5, 0.125), TableHealth("incidents", False, None, 0.0))
    process = {metric.name: 20.0 for metric in PROCESS_METRICS}
    counts = HttpCounts()
    counts.expect(["/metrics"])
    counts.begin("/metrics")
    health = ExporterHealth("1.2.3", snapshot.version, 0.25, 7, tables=tables, process=process, http=counts)
    blocks = (exposition or Exposition(STALE_AFTER)).render(snapshot, health, now, request or ScrapeRequest())
    return plain(blocks).decode()


def samples(text: str) -> Samples:
    """Parse an exposition strictly: no sample may occur twice."""
    values: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in values
            values[key] = sample.value
    return values


def of_partition(name: str, topic: str, partition: int, **more: str) -> Any:
    labels = {"cluster": "main", "topic": topic, "partition": str(partition), **more}
    return f"kafka_replication_{name}", tuple(sorted(labels.items()))


def names(values: Samples) -> set[str]:
    return {name for name, _ in values}


def commit_other(tables: Any, rows: Any, until: int, topic: str = "orders", leader: int = 1) -> None:
    """Write another cluster of one partition."""
    state = rows.state([1], [1], leader, min_isr=1)
    tables.commit(rows.cluster_row(), rows.partition(topic, 0, state), rows.source(until))


def test_every_cause_by_which_a_broker_leaves_an_isr_has_a_series_from_the_start() -> None:
    assert set(ISR_REMOVAL_CAUSES) == {*FAMILY_OF, Cause.LAST_KNOWN_LEADER}


@pytest.mark.parametrize(("page", "later"), [("metrics.prom", 0), ("metrics_stale.prom", 60)])
def test_the_exposition_of_a_cluster_and_of_a_stale_one_is_the_golden_one(
    still: TablesReader, fresh: int, golden: Any, page: str, later: int
) -> None:
    golden(page, exposed(still, fresh + later * SECOND))


def test_the_exposition_of_a_healthy_cluster_is_the_golden_one(tables: Any, rows: Any, golden: Any) -> None:
    now = rows.start + 30 * SECOND
    tables.commit(
        rows.cluster_row(now),
        *(rows.broker(number) for number in (1, 2, 3)),
        rows.partition("orders", 0, rows.state([1, 2, 3], [1, 2, 3], 1), is_baseline=True),
        rows.partition("orders", 1, rows.state([2, 3, 1], [2, 3, 1], 2), is_baseline=True),
        rows.source(now),
    )
    golden("metrics_healthy.prom", exposed(TablesReader(tables.directory), now + SECOND))


def test_openmetrics_has_the_same_samples_under_names_that_its_parser_accepts(still: TablesReader, fresh: int) -> None:
    snapshot = still.refresh()
    health = ExporterHealth("1.2.3", 1, 0.25, 7)
    text, other = (
        plain(Exposition(STALE_AFTER).render(snapshot, health, fresh, ScrapeRequest(is_openmetrics=each))).decode()
        for each in (False, True)
    )
    in_text = samples(text)
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(other)}
    in_other = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }
    count = ("kafka_replication_exporter_series", ())
    assert (in_text.pop(count), in_other.pop(count)) == (len(in_text) + 1, len(in_other) + 1)
    assert in_text == {series: value for series, value in in_other.items() if not series[0].endswith("_created")}
    assert families["kafka_replication_cluster_under_min_isr_seconds"].unit == "seconds"


def test_counters_of_clusters_and_of_the_exporter_say_when_they_were_0(
    reader: TablesReader, fresh: int, tables: Any
) -> None:
    snapshot, began = reader.refresh(), 1_700_000_000.25
    health = ExporterHealth("1.2.3", 1, 0.25, 7, process={"process_start_time_seconds": began})
    request = ScrapeRequest(is_openmetrics=True)
    text = plain(Exposition(STALE_AFTER).render(snapshot, health, fresh, request)).decode()
    created = {name: value for (name, _), value in samples(text).items() if name.endswith("_created")}
    in_table = tables.open("partition_changes").metadata().created_time / 1000
    assert created["kafka_replication_cluster_isr_shrinks_created"] == in_table
    assert created["kafka_replication_exporter_refresh_errors_created"] == began
    assert {name.removesuffix("_created") + "_total" for name in created} <= {
        metric.name for metric in CATALOGUE if metric.kind == "counter" and {*metric.labels} <= {"cluster"}
    }
    again = TablesReader(tables.directory)
    again.refresh()
    assert again.refresh().counted_since == snapshot.counted_since


def test_the_exposition_of_two_clusters_is_the_golden_one(
    reader: TablesReader, fresh: int, golden: Any, tables: Any, other_rows: Any
) -> None:
    commit_other(tables, other_rows, fresh)
    golden("metrics_two_clusters.prom", exposed(reader, fresh))


@pytest.mark.prometheus
def test_promtool_reports_no_problem_but_two_names_of_kafka_exporter(still: TablesReader, fresh: int) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=exposed(still, fresh), capture_output=True, text=True, check=False
    )
    assert (checked.stdout, [line.split()[0] for line in checked.stderr.splitlines()]) == (
        "",
        ["kafka_consumergroup_current_offset_sum", "kafka_consumergroup_lag_sum"],
    )
    assert {line.partition(" ")[2] for line in checked.stderr.splitlines()} == {
        'non-histogram and non-summary metrics should not have "_sum" suffix'
    }


def test_every_metric_of_the_catalogue_is_shown_with_its_labels_and_type(still: TablesReader, fresh: int) -> None:
    families = {family.name: family for family in text_string_to_metric_families(exposed(still, fresh))}
    for metric in CATALOGUE:
        family = families[metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name]
        assert family.type == metric.kind
        assert family.documentation == metric.help
        assert {frozenset(sample.labels) for sample in family.samples} == {frozenset(metric.labels)}


def test_an_open_episode_grows_with_the_heartbeats(reader: TablesReader, fresh: int, tables: Any, rows: Any) -> None:
    exposition = Exposition(STALE_AFTER)
    exposed(reader, fresh, exposition=exposition)
    tables.commit(rows.source(rows.start + 35 * SECOND))
    shown = samples(exposed(reader, fresh, exposition=exposition))
    assert shown[of_partition("partition_under_replicated_seconds_total", "orders", 1)] == 1.5 + 25


def test_a_stale_cluster_exposes_ages_and_counters_but_no_state(still: TablesReader, fresh: int) -> None:
    exposition = Exposition(STALE_AFTER)
    watermark = fresh - SECOND
    last_moment = samples(exposed(still, watermark + 60 * SECOND, exposition=exposition))
    stale = samples(exposed(still, watermark + 60 * SECOND + 1, exposition=exposition))
    always_shown = {metric.name for metric in CATALOGUE if metric.freshness is Freshness.NOT_REQUIRED}
    assert names(stale) == always_shown
    assert "kafka_replication_partition_leader" in names(last_moment)
    assert stale["kafka_replication_cluster_state_age_seconds", (("cluster", "main"),)] == 60.000001
    shrinks = of_partition("partition_isr_shrinks_total", "orders", 1)
    assert stale[shrinks] == last_moment[shrinks] == 2


def test_offsets_disappear_when_their_samples_are_stale(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    later = fresh + 58 * SECOND
    tables.commit(rows.source(later))
    shown = names(samples(exposed(reader, later)))
    assert "kafka_topic_partition_current_offset" not in shown
    assert "kafka_topic_partition_leader" in shown


def test_a_dead_broker_changes_values_and_no_series(reader: TablesReader, fresh: int, tables: Any, rows: Any) -> None:
    before = samples(exposed(reader, fresh))
    dead = rows.state([1, 2, 3], [2, 3], 2, isr_shrinks=1, leader_changes=1)
    leaderless = rows.state([2, 3, 1], [2], -1)
    tables.commit(
        rows.broker(1, is_fenced=True),
        rows.partition("orders", 0, dead, before=rows.state([1, 2, 3], [1, 2, 3], 1), left_isr=[1], cause="fenced"),
        rows.partition("orders", 1, leaderless, before=rows.state([2, 3, 1], [2], 2)),
    )
    after = samples(exposed(reader, fresh))
    of_partitions = ("kafka_replication_partition_", "kafka_replication_replica_")
    assert {key for key in after.keys() ^ before.keys() if not key[0].startswith(of_partitions)} == set()
    assert (before["kafka_brokers", ()], after["kafka_brokers", ()]) == (2, 1)


def test_an_incremental_exposition_equals_one_rendered_from_scratch(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    exposition = Exposition(STALE_AFTER)
    exposed(reader, fresh, exposition=exposition)
    closed = {"under_replicated_seconds": 21.6, "under_min_isr_seconds": 10.1}
    healed = rows.state([2, 3, 1], [2, 1, 3], 2, isr_shrinks=2, isr_expands=2, **closed)
    gone = rows.state([1, 3], [], -1, is_deleted=True)
    tables.commit(
        rows.partition("orders", 1, healed),
        rows.partition("new", 0, rows.state([3], [3], 3)),
        rows.partition('odd "topic"\\', 0, gone),
        rows.source(fresh),
    )
    assert exposed(reader, fresh, exposition=exposition) == exposed(TablesReader(tables.directory), fresh)


def test_counters_go_on_where_they_were_when_the_exporter_starts_anew(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    before = samples(exposed(reader, fresh))
    tables.commit(rows.source(rows.start + 31 * SECOND, source_after={"quarantined": 4}))
    after = samples(exposed(TablesReader(tables.directory), fresh))
    counters = [key for key in before if key[0].endswith("_total")]
    assert counters
    assert [key for key in counters if after[key] < before[key]] == []


def test_a_topic_deleted_and_created_again_is_shown_once(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    again = rows.state([1, 2], [2, 1], 2, changed_at=fresh)
    tables.commit(rows.partition("orders", 0, again, topic_id="another id"))
    shown = samples(exposed(reader, fresh))
    assert shown[of_partition("partition_leader", "orders", 0)] == 2
    assert of_partition("partition_leader", "orders", 1) not in shown


def test_a_cluster_rebuilt_under_the_old_name_replaces_the_old_one(
    reader: TablesReader, fresh: int, tables: Any, other_rows: Any
) -> None:
    other_rows.cluster = "main"
    rebuilt = fresh + 70 * SECOND
    commit_other(tables, other_rows, rebuilt, "new")
    shown = samples(exposed(reader, rebuilt))
    assert shown["kafka_replication_cluster_partitions", (("cluster", "main"),)] == 1
    assert of_partition("partition_leader", "orders", 0) not in shown


def test_two_clusters_of_one_name_that_are_both_observed_have_their_ids_beside_it(
    reader: TablesReader, fresh: int, tables: Any, other_rows: Any
) -> None:
    other_rows.cluster = "main"
    commit_other(tables, other_rows, fresh, "new", leader=-1)
    named = []
    for seconds in (1, 2, 125):
        now = fresh + seconds * SECOND
        tables.commit(other_rows.source(now))
        shown = samples(exposed(reader, now))
        named.append(sorted(dict(labels)["cluster"] for name, labels in shown if name.endswith("cluster_partitions")))
    together = sorted(f"main ({cluster_id})" for cluster_id in reader.refresh().clusters)
    assert named == [together, together, ["main"]]


def drop_ins(values: Samples) -> Iterator[str]:
    others = ("kafka_replication_", "process_")
    return (name for name in names(values) if not name.startswith(others) and "_server_" not in name)


def test_fenced_brokers_are_not_counted_while_of_one_it_is_unknown(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    counted = []
    for second in (True, False, None):
        tables.commit(rows.broker(1, is_fenced=True), rows.broker(2, is_fenced=second), rows.broker(3))
        counted.append(
            samples(exposed(reader, fresh)).get(("kafka_replication_cluster_fenced_brokers", (("cluster", "main"),)))
        )
    assert counted == [2, 1, None]


def of_broker(shown: Samples, cluster: str, number: int) -> dict[str, float]:
    """Give the gauges of a broker that say how it is."""
    labels = (("broker", str(number)), ("cluster", cluster))
    gauges = ("registered", "fenced", "shutting_down", "online_log_dirs", "maintenance", "maintenance_overrun")
    exposed = {name: shown.get((f"kafka_replication_broker_{name}", labels)) for name in gauges}
    return {name: value for name, value in exposed.items() if value is not None}


def test_a_broker_that_was_unregistered_is_not_shown_as_it_was_last(
    reader: TablesReader, fresh: int, tables: Any, rows: Any
) -> None:
    gone = {"is_registered": False, "is_fenced": True, "is_shutting_down": True}
    tables.commit(rows.broker(3, **gone), rows.broker(2, is_fenced=True))
    shown = samples(exposed(reader, fresh))
    # That it was stopped on purpose holds until it registers again: its replicas may still be assigned to it.
    assert of_broker(shown, "main", 3) == {"registered": 0, "shutting_down": 1, "maintenance": 0}
    assert of_broker(shown, "main", 2)["fenced"] == 1
    removals = [labels for name, labels in shown if name.endswith("isr_departures_total") and ("broker", "3") in labels]
    assert len(removals) == len(ISR_REMOVAL_CAUSES)


def test_a_broker_that_polls_list_no_more_is_missed_while_it_has_replicas(
    reader: TablesReader, fresh: int, tables: Any, other_rows: Any
) -> None:
    down = {"is_fenced": True, "is_shutting_down": None, "log_dirs": None}
    brokers = [other_rows.broker(number, **(down if number > 3 else {})) for number in (1, 4, 5)]
    state = other_rows.state([1, 4], [1], 1, min_isr=1)
    tables.commit(
        other_rows.cluster_row(), *brokers, other_rows.partition("orders", 0, state), other_rows.source(fresh)
    )
    shown = samples(exposed(reader, fresh))
    counts = [shown[f"kafka_replication_cluster_{name}brokers", (("cluster", "other"),)] for name in ("", "fenced_")]
    assert counts == [2, 1]
    assert of_broker(shown, "other", 4) == {"registered": 1, "fenced": 1, "maintenance": 0, "maintenance_overrun": 0}
    assert of_broker(shown, "other", 5) == {"maintenance": 0}
    alone = samples(exposed(reader, fresh, ScrapeRequest("other")))
    assert {dict(labels)["id"] for name, labels in alone if name == "kafka_broker_info"} == {"1", "4"}


def test_a_metric_without_our_prefix_is_one_of_kafka_exporter_or_of_its_fork() -> None:
    groups = ("current_offset", "current_offset_sum", "lag", "lag_sum", "members")
    offsets = ("current_offset", "oldest_offset")
    states = ("in_sync_replica", "leader", "leader_is_preferred", "replicas", "under_replicated_partition")
    assert {metric.name for metric in CATALOGUE if metric.is_drop_in} == {
        *(f"kafka_{name}" for name in ("broker_info", "brokers", "consumer_lag_millis", "topic_partitions")),
        *(f"kafka_consumergroup_{name}" for name in groups),
        *(f"kafka_topic_partition_{name}" for name in (*offsets, *states)),
    }


def test_drop_in_metrics_are_exposed_for_one_cluster_or_the_selected_one(
    reader: TablesReader, fresh: int, tables: Any, other_rows: Any
) -> None:
    alone = set(drop_ins(samples(exposed(reader, fresh))))
    commit_other(tables, other_rows, fresh)
    assert len(alone) == 16
    assert set(drop_ins(samples(exposed(reader, fresh)))) == set()
    selected = samples(exposed(reader, fresh, ScrapeRequest(cluster="main")))
    assert set(drop_ins(selected)) == alone
    assert {dict(labels).get("cluster") or "main" for _, labels in selected} == {"main"}


def test_only_the_metrics_selected_by_name_are_exposed(still: TablesReader, fresh: int) -> None:
    chosen = {"kafka_brokers", "kafka_replication_exporter_series", "kafka_server_replicamanager_leadercount"}
    shown = samples(exposed(still, fresh, ScrapeRequest(names=frozenset(chosen))))
    assert names(shown) == chosen
    assert shown["kafka_replication_exporter_series", ()] == len(shown) == 4


def test_after_a_fault_everything_is_rendered_again(
    reader: TablesReader, fresh: int, tables: Any, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exposition = Exposition(STALE_AFTER)
    exposition.prepare(reader.refresh(), fresh)
    group = {**rows.owner, "group": "new", "group_protocol": "classic", "group_state": "Stable", "coordinator": 1}
    tables.put("groups", {**group, "members": 7, "collected_at": fresh, "source": "samples:collector-1"})

    kept = render_cache.line

    def rendered(name: str, *given: Any) -> str:
        if name == "kafka_consumergroup_members":
            raise ValueError("a sample that cannot be rendered")
        return kept(name, *given)

    with monkeypatch.context() as faulty:
        faulty.setattr(render_cache, "line", rendered)
        with pytest.raises(ValueError, match="cannot be rendered"):
            exposition.prepare(reader.refresh(), fresh)
    text = exposed(reader, fresh, exposition=exposition)
    assert 'kafka_consumergroup_members{consumergroup="new"} 7\n' in text
    assert text == exposed(reader, fresh)
