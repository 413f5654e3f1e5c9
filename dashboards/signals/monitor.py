"""The monitor itself: sources, queries of the job, tables, certificates."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.derived import signal

SOURCE_AGE: Final = signal(
    "kafka_replication_source_age_seconds",
    "Age of each source",
    (
        "Seconds since the newest observation of each source. Heartbeats keep a running source near 5 s. A source "
        "whose age grows has stopped: see its collector's log. If all ages grow together, the Spark job has stopped."
    ),
    copies="min",
)
SOURCE_OBSERVED: Final = signal("kafka_replication_source_observed_timestamp_seconds")
BEHIND: Final = signal(
    "kafka_replication_source_behind_bytes",
    "Not applied yet",
    (
        "Bytes of each source's log on the bus that the job has not applied. Normally near 0; a growing backlog is a "
        "query that is down or cannot keep up. No data is lost: the bus retains it until the tables have it."
    ),
    copies="min",
)
REPORT_AGE: Final = signal(
    "kafka_replication_source_report_age_seconds",
    meaning=(
        "Seconds since the job last reported on its sources. It reports every 5 s; above a minute it is not running."
    ),
    copies="min",
)
QUERY_UP: Final = signal(
    "kafka_replication_source_query_up",
    "Queries of the job",
    (
        "Whether the query that applies each source was running at the job's last report: green is running, red is "
        "failed and being restarted, nothing: the job has not reported for a minute. A band of alternating colours is "
        "a query that fails soon after each start."
    ),
    copies="min",
)
QUARANTINED: Final = signal(
    "kafka_replication_quarantined_total",
    "Quarantined",
    (
        "Unparsable observations, kept verbatim in the table quarantine with the reason. Should be 0; after an "
        "upgrade of only the collector or only the job, upgrade the other."
    ),
)
TABLE_READABLE: Final = signal("kafka_replication_exporter_table_read_success", copies="min")
COLLECTOR_SOURCE_UP: Final = Signal(
    name="Sources of the collector",
    meaning="Whether the last poll of each source was answered, as the collector's own page says.",
    metric="source_up",
    labels=("cluster", "source"),
    prefix="isrwatch_collector_",
)
COLLECTOR_UNSEEN_BROKERS: Final = Signal(
    name="Brokers without the listener",
    meaning="Brokers that run and that each source cannot ask, as they lack the listener by which it asks.",
    metric="unseen_brokers",
    labels=("cluster", "source"),
    prefix="isrwatch_collector_",
)
LISTENER_WRONG_NODE: Final = Signal(
    name="Listeners that lead to other nodes",
    meaning="Whether another node answers at the address of a broker or controller, as the collector's own page says.",
    metric="listener_wrong_node",
    labels=("cluster", "role", "node", "address"),
    prefix="isrwatch_collector_",
)
LISTENER_CERTIFICATE: Final = Signal(
    name="Certificates of listeners",
    meaning="When the certificate that each listener showed, or the first that signs it, expires, since 1970.",
    metric="listener_certificate_expiry_timestamp_seconds",
    labels=("cluster", "role", "node", "listener", "address"),
    unit=Unit.SECONDS,
    prefix="isrwatch_collector_",
)
CLIENT_CERTIFICATE: Final = Signal(
    name="Certificates of the collector",
    meaning="When each certificate of the collector's configuration expires, since 1970.",
    metric="client_certificate_expiry_timestamp_seconds",
    labels=("cluster", "property"),
    unit=Unit.SECONDS,
    prefix="isrwatch_collector_",
)
QUERY_RESTARTS: Final = signal("kafka_replication_source_query_restarts_total")
UNRECORDED: Final = signal(
    "kafka_replication_broker_unrecorded_isr_changes",
    "ISR changes not recorded",
    (
        "ISR changes that brokers counted as leaders and that were not recorded, at least. Polling misses those that "
        "are shorter than its interval; with the metadata log there should be none. Needs the brokers' metrics agents."
    ),
)
SAMPLE_AGE: Final = signal(
    "kafka_replication_newest_sample_age_seconds",
    "Newest sample",
    "Time since the newest sample of each table of samples was collected; settings are sampled every minutes.",
    copies="min",
)
TABLE_READ_AGE: Final = signal("kafka_replication_exporter_table_read_age_seconds", "Last read", copies="min")
TABLE_READ_DURATION: Final = signal("kafka_replication_exporter_table_read_duration_seconds", "Reading took")
WITHOUT_DETAIL: Final = signal(
    "kafka_replication_exporter_partitions_without_detail",
    "Without detail",
    (
        "Partitions that are not healthy, or changed, and have no series of their own, because there are more of them "
        "than export.detail_limit allows: tables of partitions on these boards lack them. Counts are complete."
    ),
)
SERIES: Final = signal(
    "kafka_replication_exporter_series",
    meaning="Samples in one scrape. Near the sample_limit of Prometheus' configuration the whole scrape fails.",
)
JOB_QUERY_UP: Final = Signal(
    name="Queries as the job itself shows them",
    meaning="Whether each query runs and its tables are written.",
    metric="query_up",
    labels=("query",),
    copies="min",
    prefix="isrwatch_job_",
)
SCRAPED: Final = Signal(
    name="Scraped",
    meaning="Prometheus' own: whether the last scrape of a target succeeded.",
    metric="up",
    labels=("job", "instance"),
    prefix="",
)
