"""Metrics of brokers themselves, where an agent is scraped (``collect.broker_metrics``): under their own names."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal
from dashboards.signals.labels import BROKER

_agent = partial(Signal, labels=BROKER, prefix="kafka_")

LOGS_TO_RECOVER: Final = _agent(
    "Logs to recover",
    "log_logmanager_remaininglogstorecover",
    "Logs that a broker has yet to read after an unclean stop, before it serves. A restart starts over.",
)
FAILED_PARTITIONS: Final = _agent(
    "Partitions given up",
    "server_replicafetchermanager_failedpartitionscount",
    "Partitions that the fetchers of a broker have given up after an error: these replicas stay behind.",
)
METADATA_LOAD_ERRORS: Final = _agent(
    "Metadata not loaded",
    "server_broker_metadata_metrics_metadata_load_error_count",
    "Errors of a broker, since its start, at reading the metadata log: it may serve by an old state of the cluster.",
)
METADATA_APPLY_ERRORS: Final = _agent(
    "Metadata not applied",
    "server_broker_metadata_metrics_metadata_apply_error_count",
    "Errors of a broker, since its start, at applying the metadata log: it may serve by an old state of the cluster.",
)
METADATA_ERRORS: Final = _agent(
    "Metadata errors of controllers",
    "controller_kafkacontroller_metadataerrorcount",
    "Errors of a controller, since its start, with records of the metadata log: its state may be wrong.",
)
