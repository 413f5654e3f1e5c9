"""Scenes for promtool: a healthy cluster, what differs from it, and exactly which alerts fire at which time.

Scenes are played side by side, each as a cluster that has the scene's name: so none disturbs another, too.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dashboards.alerts.rules import ALERTING, RECORDING

HOURS = 4
STEPS = HOURS * 120  # of 30 s
PREFIX = "kafka_replication_"
BROKERS = ("1", "2", "3")
CAUSES = ("lag", "fenced", "controlled_shutdown")  # promtool holds 10,000 samples of a query, not those of all causes
ORDER = [RECORDING, ALERTING]
LOG = 'channel="replication", source="metadata_log:c1"'
OFFSETS = 'channel="samples", source="offsets:c1"'
DAY = 86_400  # scenes begin at the epoch
LISTENER_CERTIFICATE = "isrwatch_collector_listener_certificate_expiry_timestamp_seconds"
CLIENT_CERTIFICATE = "isrwatch_collector_client_certificate_expiry_timestamp_seconds"
BROKER_LISTENER = 'role="broker", node="1", address="broker-1:9093"'
OWN_CERTIFICATE = 'property="cluster.client ssl.certificate.location"'


def always(value: float) -> str:
    return f"{value}x{STEPS}"


def from_minute(minute: float, value: float, before: float = 0, until: float | None = None, after: float = 0) -> str:
    """One value up to a minute, another from then on, or until another minute."""
    begin = int(minute * 2)
    if until is None:
        return f"{before}x{begin - 1} {value}x{STEPS - begin}"
    end = int(until * 2)
    return f"{before}x{begin - 1} {value}x{end - begin - 1} {after}x{STEPS - end}"


def healthy(cluster: str = "prod") -> dict[str, str]:
    """Every series that an alert reads, of a cluster without trouble."""
    own = f'cluster="{cluster}"'
    zeros = ("offline", "under_min_isr", "under_replicated", "unknown_min_isr", "at_min_isr", "reassigning")
    series = {f"cluster_{name}_partitions{{{own}}}": always(0) for name in zeros}
    series |= {f"cluster_{name}_total{{{own}}}": always(0) for name in ("unclean_elections", "missed_changes")}
    series |= {
        f"cluster_state_age_seconds{{{own}}}": always(2),
        f"cluster_controller{{{own}}}": always(100),
        f"cluster_fenced_brokers{{{own}}}": always(0),
        f'cluster_info{{{own}, cluster_id="c", primary_source="metadata_log"}}': always(1),
        f"quarantined_total{{{own}, {LOG}}}": always(0),
        f"source_observed_timestamp_seconds{{{own}, {LOG}}}": f"0+30x{STEPS}",
        f'partition_under_min_isr_seconds_total{{{own}, topic="orders", partition="0"}}': always(0),
        'exporter_table_read_success{table="incidents"}': always(1),
        f'isrwatch_collector_source_up{{{own}, source="metadata_log:c1"}}': always(1),
        f"{LISTENER_CERTIFICATE}{{{own}, {BROKER_LISTENER}}}": always(400 * DAY),
        f"{CLIENT_CERTIFICATE}{{{own}, {OWN_CERTIFICATE}}}": always(300 * DAY),
    }
    for source in (LOG, OFFSETS):
        series |= {
            f"source_age_seconds{{{own}, {source}}}": always(3),
            f"source_report_age_seconds{{{own}, {source}}}": always(2),
            f"source_query_up{{{own}, {source}}}": always(1),
            f"source_behind_bytes{{{own}, {source}}}": always(0),
        }
    for broker in BROKERS:
        values = {
            "fenced": 0,
            "registered": 1,
            "shutting_down": 0,
            "hosted_partitions": 100,
            "online_log_dirs": 2,
            "maintenance": 0,
        }
        values |= {"missing_from_isr_partitions": 0, "missing_at_min_isr_partitions": 0}
        series |= {f'broker_{name}{{{own}, broker="{broker}"}}': always(value) for name, value in values.items()}
        for cause in CAUSES:
            series[f'broker_isr_departures_total{{{own}, broker="{broker}", cause="{cause}"}}'] = always(0)
    return series


@dataclass(frozen=True)
class Scene:
    """What differs from a healthy cluster, and the alerts that fire: minute -> "severity Name{more labels}".

    Both name the cluster "prod", whatever it is called when it is played. An empty value removes a series.
    """

    differs: Mapping[str, str]
    firing: Mapping[float, set[str]]
    begin: Mapping[str, str] = field(default_factory=healthy)

    def series(self, cluster: str) -> dict[str, str]:
        """Give the series of the scene as those of a cluster."""
        series = {**self.begin, **self.differs}
        return {_full_name(_of(cluster, key)): values for key, values in series.items() if values}

    def expected(self, cluster: str) -> list[dict[str, Any]]:
        """Ask at each minute for all that fires of a cluster; of no cluster, too, if the scene is about a program."""
        of_none = "|" if any('cluster="' not in key for key in self.differs) else ""
        fires = f'ALERTS{{alertname!="Watchdog", alertstate="firing", cluster=~"{cluster}{of_none}"}}'
        return [
            {
                "expr": f"count by (alertname, severity, cluster, broker, cause, channel, table) ({fires})",
                "eval_time": f"{round(minute * 60)}s",
                "exp_samples": [{"labels": _of(cluster, _labels(alert)), "value": 1} for alert in sorted(alerts)],
            }
            for minute, alerts in self.firing.items()
        ]


def _full_name(series: str) -> str:
    return series if series.startswith("isrwatch_") else PREFIX + series


def _labels(alert: str) -> str:
    """Spell "page KafkaX{broker="3"}" as the labels of a sample; the cluster is prod, unless it is about a table."""
    severity, _, rest = alert.partition(" ")
    name, _, more = rest.rstrip("}").partition("{")
    labels = [f'alertname="{name}"', f'severity="{severity}"']
    if "table=" not in more:
        labels.append('cluster="prod"')
    return "{" + ", ".join([*labels, *([more] if more else [])]) + "}"


def _of(cluster: str, series: str) -> str:
    return series.replace('cluster="prod"', f'cluster="{cluster}"')


def without_texts(rules: str) -> str:
    content = yaml.safe_load(rules)
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        rule.pop("annotations", None)
    return yaml.safe_dump(content, sort_keys=False)


def run(
    directory: Path, scenes: Mapping[str, Scene], rules: str, every: str = "1m"
) -> subprocess.CompletedProcess[str]:
    """Let promtool play scenes side by side under some rules, without the texts: their queries take most of the time.

    Rules are evaluated ``every`` so often: scrapes are 30 s apart.
    """
    (directory / "alerts.yml").write_text(without_texts(rules))
    series = {key: values for name, scene in scenes.items() for key, values in scene.series(name).items()}
    case = {
        "interval": "30s",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [asked for name, scene in scenes.items() for asked in scene.expected(name)],
    }
    test = {"rule_files": ["alerts.yml"], "evaluation_interval": every, "group_eval_order": ORDER, "tests": [case]}
    (directory / "scenes.yml").write_text(json.dumps(test))
    command = ["promtool", "test", "rules", str(directory / "scenes.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def outcomes(directory: Path, scenes: Mapping[str, Scene], rules: str) -> dict[str, str]:
    """Play scenes side by side; give what promtool says of each, "" if all is well."""
    outcome = run(directory, scenes, rules)
    failures = re.findall(
        r'expr: ".*?cluster=~\\"([^"|]+)\|?\\".*?", time: (\S+),\s+(exp: .*\s+got: .*)', outcome.stderr
    )
    assert (outcome.returncode == 0) == (not failures), outcome.stdout + outcome.stderr
    return {name: "\n".join(f"{at}: {what}" for scene, at, what in failures if scene == name) for name in scenes}
