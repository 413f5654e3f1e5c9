"""The broker metrics that are kept of an exporter's page, and their names under the usual JMX exporter rules.

Most are the aggregates of the broker that has them. What it still has to recover is a sum over its directories and
threads (KIP-831); what the active controller says of other brokers has their numbers as labels (KAFKA-18666).

Pure. The same MBean has many names: the exporter's own Kafka example and Strimzi write ``isrshrinks_total``, Grafana
Cloud and Confluent ``isrshrinkspersec``, Bitnami ``total_isrshrinkspersec_count``, Strimzi's reporter
``isrshrinkspersec_total``, and an exporter without rules ``Count{name="IsrShrinksPerSec"}``. The first one is stored.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from streaming.contracts.identifiers import BrokerId

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LAG: Final = "kafka_server_replicafetchermanager_maxlag"
FAILED_PARTITIONS: Final = "kafka_server_replicafetchermanager_failedpartitionscount"
METRICS: Final = frozenset(
    {
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka_server_replicamanager_atminisrpartitioncount",
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka_server_replicamanager_isrexpands_total",
        "kafka_server_replicamanager_failedisrupdates_total",
        "kafka_server_replicamanager_partitioncount",
        "kafka_server_replicamanager_leadercount",
        "kafka_server_replicamanager_reassigningpartitions",
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "kafka_controller_kafkacontroller_activebrokercount",
        "kafka_controller_kafkacontroller_globaltopiccount",
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
        "kafka_log_logmanager_offlinelogdirectorycount",
        "kafka_controller_kafkacontroller_metadataerrorcount",
        "kafka_server_kafkaserver_brokerstate",
        "kafka_server_broker_metadata_metrics_metadata_load_error_count",
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
        FAILED_PARTITIONS,
        MAX_LAG,
    }
)
ACTIVE_CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"
OF_BROKERS: Final = frozenset(
    {
        "kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms",
        "kafka_controller_kafkacontroller_brokerregistrationstate",
    }
)
PRODUCE_REQUESTS: Final = "kafka_network_requestmetrics_localtimems_produce_count_total"
PRODUCE_MEAN_MS: Final = "kafka_network_requestmetrics_localtimems_produce_mean"
"""Of the broker's own part of a produce request; see :mod:`append_times`."""
SUMMED: Final = {
    "kafka_log_logmanager_remaininglogstorecover": {"dir"},
    "kafka_log_logmanager_remainingsegmentstorecover": {"dir", "threadnum"},
}

# With an underscore at the end: "kafka_server_broker" alone begins the names of thousands of lines about topics.
_MBEANS: Final = {"_".join(name.split("_")[:3]) + "_" for name in METRICS}
# Of the times of requests there are thousands of lines, and none is kept but of produce requests.
_OF_REQUESTS: Final = r"kafka_network_requestmetrics_\w*(?:count|mean|_total)\{[^}]*=\"produce\""
_KEPT: Final = re.compile(rf"\s*(?:(?:#\s*TYPE\s+)?(?:{'|'.join(sorted(_MBEANS))})|{_OF_REQUESTS})", re.IGNORECASE)
_METER: Final = re.compile(r"persec(?:_total|_count|_count_total)?$")
_INFIX: Final = re.compile(r"^(kafka_[a-z]+_[a-z]+)_total_")
_REPLICA_FETCHERS: Final = {"clientid": "replica"}
_OF_PRODUCE: Final = {"request": "produce"}
_PRODUCE_FIGURES: Final = {
    ("kafka_network_requestmetrics_localtimems", "count"): PRODUCE_REQUESTS,
    ("kafka_network_requestmetrics_localtimems", "mean"): PRODUCE_MEAN_MS,
}
_LINES_OF_A_FORMAT: Final = 100  # show whether a page without any known metric is one of metrics at all
_NUMBER: Final = re.compile(r"\d{1,9}")


class BrokerExposition(NamedTuple):
    """What an exporter returns: the metrics of its broker, and those of other brokers if it is the active controller.

    Only the active controller hears their heartbeats; another one may be late.
    """

    own: dict[str, float]
    of_brokers: dict[BrokerId, dict[str, float]]


def parse_exposition(text: str) -> BrokerExposition:
    """Parse what is kept of a page, a few lines of many thousands: normalised metric name to value, all finite.

    Raises:
        ValueError: it is not in Prometheus' text format.
    """
    lines = text.split("\n")
    kept = [line for line in lines if may_be_kept(line)] or lines[:_LINES_OF_A_FORMAT]
    own: dict[str, float] = {}
    of_brokers: dict[BrokerId, dict[str, float]] = {}
    for family in text_string_to_metric_families("\n".join(kept)):
        for sample in family.samples:
            metric, value = normalised(sample.name, sample.labels), float(sample.value)
            if metric is None or not math.isfinite(value):
                continue
            if metric in OF_BROKERS:
                of_brokers.setdefault(BrokerId(int(_lowered(sample.labels)["broker"])), {})[metric] = value
            else:
                own[metric] = value + (own.get(metric, 0.0) if metric in SUMMED else 0.0)
    return BrokerExposition(own, of_brokers if own.get(ACTIVE_CONTROLLER) == 1 else {})


def may_be_kept(line: str) -> bool:
    """Return whether a line of a page is of an MBean of which something is kept; then it is worth to be parsed.

    >>> may_be_kept('kafka_log_Log_Size{topic="orders",partition="0"} 17.0')
    False
    """
    return _KEPT.match(line) is not None


def normalised(sample: str, labels: Mapping[str, str]) -> str | None:
    """Return the stored name of a sample, None when it is not kept.

    A sample with labels is dropped, because it is not the aggregate of its broker; except for the MBean's own name,
    which an exporter without rules leaves in a label, the client id of the replica fetchers, the labels of ``SUMMED``
    and ``OF_BROKERS``, and that of produce requests.

    >>> normalised("kafka_server_ReplicaManager_total_IsrShrinksPerSec_count", {})
    'kafka_server_replicamanager_isrshrinks_total'
    """
    rest = _lowered(labels)
    name = sample.lower()
    bean = rest.pop("name", None)
    if rest == _OF_PRODUCE:
        return _of_produce(name, bean)
    if bean is not None:
        name = f"{re.sub('_(value|count)(_total)?$', '', name)}_{bean}"
    name = _METER.sub("_total", _INFIX.sub(r"\1_", name)).removesuffix("_value")
    if name in METRICS:
        is_kept = not rest or (name in {FAILED_PARTITIONS, MAX_LAG} and rest == _REPLICA_FETCHERS)
    else:
        is_of_broker = name in OF_BROKERS and rest.keys() == {"broker"} and _NUMBER.fullmatch(rest["broker"])
        is_kept = bool(is_of_broker) or rest.keys() == SUMMED.get(name)
    return name if is_kept else None


def _of_produce(name: str, bean: str | None) -> str | None:
    """Return the stored name of a figure of produce requests; without rules the MBean's own name is in a label."""
    subject, _, figure = name.removesuffix("_total").rpartition("_")
    subject = f"{subject}_{bean}" if bean else subject
    return _PRODUCE_FIGURES.get((subject, figure))


def _lowered(labels: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value.lower() for key, value in labels.items()}
