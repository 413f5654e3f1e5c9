from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporters.catalogue import CATALOGUE
from exporters.compression import plain
from exporters.exposition import Exposition, Request
from exporters.metric import Health, Sight
from exporters.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterator

SECOND = 1_000_000
STALE_AFTER = 60.0
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(reader: Reader, now: int, request: Request | None = None, exposition: Exposition | None = None) -> str:
    snapshot = reader.refresh()
    health = Health("1.2.3", snapshot.version, 0.25, 7)
    blocks = (exposition or Exposition(STALE_AFTER)).page(snapshot, health, now, request or Request())
    return plain(blocks).decode()


def samples(text: str) -> Samples:
    """Read a page strictly: no sample may stand twice."""
    told: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in told
            told[key] = sample.value
    return told


def of_partition(name: str, topic: str, partition: int, **more: str) -> Any:
    labels = {"cluster": "main", "topic": topic, "partition": str(partition), **more}
    return f"kafka_replication_{name}", tuple(sorted(labels.items()))


def names(told: Samples) -> set[str]:
    return {name for name, _ in told}


@pytest.fixture
def reader(busy_cluster: Any) -> Reader:
    return Reader(busy_cluster.directory)


@pytest.fixture
def fresh(rows: Any) -> int:
    return int(rows.start + 31 * SECOND)


def test_the_whole_page_of_one_cluster_is_the_golden_one(reader: Reader, fresh: int, golden: Any) -> None:
    golden("metrics.prom", page(reader, fresh))


def test_the_page_of_a_cluster_out_of_sight_is_the_golden_one(reader: Reader, fresh: int, golden: Any) -> None:
    golden("metrics_stale.prom", page(reader, fresh + 60 * SECOND))


def test_the_page_of_two_clusters_is_the_golden_one(
    reader: Reader, fresh: int, golden: Any, tables: Any, other_rows: Any
) -> None:
    state = other_rows.state([1], [1], 1, min_isr=1)
    tables.commit(other_rows.cluster_row(), other_rows.partition("orders", 0, state), other_rows.source(fresh))
    golden("metrics_two_clusters.prom", page(reader, fresh))


def test_every_sample_stands_once_and_its_family_in_one_run(reader: Reader, fresh: int) -> None:
    text = page(reader, fresh)
    assert samples(text)
    headers = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert sorted(set(headers)) == sorted(headers)


@pytest.mark.prometheus
def test_promtool_finds_nothing_to_complain_about(reader: Reader, fresh: int) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page(reader, fresh), capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_every_metric_of_the_catalogue_is_shown_with_its_labels_and_type(reader: Reader, fresh: int) -> None:
    families = {family.name: family for family in text_string_to_metric_families(page(reader, fresh))}
    for metric in CATALOGUE:
        family = families[metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name]
        assert family.type == metric.kind
        assert family.documentation == metric.help
        assert {frozenset(sample.labels) for sample in family.samples} == {frozenset(metric.labels)}


def test_what_is_unknown_is_absent_and_never_0(reader: Reader, fresh: int) -> None:
    told = samples(page(reader, fresh))
    for name in ("min_in_sync_replicas", "under_min_isr", "at_min_isr", "leader_epoch"):
        assert of_partition(f"partition_{name}", 'odd "topic"\\', 0) not in told
        assert of_partition(f"partition_{name}", "orders", 0) in told


def test_an_open_episode_is_told_up_to_the_watermark_and_not_past_it(reader: Reader, fresh: int) -> None:
    told = samples(page(reader, fresh + 20 * SECOND))
    assert told[of_partition("partition_under_replicated_seconds_total", "orders", 1)] == 1.5 + 20
    assert told[of_partition("partition_under_min_isr_seconds_total", "orders", 1)] == 10
    assert told[of_partition("partition_offline_seconds_total", 'odd "topic"\\', 0)] == 5


def test_an_open_episode_grows_with_the_heartbeats(reader: Reader, fresh: int, tables: Any, rows: Any) -> None:
    exposition = Exposition(STALE_AFTER)
    page(reader, fresh, exposition=exposition)
    tables.commit(rows.source(rows.start + 35 * SECOND))
    told = samples(page(reader, fresh, exposition=exposition))
    assert told[of_partition("partition_under_replicated_seconds_total", "orders", 1)] == 1.5 + 25


def test_a_replica_that_is_out_of_the_isr_is_named(reader: Reader, fresh: int) -> None:
    told = samples(page(reader, fresh))
    members = [told[of_partition("replica_isr_member", "orders", 1, broker=str(broker))] for broker in (1, 2, 3)]
    assert members == [0, 1, 0]


def test_departures_are_shown_with_0_for_every_broker_and_cause_before_the_first(reader: Reader, fresh: int) -> None:
    told = samples(page(reader, fresh))
    departures = {
        (labels["broker"], labels["cause"]): value
        for (name, pairs), value in told.items()
        if name == "kafka_replication_broker_isr_departures_total" and (labels := dict(pairs))
    }
    assert {broker for broker, _ in departures} == {"1", "2", "3"}
    assert {key for key, value in departures.items() if value} == {("1", "fenced"), ("3", "fenced")}
    assert len(departures) == 3 * 11


def test_offsets_are_the_leader_s_and_while_it_told_none_another_replica_s(reader: Reader, fresh: int) -> None:
    told = samples(page(reader, fresh))
    offsets = [
        told["kafka_topic_partition_current_offset", (("partition", partition), ("topic", "orders"))]
        for partition in ("0", "1")
    ]
    assert offsets == [70, 8]


