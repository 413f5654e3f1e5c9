"""The names of Kafka's MBeans: derived from the tables as a broker counts, and what an agent reports in their place."""

from __future__ import annotations

from typing import Any

import pytest

from exporters.metrics.compression import plain
from exporters.metrics.jmx_exposition import JmxExposition
from exporters.metrics.jmx_names import JMX_METRICS
from exporters.metrics.prepared import ScrapeRequest
from exporters.metrics.sample_ages import oldest_ages
from exporters.read_model.reader import TablesReader
from streaming.errors import TableUnreadable
from streaming.settings import CollectSettings
from tests.exporters.conftest import restless
from tests.exporters.metrics.test_exposition import SECOND, STALE_AFTER, Samples, commit_other, names, samples

MANAGER, CONTROLLER = "kafka_server_replicamanager_", "kafka_controller_kafkacontroller_"
CONTROLLERS = ("1000", "1001")


def rendered(reader: TablesReader, now: int, request: ScrapeRequest | None = None) -> str:
    exposition = JmxExposition(STALE_AFTER, oldest_ages(STALE_AFTER, CollectSettings()))
    return plain(exposition.render(reader.refresh(), now, request or ScrapeRequest())).decode()


def shown(reader: TablesReader, now: int) -> Samples:
    return samples(rendered(reader, now))


def by_instance(values: Samples, name: str, cluster: str = "main") -> dict[str, float]:
    """Give the values of a metric by instance, of one cluster; those of partitions are added up, as dashboards do."""
    sums: dict[str, float] = {}
    for (each, labels), value in values.items():
        pairs = dict(labels)
        if each == name and pairs["kafka_cluster"] == cluster:
            sums[pairs["instance"]] = sums.get(pairs["instance"], 0) + value
    return sums


def fail_once(reader: TablesReader) -> None:
    """Let the next refresh read everything from the start, as after each error."""
    torn = reader.tables / "partition_changes" / "_delta_log" / f"{reader.snapshot.version + 1:020}.json"
    torn.write_text("{")
    with pytest.raises(TableUnreadable):
        reader.refresh()
    torn.unlink()


@pytest.fixture
def reader(tables: Any, rows: Any) -> TablesReader:
    """A cluster of four brokers: 3 shuts down, 4 is fenced; nobody leads the last partition."""
    state = rows.state
    moving = state([1, 2, 3], [1, 2], 1, adding_replicas=[3])
    tables.commit(
        rows.cluster_row(rows.start, controller=1000, quorum_voters=[1000, 1001]),
        *(rows.broker(number, is_fenced=number == 4) for number in (1, 2, 3, 4)),
        rows.partition("orders", 0, state([1, 2, 3], [1, 2, 3], 1), is_baseline=True),
        rows.partition("orders", 1, state([2, 1, 4], [2, 1], 2), is_baseline=True),
        rows.partition("orders", 2, state([4, 1, 2], [1], 1), is_baseline=True),
        rows.partition("orders", 3, moving, is_baseline=True),
        rows.partition("lost", 0, state([4], [4], -1, min_isr=1), is_baseline=True),
        rows.source(rows.start),
    )
    return restless(tables.directory)


def test_every_metric_has_the_name_of_its_mbean_and_there_are_two_dozen() -> None:
    listed = {each.metric.name: each.mbean for each in JMX_METRICS}
    assert len(listed) == len(JMX_METRICS) == 25
    for name, mbean in listed.items():
        bean = mbean.partition("name=")[2].partition(",")[0].lower()
        assert name.endswith(f"_{bean.removesuffix('persec')}_total" if bean.endswith("persec") else f"_{bean}")


def test_the_exposition_under_the_names_of_mbeans_is_the_golden_one(busy_cluster: Any, rows: Any, golden: Any) -> None:
    golden("metrics_jmx.prom", rendered(TablesReader(busy_cluster.directory), rows.start + 31 * SECOND))


