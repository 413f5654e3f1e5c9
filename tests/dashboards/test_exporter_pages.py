"""The golden expositions of the exporter in a real Prometheus: what every board and the alerts show."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import AlertSettings, rule_file
from dashboards.render import as_yaml
from tests.dashboards.test_expressions import concrete

pytestmark = pytest.mark.prometheus

GOLDEN = Path(__file__).parents[1] / "golden"
IMPATIENT = AlertSettings(
    interval="1s",
    offline_for="1s",
    under_min_isr_for="1s",
    stale_for="1s",
    blind_for="2s",
    expected_clusters=("main",),
    remembered="1h",
)
NO_DATA = "no fresh data"
NOTHING = (NO_DATA, "not reported")
GREEN = "green"


def shown(prometheus: Any, panel: dict[str, Any]) -> Any:
    """Give what Grafana would show: of a stat one number, of a table its rows; the text for no data if there is none.

    A range query is reduced to its last value that is not null, anywhere in the range, as a stat of Grafana does.
    """
    rows = [row for target in panel["targets"] for row in _queried(prometheus, target)]
    if not rows:
        return panel["fieldConfig"]["defaults"]["noValue"]
    if panel["type"] == "stat":
        (row,) = rows
        return float(row[1])
    return sorted({tuple(sorted(labels.items())) for labels, _ in rows})


def _queried(prometheus: Any, target: dict[str, Any]) -> list[tuple[dict[str, str], str]]:
    expression = concrete(target["expr"]).replace('cluster="prod"', 'cluster="main"')
    if target["instant"]:
        return [(row["metric"], row["value"][1]) for row in prometheus.query(expression)]
    rows = prometheus.query(f"last_over_time(({expression})[1h:1s])")
    return [(row["metric"], row["value"][1]) for row in rows]


def color(panel: dict[str, Any], value: Any) -> str:
    """Give the colour of a stat; without a value it has the base colour of no threshold: none."""
    if value in NOTHING:
        return "none"
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return str([step["color"] for step in steps if step["value"] is None or step["value"] <= value][-1])


def all_shown_in(prometheus: Any, board: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Give what is shown of every stat and table."""
    return {title: shown(prometheus, panel) for title, panel in board.items() if panel["type"] in {"stat", "table"}}


def firing_in(prometheus: Any, name: str) -> list[dict[str, Any]]:
    """Give the alerts of a name that fire."""
    return [one for one in prometheus.alerts(name) if one["state"] == "firing"]


def topics_by_column(prometheus: Any, panel: dict[str, Any]) -> list[set[str]]:
    """Give the topics that have a value, by column of a table."""
    return [{labels["topic"] for labels, _ in _queried(prometheus, target)} for target in panel["targets"]]


def column(prometheus: Any, panel: dict[str, Any], title: str) -> list[tuple[dict[str, str], str]]:
    """Give the labels and the value of every cell in a column of a table."""
    (order,) = [one["options"]["renameByName"] for one in panel["transformations"] if one["id"] == "organize"]
    (name,) = [name for name, renamed in order.items() if renamed == title]
    (target,) = [one for one in panel["targets"] if name in {"Value", f"Value #{one['refId']}"}]
    return _queried(prometheus, target)


def words_of(prometheus: Any, panel: dict[str, Any], title: str) -> dict[str, str]:
    """Give what a column says, by broker: a word in place of a value that has one."""
    (looks,) = [one["properties"] for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] == title]
    (mappings,) = [look["value"] for look in looks if look["id"] == "mappings"]
    words = {key: one["text"] for each in mappings if each["type"] == "value" for key, one in each["options"].items()}
    return {labels["broker"]: words.get(value, value) for labels, value in column(prometheus, panel, title)}


def may_lead(prometheus: Any, panel: dict[str, Any]) -> set[tuple[str, str]]:
    """Give topic and broker of the missing replicas that have every committed record."""
    cells = column(prometheus, panel, "May lead")
    return {(labels["topic"], labels["broker"]) for labels, value in cells if value == "1"}


def green_stats(board: dict[str, dict[str, Any]], values: dict[str, Any]) -> set[str]:
    """Name the stats that show a value in green."""
    stats = {title: panel for title, panel in board.items() if panel["type"] == "stat" and values[title] not in NOTHING}
    return {title for title, panel in stats.items() if color(panel, values[title]) == GREEN}


