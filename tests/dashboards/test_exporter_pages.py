"""The golden expositions of the exporter in a real Prometheus: what every board shows.

One server scrapes the page of each test: as it is for the test of all boards, for each other test as a cluster of its
own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dashboards.board import RANGE, STALE_SECONDS
from dashboards.boards import fleet
from tests.dashboards.test_expressions import concrete
from tests.plugins.local_http import Exposition, serving_exposition
from tests.plugins.prometheus import Prometheus, running_prometheus

pytestmark = pytest.mark.prometheus

GOLDEN = Path(__file__).parents[1] / "golden"
HEALTHY = (
    (GOLDEN / "metrics_healthy.prom")
    .read_text()
    .replace('reason="table_unreadable"} 1', 'reason="table_unreadable"} 0')
)
"""The page of a healthy cluster; for want of a table it would be unknown in part."""
NO_DATA = "no fresh data"
NOTHING = (NO_DATA, "not reported")
GREEN = "green"


@dataclass
class Cluster:
    """A cluster as Prometheus has it, and the page that is scraped of it."""

    name: str
    prometheus: Prometheus
    exporter: Exposition

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Evaluate an expression, and leave out what it gives of other clusters."""
        return [row for row in self.prometheus.query(expression) if row["metric"].get("cluster") in {None, self.name}]


APART = ("stopped", "offline", "lost", "silent", "fleet", "restart", "second")
"""Clusters beside "main"; of their pages only what is about a cluster is kept."""


def scraped_as(name: str, address: str) -> dict[str, Any]:
    """Scrape a page whose cluster main gets another name."""
    kept = {"source_labels": ["cluster"], "regex": ".+", "action": "keep"}
    named = {"source_labels": ["cluster"], "regex": "main", "target_label": "cluster", "replacement": name}
    return {"static_configs": [{"targets": [address]}], "metric_relabel_configs": [kept, named]}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Run the one server; no page has anything yet."""
    with ExitStack() as stack:
        pages = {name: stack.enter_context(serving_exposition("")) for name in ("main", *APART)}
        targets = {name: scraped_as(name, pages[name].address) for name in APART}
        targets["isrwatch"] = {"static_configs": [{"targets": [pages["main"].address]}]}
        server = stack.enter_context(running_prometheus(tmp_path_factory.mktemp("prometheus"), targets))
        yield {name: Cluster(name, server, page) for name, page in pages.items()}


def shown(cluster: Cluster, panel: dict[str, Any]) -> Any:
    """Give what Grafana would show: of a stat one number, of a table its rows; the text for no data if there is none.

    A range query is reduced to its last value that is not null, anywhere in the range, as a stat of Grafana does.
    """
    rows = [row for target in panel["targets"] for row in _queried(cluster, target)]
    if not rows:
        return panel["fieldConfig"]["defaults"]["noValue"]
    if panel["type"] == "stat":
        (row,) = rows
        return float(row[1])
    return sorted({tuple(sorted(labels.items())) for labels, _ in rows})


def _queried(cluster: Cluster, target: dict[str, Any]) -> list[tuple[dict[str, str], str]]:
    expression = concrete(target["expr"]).replace("cluster=~`prod`", f'cluster="{cluster.name}"')
    if target["instant"]:
        return [(row["metric"], row["value"][1]) for row in cluster.query(expression)]
    rows = cluster.query(f"last_over_time(({expression})[1h:1s])")
    return [(row["metric"], row["value"][1]) for row in rows]


def color(panel: dict[str, Any], value: Any) -> str:
    """Give the colour of a stat; without a value it has the base colour of no threshold: none."""
    if value in NOTHING:
        return "none"
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return str([step["color"] for step in steps if step["value"] is None or step["value"] <= value][-1])


def all_shown_in(cluster: Cluster, board: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Give what is shown of every stat and table."""
    return {title: shown(cluster, panel) for title, panel in board.items() if panel["type"] in {"stat", "table"}}


def topics_by_column(cluster: Cluster, panel: dict[str, Any]) -> list[set[str]]:
    """Give the topics that have a value, by column of a table."""
    return [{labels["topic"] for labels, _ in _queried(cluster, target)} for target in panel["targets"]]


def column(cluster: Cluster, panel: dict[str, Any], title: str) -> list[tuple[dict[str, str], str]]:
    """Give the labels and the value of every cell in a column of a table."""
    (order,) = [one["options"]["renameByName"] for one in panel["transformations"] if one["id"] == "organize"]
    (name,) = [name for name, renamed in order.items() if renamed == title]
    (target,) = [one for one in panel["targets"] if name in {"Value", f"Value #{one['refId']}"}]
    return _queried(cluster, target)