def test_a_broker_counts_what_it_leads_and_a_fenced_one_has_no_gauge(reader: TablesReader, rows: Any) -> None:
    values = shown(reader, rows.start)
    counted = {
        "partitioncount": {"1": 4, "2": 4, "3": 2},
        "leadercount": {"1": 3, "2": 1, "3": 0},
        # The replica that a reassignment adds need not be in sync (KIP-352); the row of the table says so itself.
        "underreplicatedpartitions": {"1": 2, "2": 1, "3": 0},
        "underminisrpartitioncount": {"1": 1, "2": 0, "3": 0},
        "atminisrpartitioncount": {"1": 1, "2": 1, "3": 0},
        "reassigningpartitions": {"1": 1, "2": 0, "3": 0},
    }
    assert {name: by_instance(values, f"{MANAGER}{name}") for name in counted} == counted
    assert by_instance(values, "kafka_server_kafkaserver_brokerstate") == {"1": 3, "2": 3, "3": 6}


def test_flags_of_partitions_add_up_to_what_a_broker_counts(reader: TablesReader, rows: Any) -> None:
    values = shown(reader, rows.start)
    for flag, count in (
        ("underreplicated", "underreplicatedpartitions"),
        ("underminisr", "underminisrpartitioncount"),
        ("atminisr", "atminisrpartitioncount"),
    ):
        assert by_instance(values, f"kafka_cluster_partition_{flag}") == by_instance(values, f"{MANAGER}{count}")
    holds = {dict(labels).get("partition") for (name, labels), value in values.items() if name.endswith("_underminisr")}
    assert holds == {"", "2"}


def test_what_controllers_say_of_the_cluster_is_there_once(reader: TablesReader, rows: Any) -> None:
    values = shown(reader, rows.start)
    names_of_cluster = [each.metric.name for each in JMX_METRICS if each.is_of_cluster]
    assert {name.removeprefix(CONTROLLER): by_instance(values, name) for name in names_of_cluster} == {
        name: {"1000": count}
        for name, count in (
            ("offlinepartitionscount", 1), ("preferredreplicaimbalancecount", 2), ("globaltopiccount", 2),
            ("globalpartitioncount", 5), ("activebrokercount", 3), ("fencedbrokercount", 1),
            ("kafka_controller_controllerstats_uncleanleaderelections_total", 0),
        )
    }  # fmt: skip
    assert by_instance(values, f"{CONTROLLER}activecontrollercount") == {"1000": 1, "1001": 0}


@pytest.mark.parametrize("of_cluster", [{"controller": None}, {"primary_source": "poll"}])
def test_while_the_controller_is_unknown_the_cluster_has_its_counts_and_no_active_controller(
    reader: TablesReader, rows: Any, tables: Any, of_cluster: dict[str, Any]
) -> None:
    """Of a polled cluster it is unknown, even if there was one before."""
    tables.commit(rows.cluster_row(rows.start, **of_cluster))
    values = shown(reader, rows.start)
    assert by_instance(values, f"{CONTROLLER}offlinepartitionscount") == {"controller": 1}
    assert f"{CONTROLLER}activecontrollercount" not in names(values)


def test_counts_by_minimum_are_absent_while_it_is_unknown_of_every_partition(tables: Any, rows: Any) -> None:
    state = rows.state([1, 2], [1], 1, min_isr=None)
    tables.commit(rows.cluster_row(), rows.broker(1), rows.partition("orders", 0, state), rows.source(rows.start))
    exposed = names(shown(TablesReader(tables.directory), rows.start))
    assert f"{MANAGER}underreplicatedpartitions" in exposed
    assert not exposed & {
        f"{MANAGER}underminisrpartitioncount",
        f"{MANAGER}atminisrpartitioncount",
        "kafka_cluster_partition_underminisr",
        "kafka_cluster_partition_atminisr",
    }


def test_stale_data_leaves_counters_alone(reader: TablesReader, rows: Any) -> None:
    at = rows.start + 60 * SECOND
    assert f"{MANAGER}leadercount" in names(shown(reader, at))
    counters = {each.metric.name for each in JMX_METRICS if each.metric.kind == "counter"}
    counters.remove("kafka_server_brokertopicmetrics_messagesin_total")  # nobody has asked for an offset
    assert names(shown(reader, at + 1)) == counters