@pytest.fixture
def drawn(boards: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Give the panels of all boards by "board: title"; those of the overview by their title."""
    return {
        f"{name.removesuffix('.json')}: ".replace("replication-overview: ", "") + panel["title"]: panel
        for name, board in boards.items()
        for panel in board["panels"]
    }


NUMBERS = [
    "Offline partitions",
    "Under min ISR",
    "One loss from refusing writes",
    "Under-replicated",
    "Fenced brokers",
]


def test_healthy_at_risk_and_blind_look_different_and_blind_is_never_green(
    drawn: dict[str, dict[str, Any]],
    prometheus_server: Callable[..., Any],
    exposition: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    exporter = exposition((GOLDEN / "metrics_healthy.prom").read_text())
    prometheus = prometheus_server(targets={"isrwatch": exporter.address}, rules=[as_yaml(rule_file(IMPATIENT))])

    firing, all_shown = partial(firing_in, prometheus), partial(all_shown_in, prometheus, drawn)
    eventually(lambda: prometheus.query("kafka_replication_partition_leader"))
    eventually(lambda: prometheus.query("increase(kafka_replication_cluster_unclean_elections_total[1m])"))
    healthy = all_shown()
    assert [healthy[title] for title in NUMBERS] == [0, 0, 0, 0, 0]
    none = (("cluster", "main"), ("topic", "$__all"))  # as Grafana writes it in a link; the cell says none
    assert healthy["Topics at risk"] == [none]
    assert healthy["Missing replicas"] == [(("broker", "$__all"), ("cluster", "main"), ("partition", "-"), none[1])]
    assert prometheus.alerts("KafkaOfflinePartitions") == []

    exporter.text = (GOLDEN / "metrics.prom").read_text()
    page = eventually(lambda: firing("KafkaOfflinePartitions"))[0]
    assert page["labels"]["cluster"] == "main"
    assert "1 partitions have no leader" in page["annotations"]["description"]
    assert "Under min ISR: 1." in page["annotations"]["description"]
    assert firing("KafkaUnderMinIsr") == [], "one trouble is one page"
    at_risk = all_shown()
    assert [at_risk[title] for title in NUMBERS] == [1, 1, 0, 2, 1]
    for title in ("Topics at risk", "Missing replicas"):
        assert {dict(row)["topic"] for row in at_risk[title]} == {"orders", 'odd "topic"\\'}
    missing = {(dict(row)["topic"], dict(row)["broker"]) for row in at_risk["Missing replicas"]}
    # The odd one is offline because the only broker of its ISR, 3, is fenced.
    assert missing == {("orders", "1"), ("orders", "3"), ('odd "topic"\\', "1"), ('odd "topic"\\', "3")}
    # The only one of an ISR, and one of an ELR: of these the partitions get their leaders back without loss.
    assert may_lead(prometheus, drawn["Missing replicas"]) == {('odd "topic"\\', "3"), ("orders", "1")}
    both, without_min_isr = {"orders", 'odd "topic"\\'}, {"orders"}  # the cells of the odd one's min ISR are empty
    assert topics_by_column(prometheus, drawn["Topics at risk"]) == [both, without_min_isr, both]

    exporter.text = (GOLDEN / "metrics_stale.prom").read_text()
    eventually(lambda: firing("KafkaReplicationMonitorBlind"))
    blind = all_shown()
    assert {title: blind[title] for title in NUMBERS} == dict.fromkeys(NUMBERS, NO_DATA)
    assert (blind["Topics at risk"], blind["Missing replicas"]) == (NO_DATA, NO_DATA)
    assert blind["Data age"] == 61
    assert green_stats(drawn, blind) == set()
    (page,) = firing("KafkaOfflinePartitions")
    assert "(monitoring data is stale: as it was)" in page["annotations"]["description"]

    exporter.status = 503
    eventually(lambda: not prometheus.query("kafka_replication_cluster_state_age_seconds"))
    gone = all_shown()
    # What is left is the past of the time range; its columns about the present are empty.
    assert {title for title, value in gone.items() if value not in NOTHING} <= {
        "replication-brokers: Causes in this time range",
        "replication-monitor: Sources",
    }


def test_of_a_broker_that_is_down_no_stop_is_judged(
    drawn: dict[str, dict[str, Any]],
    prometheus_server: Callable[..., Any],
    exposition: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    exporter = exposition((GOLDEN / "metrics.prom").read_text())
    prometheus = prometheus_server(targets={"isrwatch": exporter.address})
    eventually(lambda: prometheus.query("kafka_replication_broker_safe_to_stop"))
    assert shown(prometheus, drawn["replication-brokers: Brokers not safe to stop"]) == 1, "broker 2; 3 is fenced"
    safe = {"1": "yes", "2": "no", "3": "not up"}
    for board in ("replication-brokers: What a stop would cost", "Brokers"):
        assert words_of(prometheus, drawn[board], "Safe to stop") == safe
    cost = drawn["replication-brokers: What a stop would cost"]
    assert words_of(prometheus, cost, "Would go offline") == {"1": "0", "2": "1", "3": "-"}
    assert words_of(prometheus, cost, "Would go under min ISR") == {"1": "0", "2": "0", "3": "-"}


def lags(offline: int, *known: int) -> str:
    """Expose the lag of one group in the first partitions of a topic, whose last partition may be offline."""
    of_topic = 'cluster="main", topic="orders", partition="{}"'
    lines = [f'kafka_replication_cluster_offline_partitions{{cluster="main"}} {offline}']
    info = 'group="g", protocol="classic", state="Stable", coordinator="1"'
    lines += [f'kafka_replication_group_info{{cluster="main", {info}}} 1']
    for number, lag in enumerate(known):
        lines.append(f'kafka_replication_group_lag_records{{group="g", {of_topic.format(number)}}} {lag}')
    lines.append(f"kafka_replication_partition_offline{{{of_topic.format(1)}}} {offline}")
    return "\n".join(lines) + "\n"


def test_a_partition_that_goes_offline_does_not_let_its_groups_catch_up(
    drawn: dict[str, dict[str, Any]],
    prometheus_server: Callable[..., Any],
    exposition: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    exporter = exposition(lags(0, 100, 50))
    prometheus = prometheus_server(targets={"isrwatch": exporter.address})

    def behind() -> dict[str, list[str]]:
        """Give the values of both tables and of the course over time."""
        board = {title: drawn[f"replication-groups: {title}"] for title in ("Groups", "Where groups are behind")}
        values = {title: column(prometheus, panel, "Records behind") for title, panel in board.items()}
        (target,) = drawn["replication-groups: Records behind, by group"]["targets"]
        values["course"] = _queried(prometheus, {**target, "instant": True})
        return {title: sorted(value for _, value in rows) for title, rows in values.items()}

    whole = {"Groups": ["150"], "Where groups are behind": ["100", "50"], "course": ["150"]}
    eventually(lambda: behind() == whole)
    exporter.text = lags(1, 100)
    eventually(lambda: prometheus.query("kafka_replication_partition_offline == 1"))
    assert prometheus.query("sum(kafka_replication_group_lag_records)")[0]["value"][1] == "100"
    assert behind() == whole
    exporter.text = lags(0, 100)
    eventually(lambda: prometheus.query("kafka_replication_partition_offline == 0"))
    assert behind()["course"] == ["100"], "it has a leader again, and its lag is unknown"


def test_what_a_group_lost_stays_lost_while_its_topic_has_no_samples(
    drawn: dict[str, dict[str, Any]],
    prometheus_server: Callable[..., Any],
    exposition: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    lost = 'kafka_replication_group_lost_records{cluster="main", group="g", topic="orders"} 7\n'
    exporter = exposition(lags(0, 100) + lost)
    prometheus = prometheus_server(targets={"isrwatch": exporter.address})
    tile, groups = drawn["replication-groups: Records lost by groups"], drawn["replication-groups: Groups"]
    eventually(lambda: shown(prometheus, tile) == 7)
    exporter.text = lags(1)
    eventually(lambda: not prometheus.query("kafka_replication_group_lost_records"))
    assert shown(prometheus, tile) == 7
    assert [value for _, value in column(prometheus, groups, "Lost records")] == ["7"]


def test_a_job_that_says_nothing_is_neither_running_nor_absent(
    drawn: dict[str, dict[str, Any]],
    prometheus_server: Callable[..., Any],
    exposition: Callable[..., Any],
    eventually: Callable[..., Any],
) -> None:
    def reported(seconds: int) -> str:
        of_source = '{cluster="main", channel="replication", source="log"}'
        metrics = {"source_query_up": 1, "source_report_age_seconds": seconds, "source_age_seconds": seconds}
        return "".join(f"kafka_replication_{name}{of_source} {value}\n" for name, value in metrics.items())

    exporter = exposition(reported(5))
    prometheus = prometheus_server(targets={"isrwatch": exporter.address})
    sources, queries = drawn["replication-monitor: Sources"], drawn["replication-monitor: Queries of the job"]

    def running() -> tuple[list[str], list[str]]:
        band = _queried(prometheus, {**queries["targets"][0], "instant": True})
        return [value for _, value in column(prometheus, sources, "Running")], [value for _, value in band]

    eventually(lambda: running() == (["1"], ["1"]))
    exporter.text = reported(61)
    eventually(lambda: running() == (["-1"], ["-1"]))
    assert color({**queries, "type": "stat"}, -1) == "red"


def test_of_two_clusters_only_the_one_at_risk_pages(
    prometheus_server: Callable[..., Any], exposition: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    exporter = exposition((GOLDEN / "metrics_two_clusters.prom").read_text())
    prometheus = prometheus_server(targets={"isrwatch": exporter.address}, rules=[as_yaml(rule_file(IMPATIENT))])
    pages = eventually(lambda: prometheus.alerts("KafkaUnderMinIsr"))
    assert [page["labels"]["cluster"] for page in pages] == ["main"]
    ages = prometheus.query("kafka_replication_cluster_state_age_seconds")
    assert {row["metric"]["cluster"] for row in ages} == {"main", "other"}