def words_of(cluster: Cluster, panel: dict[str, Any], title: str) -> dict[str, str]:
    """Give what a column says, by broker: a word in place of a value that has one."""
    (looks,) = [one["properties"] for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] == title]
    (mappings,) = [look["value"] for look in looks if look["id"] == "mappings"]
    words = {key: one["text"] for each in mappings if each["type"] == "value" for key, one in each["options"].items()}
    return {labels["broker"]: words.get(value, value) for labels, value in column(cluster, panel, title)}


def may_lead(cluster: Cluster, panel: dict[str, Any]) -> set[tuple[str, str]]:
    """Give topic and broker of the missing replicas that have every committed record."""
    cells = column(cluster, panel, "May lead")
    return {(labels["topic"], labels["broker"]) for labels, value in cells if value == "1"}


def green_stats(board: dict[str, dict[str, Any]], values: dict[str, Any]) -> set[str]:
    """Name the stats that show a value in green."""
    stats = {title: panel for title, panel in board.items() if panel["type"] == "stat" and values[title] not in NOTHING}
    return {title for title, panel in stats.items() if color(panel, values[title]) == GREEN}


@pytest.fixture
def drawn(boards: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Give the panels of all boards by their title, which only one has."""
    return {panel["title"]: panel for board in boards.values() for panel in board["panels"]}


ONE_LEFT = "At min ISR: one failure from rejecting writes"
NUMBERS = ["Offline partitions", "Under min ISR", ONE_LEFT, "Under-replicated", "Fenced brokers"]


FLEET = ("Clusters failing clients", "Clusters not monitored", "Clusters at risk", "Healthy clusters")
INCIDENT = {
    "cluster": "main", "incident": "main-4", "class": "broker_loss", "suspects": "3",
    "consequence": "acks=all writers of topic orders fail",
    "next_step": "start broker 3 again, and stop no other broker meanwhile",
}  # fmt: skip


def mark_of(boards: dict[str, dict[str, Any]], name: str) -> str:
    """Give the expression of an annotation that is on every board of a cluster."""
    (expression,) = {
        one["expr"] for board in boards.values() for one in board["annotations"]["list"] if one["name"] == name
    }
    return str(expression)


def state_of(cluster: Cluster, drawn: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """Give what the fleet says of a cluster, and in which colour."""
    ((_, value),) = column(cluster, drawn["Clusters"], "State")
    words = {
        key: one for key, one in words_and_colors(drawn["Clusters"], "State").items() if float(key) == float(value)
    }
    ((text, color),) = words.values()
    return text, color


def words_and_colors(panel: dict[str, Any], title: str) -> dict[str, tuple[str, str]]:
    """Give the words of a column by value, each with its colour."""
    (looks,) = [one["properties"] for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] == title]
    (mappings,) = [look["value"] for look in looks if look["id"] == "mappings"]
    options = [each["options"] for each in mappings if each["type"] == "value"]
    return {key: (one["text"], one["color"]) for each in options for key, one in each.items()}


def test_healthy_at_risk_and_blind_look_different_and_blind_is_never_green(
    drawn: dict[str, dict[str, Any]],
    boards: dict[str, dict[str, Any]],
    clusters: dict[str, Cluster],
    eventually: Callable[..., Any],
) -> None:
    cluster = clusters["main"]
    cluster.exporter.text = HEALTHY

    all_shown = partial(all_shown_in, cluster, drawn)
    eventually(lambda: cluster.query("kafka_replication_partition_leader"))
    eventually(lambda: cluster.query("increase(kafka_replication_cluster_unclean_elections_total[1m])"))
    healthy = all_shown()
    assert [healthy[title] for title in NUMBERS] == [0, 0, 0, 0, 0]
    everywhere = ("topic", "$__all")  # as Grafana writes it in a link; the cell says that none is at risk
    assert healthy["Topics at risk"] == [(("cluster", "main"), ("role", "-"), everywhere)]
    assert healthy["Missing replicas"] == [(("broker", "$__all"), ("cluster", "main"), ("partition", "-"), everywhere)]
    assert dict(healthy["Open incidents"][0])["class"] == "no open incidents"
    assert [dict(row)["condition"] for row in healthy["What is wrong?"]] == ["nothing: it is healthy"]

    cluster.exporter.text = (GOLDEN / "metrics.prom").read_text()
    eventually(lambda: cluster.query("kafka_replication_cluster_offline_partitions > 0"))
    at_risk = all_shown()
    assert [at_risk[title] for title in NUMBERS] == [1, 1, 0, 2, 1]
    for title in ("Topics at risk", "Missing replicas"):
        assert {dict(row)["topic"] for row in at_risk[title]} == {"orders", 'odd "topic"\\'}
    missing = {(dict(row)["topic"], dict(row)["broker"]) for row in at_risk["Missing replicas"]}
    # The odd one is offline because the only broker of its ISR, 3, is fenced.
    assert missing == {("orders", "1"), ("orders", "3"), ('odd "topic"\\', "1"), ('odd "topic"\\', "3")}
    # The only one of an ISR, and one of an ELR: of these the partitions get their leaders back without loss.
    assert may_lead(cluster, drawn["Missing replicas"]) == {('odd "topic"\\', "3"), ("orders", "1")}
    both, without_min_isr = {"orders", 'odd "topic"\\'}, {"orders"}  # the cells of the odd one's min ISR are empty
    assert topics_by_column(cluster, drawn["Topics at risk"]) == [both, both, *[without_min_isr] * 2, both]
    assert [dict(row) for row in at_risk["Open incidents"]] == [INCIDENT]
    # While replicas are missing, leaders are where the replicas are.
    assert (healthy["Leader skew"] >= 0, at_risk["Leader skew"], at_risk["Replica skew"]) == (True, -1, -1)

    cluster.exporter.text = (GOLDEN / "metrics_stale.prom").read_text()
    eventually(lambda: not cluster.query("kafka_replication_cluster_offline_partitions"))
    blind = all_shown()
    assert {title: blind[title] for title in NUMBERS} == dict.fromkeys(NUMBERS, NO_DATA)
    assert (blind["Topics at risk"], blind["Missing replicas"]) == (NO_DATA, NO_DATA)
    assert blind["Data age"] == 61
    assert cluster.query(concrete(mark_of(boards, "Not monitored")).replace("cluster=~`prod`", 'cluster="main"'))
    assert green_stats(drawn, blind) == set()

    cluster.exporter.status = 503
    eventually(lambda: not cluster.query("kafka_replication_cluster_state_age_seconds"))
    gone = all_shown()
    # What is left is the past of the time range, whose columns about the present are empty; and the cluster itself.
    assert {title for title, value in gone.items() if value not in NOTHING} <= {
        "Causes in this time range", "Sources", "Clusters", "Every cluster", *FLEET
    }  # fmt: skip


def test_the_fleet_says_in_words_how_a_cluster_is_and_keeps_one_whose_exporter_is_gone(
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    cluster = clusters["fleet"]

    def settled(*state: str) -> None:
        """Wait for a state, in which each cluster counts once."""
        eventually(lambda: state_of(cluster, drawn) == state)
        counted = [shown(cluster, drawn[title]) for title in FLEET]
        assert sum(counted) == len(cluster.prometheus.query(f"count by (cluster) ({fleet.STATE.replace(RANGE, '1m')})"))

    cluster.exporter.text = HEALTHY
    eventually(lambda: cluster.query("kafka_replication_cluster_state_age_seconds"))
    settled("healthy", "transparent")
    cluster.exporter.text = (GOLDEN / "metrics.prom").read_text()
    settled("partitions offline", "dark-red")
    assert column(cluster, drawn["Clusters"], "Open incidents")[0][1] == "1"
    assert column(cluster, drawn["Clusters"], "Source")[0][1] == "1", "metadata log"
    cluster.exporter.text = (GOLDEN / "metrics_stale.prom").read_text()
    settled("not monitored", "purple")
    assert column(cluster, drawn["Clusters"], "Offline") == [], "nothing is said of what is not known"
    cluster.exporter.status = 503
    eventually(lambda: not cluster.query("kafka_replication_cluster_state_age_seconds"))
    settled("not monitored", "purple")
    ((_, age),) = column(cluster, drawn["Clusters"], "Data age")
    assert float(age) > STALE_SECONDS, "since its newest observation"


def test_of_a_broker_that_is_down_no_stop_is_judged(
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    cluster = clusters["stopped"]
    cluster.exporter.text = (GOLDEN / "metrics.prom").read_text()
    eventually(lambda: cluster.query("kafka_replication_broker_safe_to_stop"))
    assert shown(cluster, drawn["Brokers not safe to stop"]) == 1, "broker 2; 3 is fenced"
    cost = drawn["Impact of stopping a broker"]
    assert words_of(cluster, cost, "Safe to stop") == {"1": "yes", "2": "no", "3": "not up"}
    assert words_of(cluster, cost, "Would go offline") == {"1": "0", "2": "1", "3": "-"}
    assert words_of(cluster, cost, "Would go under min ISR") == {"1": "0", "2": "0", "3": "-"}


def test_a_broker_that_was_stopped_on_purpose_looks_unlike_one_that_was_lost(
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    cluster = clusters["restart"]
    panel = drawn["In-sync replicas of each broker"]

    def expose(removed: int) -> None:
        gauges = (("hosted_partitions", 4, 4, 4), ("in_sync_partitions", 0, 0, 4), ("shutting_down", 0, 1, 0))
        lines = [
            f'broker_{name}{{cluster="main", broker="{n}"}} {value}'
            for name, *of in gauges
            for n, value in enumerate(of, 1)
        ]
        lines.append(f'broker_isr_departures_total{{cluster="main", broker="2", cause="lag"}} {removed}')
        cluster.exporter.text = "".join(f"kafka_replication_{line}\n" for line in lines)

    def bands() -> dict[str, str]:
        rows = _queried(cluster, {**panel["targets"][0], "instant": True})
        words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
        return {labels["broker"]: words[value]["text"] for labels, value in rows}

    expose(0)
    eventually(lambda: bands() == {"1": "most missing", "2": "stopped on purpose", "3": "all in sync"})
    expose(3)
    eventually(lambda: bands()["2"] == "most missing", what="it left ISRs for another reason, too")


def test_a_replica_is_missing_since_it_left_and_not_since_its_partition_lacks_another_one(
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    cluster, began = clusters["second"], time.time() - 1000

    def expose(third: int) -> None:
        partition = 'cluster="main", topic="orders", partition="0"'
        lines = [
            f'replica_isr_member{{{partition}, broker="{n}"}} {value}' for n, value in ((1, 1), (3, third), (5, 0))
        ]
        lines += [
            f"partition_{name}{{{partition}}} {value}" for name, value in (("under_replicated", 1), ("offline", 0))
        ]
        lines.append(f"partition_under_replicated_since_timestamp_seconds{{{partition}}} {began}")
        cluster.exporter.text = "".join(f"kafka_replication_{line}\n" for line in lines)

    def missing_for() -> dict[str, float]:
        rows = column(cluster, drawn["Missing replicas"], "Missing for")
        return {labels["broker"]: float(value) for labels, value in rows}

    expose(1)
    eventually(lambda: missing_for().keys() == {"5"})
    expose(0)
    eventually(lambda: missing_for().keys() == {"3", "5"})
    assert missing_for()["3"] < 60, "it was in sync until just now"
    assert missing_for()["5"] > 999


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
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    cluster = clusters["offline"]
    cluster.exporter.text = lags(0, 100, 50)

    def behind() -> dict[str, list[str]]:
        """Give the values of both tables and of the course over time."""
        board = {title: drawn[title] for title in ("Groups", "Where groups are behind")}
        values = {title: column(cluster, panel, "Records behind") for title, panel in board.items()}
        (target,) = drawn["Records behind, by group"]["targets"]
        values["course"] = _queried(cluster, {**target, "instant": True})
        return {title: sorted(value for _, value in rows) for title, rows in values.items()}

    whole = {"Groups": ["150"], "Where groups are behind": ["100", "50"], "course": ["150"]}
    eventually(lambda: behind() == whole)
    cluster.exporter.text = lags(1, 100)
    eventually(lambda: cluster.query("kafka_replication_partition_offline == 1"))
    assert cluster.query("sum by (cluster) (kafka_replication_group_lag_records)")[0]["value"][1] == "100"
    assert behind() == whole
    cluster.exporter.text = lags(0, 100)
    eventually(lambda: cluster.query("kafka_replication_partition_offline == 0"))
    assert behind()["course"] == ["100"], "it has a leader again, and its lag is unknown"


def test_what_a_group_lost_stays_lost_while_its_topic_has_no_samples(
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    lost = 'kafka_replication_group_lost_records{cluster="main", group="g", topic="orders"} 7\n'
    cluster = clusters["lost"]
    cluster.exporter.text = lags(0, 100) + lost
    tile, groups = drawn["Records lost by groups"], drawn["Groups"]
    eventually(lambda: shown(cluster, tile) == 7)
    cluster.exporter.text = lags(1)
    eventually(lambda: not cluster.query("kafka_replication_group_lost_records"))
    assert shown(cluster, tile) == 7
    assert [value for _, value in column(cluster, groups, "Lost records")] == ["7"]


def test_a_job_that_says_nothing_is_neither_running_nor_absent(
    drawn: dict[str, dict[str, Any]], clusters: dict[str, Cluster], eventually: Callable[..., Any]
) -> None:
    def reported(seconds: int) -> str:
        of_source = '{cluster="main", channel="replication", source="log"}'
        metrics = {"source_query_up": 1, "source_report_age_seconds": seconds, "source_age_seconds": seconds}
        return "".join(f"kafka_replication_{name}{of_source} {value}\n" for name, value in metrics.items())

    cluster = clusters["silent"]
    cluster.exporter.text = reported(5)
    sources, queries = drawn["Sources"], drawn["Queries of the job"]

    def running() -> tuple[list[str], list[str]]:
        band = _queried(cluster, {**queries["targets"][0], "instant": True})
        return [value for _, value in column(cluster, sources, "Running")], [value for _, value in band]

    eventually(lambda: running() == (["1"], ["1"]))
    cluster.exporter.text = reported(61)
    eventually(lambda: running() == (["-1"], ["-1"]))
    assert color({**queries, "type": "stat"}, -1) == "red"
