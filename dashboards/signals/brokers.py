"""Brokers: registration, replicas, the cost of a stop, suspicion, log directories, and what their own agents say."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.derived import BROKER, signal

INFO: Final = signal("kafka_replication_broker_info")
REGISTERED: Final = signal("kafka_replication_broker_registered")
FENCED: Final = signal("kafka_replication_broker_fenced")
SHUTTING_DOWN: Final = signal("kafka_replication_broker_shutting_down")
MAINTENANCE: Final = signal("kafka_replication_broker_maintenance")
LED: Final = signal(
    "kafka_replication_broker_led_partitions",
    "Led partitions",
    "Partitions that each broker leads. A step to 0: it was lost, or is stopping.",
)
HOSTED: Final = signal("kafka_replication_broker_hosted_partitions", "Hosted partitions")
IN_SYNC: Final = signal("kafka_replication_broker_in_sync_partitions", "In-sync partitions")
MISSING_FROM_ISR: Final = signal("kafka_replication_broker_missing_from_isr_partitions", "Missing from ISRs")
MISSING_AT_MIN_ISR: Final = signal("kafka_replication_broker_missing_at_min_isr_partitions")
PLANNED_CAUSES: Final = ("controlled_shutdown", "reassignment", "restart")
"""Causes of planned operations; any other one is none, also one that a later version introduces."""
ISR_REMOVALS: Final = signal("kafka_replication_broker_isr_departures_total")
SAFE_TO_STOP: Final = signal("kafka_replication_broker_safe_to_stop", "Safe to stop")
RESTART_ORDER: Final = signal("kafka_replication_broker_restart_order", "Restart order", unit=Unit.BARE)
WOULD_GO_UNDER_MIN_ISR: Final = signal(
    "kafka_replication_broker_would_go_under_min_isr_partitions", "Would go under min ISR"
)
WOULD_GO_OFFLINE: Final = signal("kafka_replication_broker_would_go_offline_partitions", "Would go offline")
MAINTENANCE_OVERRUN: Final = signal("kafka_replication_broker_maintenance_overrun", "Work overran")
UNAVOIDABLE_OFFLINE: Final = signal("kafka_replication_broker_unavoidable_offline_partitions", "Offline in any order")
UNAVOIDABLE_UNDER_MIN_ISR: Final = signal(
    "kafka_replication_broker_unavoidable_under_min_isr_partitions", "Under min ISR in any order"
)
LAGGING_REPLICAS: Final = signal("kafka_replication_broker_lagging_replicas", "Replicas behind")
MAX_REPLICA_LAG: Final = signal(
    "kafka_replication_broker_max_replica_lag_records",
    "Largest lag, records",
    (
        "Records that the most lagging replica of each broker lacks. A rise on one broker: its disk or network; on "
        "all: load, or a leader that answers slowly. It rises before the replica leaves the ISR."
    ),
)
SLOW: Final = signal("kafka_replication_broker_slow", "Slow")
OVERLOADED: Final = signal("kafka_replication_broker_overloaded", "Overloaded")
RESPONSE: Final = signal(
    "kafka_replication_broker_response_seconds",
    "Response time",
    (
        "Median time of a request to each broker that touches no log. One that rises alone: that broker or the way to "
        "it; all together: load, or the collector's own network."
    ),
)
APPEND: Final = signal("kafka_replication_broker_append_seconds", "Append time")


# Log directories of brokers: whether the broker can use them, how full they are, when they will be full.


DIRECTORY_ONLINE: Final = signal("kafka_replication_log_directory_online", "Online")
DIRECTORY_TOTAL: Final = signal("kafka_replication_log_directory_total_bytes", "Size")
DIRECTORY_USABLE: Final = signal("kafka_replication_log_directory_usable_bytes", "Free")
DIRECTORY_REPLICA_BYTES: Final = signal("kafka_replication_log_directory_replica_bytes", "Size of replicas")
DIRECTORY_UNTIL_FULL: Final = signal("kafka_replication_log_directory_until_full_seconds", "Full in")


# Metrics of brokers themselves, where an agent is scraped (``collect.broker_metrics``): under their own names.


_agent = partial(Signal, labels=BROKER, prefix="kafka_")

LOGS_TO_RECOVER: Final = _agent(
    "Logs to recover",
    "log_logmanager_remaininglogstorecover",
    "Logs that a broker has yet to read after an unclean stop, before it serves. A restart starts over.",
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
DEAD_CLEANERS: Final = _agent(
    "Dead log cleaners",
    "log_logcleaner_deadthreadcount",
    "Threads of a broker's log cleaner that have ended: compacted topics grow without limit.",
)


# The load of brokers, of which agents say how near its end is.


BYTES_IN: Final = _agent(
    "Bytes in",
    "server_brokertopicmetrics_bytesin_total",
    "Bytes per second that producers send to each broker. One far above the others: it leads the busiest partitions.",
    kind=SignalType.COUNTER,
    unit=Unit.BYTES_PER_SECOND,
)
BYTES_OUT: Final = _agent(
    "Bytes out",
    "server_brokertopicmetrics_bytesout_total",
    "Bytes per second that each broker sends to consumers; what followers fetch is not in it.",
    kind=SignalType.COUNTER,
    unit=Unit.BYTES_PER_SECOND,
)
HANDLERS_IDLE: Final = _agent(
    "Request handlers idle",
    "server_kafkarequesthandlerpool_requesthandleravgidlepercent",
    "Share of the time that the request handlers of each broker are idle. Below 30 % for long: the broker saturates, "
    "and everything that it serves becomes slow.",
    unit=Unit.SHARE,
)
NETWORK_IDLE: Final = _agent(
    "Network threads idle",
    "network_socketserver_networkprocessoravgidlepercent",
    "Share of the time that the network threads of each broker are idle. Below 30 % for long: too many connections or "
    "bytes, or TLS that costs too much.",
    unit=Unit.SHARE,
)
PRODUCE_P99: Final = _agent(
    "Produce p99",
    "network_requestmetrics_totaltimems_produce_99thpercentile",
    "Time within which each broker answers 99 % of produce requests, as it says itself; with acks=all the wait for "
    "followers is in it.",
    unit=Unit.MILLISECONDS,
)
FETCH_P99: Final = _agent(
    "Fetch p99",
    "network_requestmetrics_totaltimems_fetchconsumer_99thpercentile",
    "Time within which each broker answers 99 % of the fetches of consumers, as it says itself. Where there is little "
    "to read it is the wait for records, fetch.max.wait.ms (500 ms) at most.",
    unit=Unit.MILLISECONDS,
)
LOAD: Final = (BYTES_IN, HANDLERS_IDLE, PRODUCE_P99, BYTES_OUT, NETWORK_IDLE, FETCH_P99)