def test_leaders_are_counted_by_the_changes_that_they_asked_for_since_the_process_began(
    reader: TablesReader, rows: Any, tables: Any
) -> None:
    state, whole = rows.state, rows.state([1, 2, 3], [1, 2, 3], 1)
    slow = state([1, 2, 3], [1, 2], 1)
    assert by_instance(shown(reader, rows.start), f"{MANAGER}isrshrinks_total") == dict.fromkeys("1234", 0)
    by_lag = {"before": whole, "left_isr": [3], "cause": "lag", "evidence": "proven"}
    back = {"before": slow, "joined_isr": [3], "cause": "expand", "evidence": "proven"}
    fenced = {"before": whole, "left_isr": [3], "cause": "fenced", "evidence": "proven"}
    elected = {"before": whole, "left_isr": [1], "cause": "lag", "evidence": "inferred"}
    tables.commit(rows.partition("orders", 0, slow, **by_lag), rows.partition("orders", 0, whole, **back))
    tables.commit(rows.partition("orders", 0, slow, **fenced), rows.partition("orders", 0, whole, **back))
    tables.commit(rows.partition("orders", 0, state([1, 2, 3], [2, 3], 2), **elected))
    for _ in range(2):  # the second time after everything was read again
        values = shown(reader, rows.start)
        assert by_instance(values, f"{MANAGER}isrshrinks_total") == {"1": 1, "2": 0, "3": 0, "4": 0}
        assert by_instance(values, f"{MANAGER}isrexpands_total") == {"1": 2, "2": 0, "3": 0, "4": 0}
        fail_once(reader)
    tables.commit(rows.partition("orders", 0, whole, **back))
    assert by_instance(shown(reader, rows.start), f"{MANAGER}isrexpands_total") == {"1": 3, "2": 0, "3": 0, "4": 0}
    anew = shown(TablesReader(tables.directory), rows.start)
    assert set(by_instance(anew, f"{MANAGER}isrexpands_total").values()) == {0}


def test_what_an_agent_reports_wins_and_its_counter_is_never_replaced(
    reader: TablesReader, rows: Any, tables: Any
) -> None:
    fresh = {**rows.owner, "source": "broker_metrics:c", "collected_at": rows.start, "metric_value": 7.0}
    stale = {**fresh, "collected_at": rows.start - 61 * SECOND}
    tables.put(
        "broker_metrics",
        {**fresh, "broker": 1, "metric": f"{MANAGER}leadercount"},
        {**stale, "broker": 2, "metric": f"{MANAGER}leadercount"},
        {**fresh, "broker": 1, "metric": f"{MANAGER}isrshrinks_total"},
        {**stale, "broker": 2, "metric": f"{MANAGER}isrshrinks_total"},
        {**fresh, "broker": 4, "metric": f"{MANAGER}failedisrupdates_total"},
        {**fresh, "broker": 1000, "metric": f"{CONTROLLER}fencedbrokercount"},
        {**fresh, "broker": 1001, "metric": f"{CONTROLLER}fencedbrokercount"},
    )
    values = shown(reader, rows.start)
    assert by_instance(values, f"{MANAGER}leadercount") == {"1": 7, "2": 1, "3": 0}
    assert by_instance(values, f"{MANAGER}isrshrinks_total") == {"1": 7, "3": 0, "4": 0}
    assert by_instance(values, f"{MANAGER}failedisrupdates_total") == {"4": 7}
    assert by_instance(values, f"{CONTROLLER}fencedbrokercount") == {"1000": 7}
    # Which of them is active is unknown once the state is stale; what their agents say is not.
    tables.put("broker_metrics", *(
        {**fresh, "collected_at": rows.start + 61 * SECOND, "broker": node, "metric": f"{CONTROLLER}fencedbrokercount"}
        for node in (1000, 1001)
    ))  # fmt: skip
    values = shown(reader, rows.start + 61 * SECOND)
    assert by_instance(values, f"{CONTROLLER}fencedbrokercount") == {"1000": 7, "1001": 7}


