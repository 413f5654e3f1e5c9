"""The broker metrics that are kept, and their names under the usual JMX exporter rules.

Pure. The same MBean has many names: the exporter's own Kafka example and Strimzi write ``isrshrinks_total``, Grafana
Cloud and Confluent ``isrshrinkspersec``, Bitnami ``total_isrshrinkspersec_count``, Strimzi's reporter
``isrshrinkspersec_total``, and an exporter without rules ``Count{name="IsrShrinksPerSec"}``. The first one is stored.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LAG: Final = "kafka_server_replicafetchermanager_maxlag"
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
        "kafka_server_kafkaserver_brokerstate",
        MAX_LAG,
    }
)

_MBEANS: Final = {"_".join(name.split("_")[:3]) for name in METRICS}
_KEPT: Final = re.compile(rf"\s*(?:#\s*TYPE\s+)?(?:{'|'.join(sorted(_MBEANS))})", re.IGNORECASE)
_METER: Final = re.compile(r"persec(?:_total|_count|_count_total)?$")
_INFIX: Final = re.compile(r"^(kafka_[a-z]+_[a-z]+)_total_")
_REPLICA_FETCHERS: Final = {"clientid": "replica"}


def may_be_kept(line: str) -> bool:
    """Return whether a line of a page is of an MBean of which something is kept; then it is worth to be parsed.

    >>> may_be_kept('kafka_log_Log_Size{topic="orders",partition="0"} 17.0')
    False
    """
    return _KEPT.match(line) is not None


def normalised(sample: str, labels: Mapping[str, str]) -> str | None:
    """Return the stored name of a sample, None when it is not kept.

    A sample with labels is dropped, because it is not the aggregate of its broker; except for the MBean's own name,
    which an exporter without rules leaves in a label, and the client id of the replica fetchers.

    >>> normalised("kafka_server_ReplicaManager_total_IsrShrinksPerSec_count", {})
    'kafka_server_replicamanager_isrshrinks_total'
    """
    rest = {key.lower(): value.lower() for key, value in labels.items()}
    name = sample.lower()
    bean = rest.pop("name", None)
    if bean is not None:
        name = f"{re.sub('_(value|count)(_total)?$', '', name)}_{bean}"
    name = _METER.sub("_total", _INFIX.sub(r"\1_", name)).removesuffix("_value")
    if name not in METRICS or rest not in ({}, _REPLICA_FETCHERS if name == MAX_LAG else {}):
        return None
    return name