def test_a_stale_cluster_shows_ages_and_counters_but_no_state(reader: Reader, fresh: int) -> None:
    exposition = Exposition(STALE_AFTER)
    watermark = fresh - SECOND
    last_moment = samples(page(reader, watermark + 60 * SECOND, exposition=exposition))
    stale = samples(page(reader, watermark + 60 * SECOND + 1, exposition=exposition))
    kept = {metric.name for metric in CATALOGUE if metric.sight is Sight.NONE}
    assert names(stale) == kept
    assert "kafka_replication_partition_leader" in names(last_moment)
    assert stale["kafka_replication_cluster_state_age_seconds", (("cluster", "main"),)] == 60.000001
    shrinks = of_partition("partition_isr_shrinks_total", "orders", 1)
    assert stale[shrinks] == last_moment[shrinks] == 2


def test_offsets_vanish_when_nobody_asks_for_them_any_more(reader: Reader, fresh: int, tables: Any, rows: Any) -> None:
    later = fresh + 58 * SECOND
    tables.commit(rows.source(later))
    told = names(samples(page(reader, later)))
    assert "kafka_topic_partition_current_offset" not in told
    assert "kafka_topic_partition_leader" in told


def test_a_dead_broker_changes_values_and_no_series(reader: Reader, fresh: int, tables: Any, rows: Any) -> None:
    before = samples(page(reader, fresh))
    dead = rows.state([1, 2, 3], [2, 3], 2, isr_shrinks=1, leader_changes=1)
    leaderless = rows.state([2, 3, 1], [2], -1)
    tables.commit(
        rows.broker(1, is_fenced=True),
        rows.partition("orders", 0, dead, before=rows.state([1, 2, 3], [1, 2, 3], 1), left_isr=[1], cause="fenced"),
        rows.partition("orders", 1, leaderless, before=rows.state([2, 3, 1], [2], 2)),
    )
    after = samples(page(reader, fresh))
    assert after.keys() == before.keys()
    assert (before["kafka_brokers", ()], after["kafka_brokers", ()]) == (2, 1)


def test_a_page_made_from_the_last_one_is_the_page_made_from_scratch(
    reader: Reader, fresh: int, tables: Any, rows: Any
) -> None:
    exposition = Exposition(STALE_AFTER)
    page(reader, fresh, exposition=exposition)
    closed = {"under_replicated_seconds": 21.6, "under_min_isr_seconds": 10.1}
    healed = rows.state([2, 3, 1], [2, 1, 3], 2, isr_shrinks=2, isr_expands=2, **closed)
    gone = rows.state([1, 3], [], -1, is_deleted=True)
    tables.commit(
        rows.partition("orders", 1, healed),
        rows.partition("new", 0, rows.state([3], [3], 3)),
        rows.partition('odd "topic"\\', 0, gone),
        rows.source(fresh),
    )
    assert page(reader, fresh, exposition=exposition) == page(Reader(tables.directory), fresh)


def test_counters_go_on_where_they_were_when_the_exporter_starts_anew(
    reader: Reader, fresh: int, tables: Any, rows: Any
) -> None:
    before = samples(page(reader, fresh))
    tables.commit(rows.source(rows.start + 31 * SECOND, source_after={"quarantined": 4}))
    after = samples(page(Reader(tables.directory), fresh))
    counters = [key for key in before if key[0].endswith("_total")]
    assert counters
    assert [key for key in counters if after[key] < before[key]] == []


def test_a_topic_deleted_and_created_again_is_shown_once(reader: Reader, fresh: int, tables: Any, rows: Any) -> None:
    again = rows.state([1, 2], [2, 1], 2, changed_at=fresh)
    tables.commit(rows.partition("orders", 0, again, topic_id="another id"))
    told = samples(page(reader, fresh))
    assert told[of_partition("partition_leader", "orders", 0)] == 2
    assert of_partition("partition_leader", "orders", 1) not in told


def test_a_cluster_rebuilt_under_the_old_name_replaces_the_old_one(
    reader: Reader, fresh: int, tables: Any, other_rows: Any
) -> None:
    other_rows.cluster = "main"
    state = other_rows.state([1], [1], 1, min_isr=1)
    rebuilt = fresh + SECOND
    tables.commit(other_rows.cluster_row(), other_rows.partition("new", 0, state), other_rows.source(rebuilt))
    told = samples(page(reader, rebuilt))
    assert told["kafka_replication_cluster_partitions", (("cluster", "main"),)] == 1
    assert of_partition("partition_leader", "orders", 0) not in told


def drop_ins(told: Samples) -> Iterator[str]:
    return (name for name in names(told) if not name.startswith("kafka_replication_") and "_server_" not in name)


def test_drop_ins_are_shown_for_one_cluster_or_the_one_that_is_asked_for(
    reader: Reader, fresh: int, tables: Any, other_rows: Any
) -> None:
    alone = set(drop_ins(samples(page(reader, fresh))))
    state = other_rows.state([1], [1], 1, min_isr=1)
    tables.commit(other_rows.cluster_row(), other_rows.partition("orders", 0, state), other_rows.source(fresh))
    assert len(alone) == 10
    assert set(drop_ins(samples(page(reader, fresh)))) == set()
    asked = samples(page(reader, fresh, Request(cluster="main")))
    assert set(drop_ins(asked)) == alone
    assert {dict(labels).get("cluster", "main") for _, labels in asked} == {"main"}


def test_only_the_metrics_that_are_asked_for_by_name_are_shown(reader: Reader, fresh: int) -> None:
    wanted = frozenset(
        {"kafka_brokers", "kafka_replication_exporter_series", "kafka_server_replicamanager_leadercount"}
    )
    told = samples(page(reader, fresh, Request(names=wanted)))
    assert names(told) == wanted
    assert told["kafka_replication_exporter_series", ()] == len(told) == 4