def test_logs_and_directories_are_shown_while_their_samples_are_fresh(
    reader: TablesReader, rows: Any, tables: Any
) -> None:
    common = {**rows.owner, "source": "samples:c", "collected_at": rows.start}
    replica = {**common, "topic_id": "id-of-orders", "topic": "orders", "partition": 0, "broker": 1}
    positions = {"log_start_offset": 5, "log_end_offset": 9, "size_bytes": 100}
    old = {"collected_at": rows.start - 61 * SECOND}
    tables.put(
        "replica_offsets",
        {**replica, **positions},
        {**replica, **positions, "broker": 2, "log_end_offset": 8, "size_bytes": None},
        {**replica, **positions, **old, "broker": 3},
        {**replica, **positions, "topic_id": "gone", "topic": "gone"},
    )
    directory = {**common, "is_online": True, "hosted_replicas": 1}
    tables.put(
        "log_directories",
        {**directory, "broker": 1, "log_dir": "/a"},
        {**directory, "broker": 1, "log_dir": "/b", "is_online": False},
        {**directory, "broker": 2, "log_dir": "/a"},
    )
    values = shown(reader, rows.start)
    logs = {name: by_instance(values, f"kafka_log_log_{name}") for name in ("logstartoffset", "logendoffset", "size")}
    assert logs == {"logstartoffset": {"1": 5, "2": 5}, "logendoffset": {"1": 9, "2": 8}, "size": {"1": 100}}
    assert {dict(labels)["topic"] for name, labels in values if name == "kafka_log_log_size"} == {"orders"}
    assert by_instance(values, "kafka_log_logmanager_offlinelogdirectorycount") == {"1": 1, "2": 0}


def test_records_are_counted_where_they_were_appended_by_how_much_a_leader_s_log_grew(
    reader: TablesReader, rows: Any, tables: Any
) -> None:
    common = {**rows.owner, "source": "samples:c", "collected_at": rows.start, "topic": "orders", "topic_id": "o"}

    def counted(*ends: tuple[int, int, int | None, int]) -> dict[str, float]:
        replicas = [
            {**common, "partition": partition, "broker": broker, "log_start_offset": start, "log_end_offset": end}
            for partition, broker, start, end in ends
        ]
        tables.put("replica_offsets", *replicas)
        return by_instance(shown(reader, rows.start), "kafka_server_brokertopicmetrics_messagesin_total")

    assert counted((0, 1, 0, 100), (0, 2, None, 90), (1, 2, 0, 7)) == {"1": 0, "2": 0}
    assert counted((0, 1, 0, 130), (0, 2, None, 130), (1, 2, 0, 8)) == {"1": 30, "2": 1}
    # The leader moved, a partition appeared, and an unclean election cut a log.
    assert counted((0, 2, 0, 135), (1, 2, 0, 5), (2, 3, 0, 1000)) == {"1": 30, "2": 6, "3": 0}
    assert counted((0, 2, 0, 135), (1, 2, 0, 6), (2, 3, 0, 1001)) == {"1": 30, "2": 7, "3": 1}


def test_clusters_are_beside_each_other_and_one_may_be_selected(
    reader: TablesReader, rows: Any, other_rows: Any, tables: Any
) -> None:
    commit_other(tables, other_rows, rows.start)
    tables.commit(other_rows.broker(1))
    values = shown(reader, rows.start)
    assert by_instance(values, f"{MANAGER}leadercount", "other") == {"1": 1}
    assert by_instance(values, f"{MANAGER}leadercount") == {"1": 3, "2": 1, "3": 0}
    request = ScrapeRequest("other", frozenset({f"{MANAGER}leadercount"}))
    alone = samples(rendered(reader, rows.start, request))
    assert alone == {(f"{MANAGER}leadercount", (("instance", "1"), ("kafka_cluster", "other"))): 1}
