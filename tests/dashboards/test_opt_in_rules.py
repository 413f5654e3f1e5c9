"""The rules of the opt-in packs: what each takes for wrong, and what it does not, as promtool sees them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards.alerts import rule_file
from streaming.alert_settings import AlertsSettings
from streaming.contracts.alerts import ALERTS, OPT_IN, Pack
from streaming.settings import Settings
from tests.dashboards.promtool import only, played

pytestmark = pytest.mark.prometheus

RULES = rule_file(Settings(alerts=AlertsSettings(packs=OPT_IN)))
OWN = "kafka_replication_"
PROD = 'cluster="prod"'
GROUP = f'{PROD}, group="billing"'
OF_TOPIC = f'{GROUP}, topic="orders"'
READ, LEFT = ({f'{OWN}group_partitions{{{OF_TOPIC}, reader="{reader}"}}': "2x200"} for reader in ("owner", "none"))
LAG = f'{OWN}group_lag_at_least_seconds{{{OF_TOPIC}, partition="0"}}'
USED = f'{OWN}group_retention_used_ratio{{{OF_TOPIC}, partition="0"}}'
WHOLE = {f"{OWN}cluster_under_replicated_partitions{{{PROD}}}": "0x5000"}
PARTITIONS = {f"{OWN}cluster_partitions{{{PROD}}}": "100x5000"}
OFFLINE, REFUSED = (f"{OWN}cluster_{name}_seconds_total{{{PROD}}}" for name in ("offline", "under_min_isr"))
HOSTED, LED = (
    [f'{OWN}broker_{name}_partitions{{{PROD}, broker="{broker}"}}' for broker in "123"] for name in ("hosted", "led")
)


def of_broker(metric: str, broker: str = "3") -> str:
    return f'{metric}{{{PROD}, broker="{broker}"}}'


def counted(name: str) -> str:
    return f"{OWN}group_{name}{{{OF_TOPIC}}}"


def raised_labels(condition: str) -> str:
    return f'{PROD}, condition="{condition}", subject="billing"'


def raised(condition: str) -> str:
    return f'{OWN}condition_since_seconds{{{raised_labels(condition)}, severity="warning"}}'


class Case(NamedTuple):
    """One rule: the series under which it fires at a minute with these labels, and those under which it does not."""

    name: str
    series: dict[str, str]
    minute: int
    labels: str
    calm: tuple[dict[str, str], ...] = ()
    step: int = 1


BROKER = f'{PROD}, broker="3"'
_P99 = "kafka_network_requestmetrics_totaltimems_{}_99thpercentile"
PRODUCE, FETCH = (of_broker(_P99.format(request)) for request in ("produce", "fetchconsumer"))
METADATA = of_broker("kafka_server_broker_metadata_metrics_metadata_apply_error_count")
OFF_PREFERRED = f"{OWN}cluster_off_preferred_leader_partitions{{{PROD}}}"
TRAFFIC = 'kafka_topic_partition_current_offset{topic="orders", partition="0", kafka_cluster="demo"}'
OF_ANOTHER, BY_ANOTHER = TRAFFIC.replace("demo", "edge"), TRAFFIC.replace("}", ', instance="b"}')
SHRINKS = f'{OWN}broker_isr_departures_total{{{PROD}, broker="3", cause="CAUSE"}}'
ANNOUNCED = {of_broker(f"{OWN}broker_maintenance"): "1x100"}
CASES = (
    Case("GroupLagGrows", {LAG: "0+30x200"} | READ, 60, GROUP,
         ({LAG: "9000x200"} | READ, {LAG: "0+60x200"} | READ, {LAG: "0+3x60"} | READ, {LAG: "0+30x200"} | LEFT)),
    Case("GroupStuck", {raised("group_stuck"): "_x10 7x60"}, 20, raised_labels("group_stuck"),
         ({raised("group_losing"): "7x60"}, {counted("stuck_partitions"): "1x60"})),
    Case("GroupNearRetention", {USED: "0.9x100"}, 60, GROUP, ({USED: "0.7x100"}, {USED: "0.99-0.001x100"})),
    Case("GroupLosesRecords", {raised("group_losing"): "_x15 7x2 _x60"}, 20, raised_labels("group_losing"),
         ({raised("group_stuck"): "7x60"}, {raised("group_losing"): "7x2 _x60"})),
    Case("GroupBeyondEnd", {raised("group_beyond_end"): "7x60"}, 20, raised_labels("group_beyond_end"),
         ({raised("group_beyond_end"): "_x19 7x60"}, {raised("group_losing"): "7x60"})),
    Case("LeadersNotPreferred", {OFF_PREFERRED: "11x60"} | PARTITIONS | WHOLE,
         40, PROD, ({OFF_PREFERRED: "10x60"} | PARTITIONS | WHOLE,
                    {OFF_PREFERRED: "50x60"} | PARTITIONS)),
    Case("TopicsMisconfigured", {f'{OWN}cluster_weak_topics{{{PROD}, weakness="not_compacted"}}': "1x60"}, 40, PROD,
         ({f'{OWN}cluster_weak_topics{{{PROD}, weakness="one_replica"}}': "1x60"},)),
    Case("ThrottleLeft", {f"{OWN}cluster_left_throttles{{{PROD}}}": "1x100"}, 70, PROD,
         ({f"{OWN}cluster_left_throttles{{{PROD}}}": "1x40 0x60"},)),
    Case("VersionsMixed", {f"{OWN}cluster_older_version_brokers{{{PROD}}}": "1x40"}, 26 * 60, PROD,
         ({f"{OWN}cluster_older_version_brokers{{{PROD}}}": "1x20 0x20"},), step=60),
    Case("ControllersFlap", {f"{OWN}cluster_controller_changes_total{{{PROD}}}": "0x5 1x5 2x5 3x5 4x5 6x60"}, 40, PROD,
         ({f"{OWN}cluster_controller_changes_total{{{PROD}}}": "0x5 1x5 2x5 3x60"},)),
    Case("BrokerSkewed", dict(zip(HOSTED, ("30x90", "30x90", "90x90"), strict=True)), 70, BROKER,
         (dict(zip(HOSTED, ("9x90", "9x90", "18x90"), strict=True)),
          dict(zip(HOSTED, ("30x90", "30x90", "90x90"), strict=True))
          | {f"{OWN}cluster_under_replicated_partitions{{{PROD}}}": "4x90"})),
    Case("MetadataErrors", {METADATA: "1x9"}, 5, BROKER,
         ({of_broker("kafka_controller_kafkacontroller_metadataerrorcount"): "0x9"},)),
    Case("AvailabilityBurnsFast", {OFFLINE: "0+120x120", REFUSED: "0x120"} | PARTITIONS, 60, PROD,
         ({OFFLINE: "0+60x120", REFUSED: "0+60x120"} | PARTITIONS, {OFFLINE: "0+120x30 3600x90"} | PARTITIONS)),
    Case("AvailabilityBurns", {OFFLINE: "0x120", REFUSED: "0+600x120"} | PARTITIONS, 80 * 60, PROD,
         ({OFFLINE: "0x120", REFUSED: "0+300x120"} | PARTITIONS,), step=60),
    Case("HandlersBusy", {of_broker("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"): "0.1x60"}, 20,
         BROKER, ({of_broker("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent"): "0.3x60"},)),
    Case("ProduceSlow", {PRODUCE: "1500x60"}, 20,
         BROKER, ({PRODUCE: "900x60"},)),
    Case("FetchSlow", {FETCH: "2500x60"}, 20,
         BROKER, ({FETCH: "1500x60"},)),
    Case("BrokerSlow", {of_broker(f"{OWN}broker_slow"): "1x60"}, 20, BROKER,
         ({of_broker(f"{OWN}broker_slow"): "1x60"} | ANNOUNCED,)),
    Case("TrafficStopped", {TRAFFIC: "0+600x480 288000x120", OF_ANOTHER: "0+600x600"}, 560,
         'topic="orders", kafka_cluster="demo"',
         ({TRAFFIC: "0+600x600"}, {TRAFFIC: "0+36x480 17280x120", BY_ANOTHER: "0+36x480 17280x120"})),
    Case("LogCleanerDead", {of_broker("kafka_log_logcleaner_deadthreadcount"): "1x60"}, 20, BROKER,
         ({of_broker("kafka_log_logcleaner_deadthreadcount"): "0x60"},)),
    Case("IsrShrink", {SHRINKS.replace("CAUSE", "lag"): "0x5 4x30"}, 8, f'{BROKER}, cause="lag"',
         ({SHRINKS.replace("CAUSE", "controlled_shutdown"): "0x5 4x30"},
          {SHRINKS.replace("CAUSE", "lag"): "0x5 4x30"} | ANNOUNCED)),
    Case("IncidentOpen", {f'{OWN}incident_opened_timestamp_seconds{{{PROD}, incident="prod-1", class="disk_failure", '
                          'severity="warning", suspects="3"}': "9x9"}, 5,
         f'{PROD}, short_id="prod-1"',
         ({f'{OWN}incident_opened_timestamp_seconds{{{PROD}, incident="prod-1", class="rolling_restart", '
           'severity="info", suspects=""}': "9x9"},)),
    Case("InternalTopic", {f'{OWN}topic_offline_partitions{{{PROD}, topic="__consumer_offsets"}}': "1x9"}, 5,
         f'{PROD}, topic="__consumer_offsets"',
         ({f'{OWN}topic_offline_partitions{{{PROD}, topic="orders"}}': "1x9"},)),
    Case("BrokerRecovers", {of_broker("kafka_log_logmanager_remaininglogstorecover"): "5x9"}, 5, BROKER,
         ({of_broker("kafka_log_logmanager_remaininglogstorecover"): "0x9"},)),
    Case("BrokerGone", {f"{OWN}cluster_brokers{{{PROD}}}": "3x10 2x60"}, 40, PROD,
         ({f"{OWN}cluster_brokers{{{PROD}}}": "3x10 4x60"},)),
    Case("UpgradeUnfinished", {f"{OWN}cluster_unfinished_upgrade{{{PROD}}}": "1x200"}, 170 * 60, PROD,
         ({f"{OWN}cluster_unfinished_upgrade{{{PROD}}}": "1x100 0x100"},), step=60),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_rule_fires_when_it_ought_to_and_not_otherwise(case: Case, tmp_path: Path) -> None:
    name = f"Isrwatch{case.name}"
    alert = f'alertname="{name}", severity="{ALERTS[name].severity}", {case.labels}'
    of_two = {key.replace("}", ', instance="b"}'): values for key, values in case.series.items()}
    played(tmp_path, only(RULES, name), case.series | of_two, {case.minute: {alert}}, minutes=case.step)
    for series in case.calm:
        played(tmp_path, only(RULES, name), series, {case.minute: set()}, minutes=case.step)


def test_every_rule_of_an_opt_in_pack_has_a_case() -> None:
    opt_in = [name for name, alert in ALERTS.items() if alert.pack is not Pack.ALERTS]
    assert [f"Isrwatch{case.name}" for case in CASES] == opt_in
