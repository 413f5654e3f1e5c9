"""The monitor itself: sources, queries of the job, tables, certificates."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import CLUSTER, SOURCE, TABLE

_source = partial(Signal, labels=SOURCE)

SOURCE_AGE: Final = _source(
    "Age of each source",
    "source_age_seconds",
    (
        "Seconds since the newest observation of each source. Heartbeats keep a running source near 5 s. A source "
        "whose age grows has stopped: see its collector's log. If all ages grow together, the Spark job has stopped."
    ),
    unit=Unit.SECONDS,
    copies="min",
)
SOURCE_OBSERVED: Final = _source(
    "Newest observation",
    "source_observed_timestamp_seconds",
    "Time of the newest observation of a source, in seconds since 1970.",
    unit=Unit.SECONDS,
)
BEHIND: Final = _source(
    "Not applied yet",
    "source_behind_bytes",
    (
        "Bytes of each source's log on the bus that the job has not applied. Normally near 0; a growing backlog is a "
        "query that is down or cannot keep up. No data is lost: the bus retains it until the tables have it."
    ),
    unit=Unit.BYTES,
    copies="min",
)
REPORT_AGE: Final = _source(
    "Age of the job's report",
    "source_report_age_seconds",
    "Seconds since the job last reported on its sources. It reports every 5 s; above a minute it is not running.",
    unit=Unit.SECONDS,
    copies="min",
)
QUERY_UP: Final = _source(
    "Queries of the job",
    "source_query_up",
    (
        "Whether the query that applies each source was running at the job's last report: green is running, red is "
        "failed and being restarted, nothing: the job has not reported for a minute. A band of alternating colours is "
        "a query that fails soon after each start."
    ),
    copies="min",
)
QUARANTINED: Final = _source(
    "Quarantined",
    "quarantined_total",
    (
        "Unparsable observations, kept verbatim in the table quarantine with the reason. Should be 0; after an "
        "upgrade of only the collector or only the job, upgrade the other."
    ),
    kind=SignalType.COUNTER,
)
TABLE_READABLE: Final = Signal(
    name="Tables that can be read",
    meaning="Whether the exporter could read each table when it last tried; if not, what comes from it is absent.",
    metric="exporter_table_read_success",
    labels=TABLE,
    copies="min",
)
COLLECTOR_SOURCE_UP: Final = Signal(
    name="Sources of the collector",
    meaning="Whether the last poll of each source was answered, as the collector's own page says.",
    metric="source_up",
    labels=("cluster", "source"),
    prefix="isrwatch_collector_",
)
LISTENER_CERTIFICATE: Final = Signal(
    name="Certificates of listeners",
    meaning="When the certificate that each broker or controller showed the collector last expires, since 1970.",
    metric="listener_certificate_expiry_timestamp_seconds",
    labels=("cluster", "role", "node", "address"),
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
QUERY_RESTARTS: Final = _source(
    "Restarts",
    "source_query_restarts_total",
    "Restarts after a failure of the query that applies the source.",
    kind=SignalType.COUNTER,
)
UNRECORDED: Final = Signal(
    name="ISR changes not recorded",
    meaning=(
        "ISR changes that brokers counted as leaders and that were not recorded, at least. Polling misses those that "
        "are shorter than its interval; with the metadata log there should be none. Needs the brokers' metrics agents."
    ),
    metric="broker_unrecorded_isr_changes",
    labels=("cluster", "broker", "meter"),
)
SAMPLE_AGE: Final = Signal(
    name="Newest sample",
    meaning="Time since the newest sample of each table of samples was collected; settings are sampled every minutes.",
    metric="newest_sample_age_seconds",
    labels=("cluster", "table"),
    unit=Unit.SECONDS,
    copies="min",
)
TABLE_READ_AGE: Final = Signal(
    name="Last read",
    meaning="Time since each table was last read, or found to have no newer version.",
    metric="exporter_table_read_age_seconds",
    labels=TABLE,
    unit=Unit.SECONDS,
    copies="min",
)
TABLE_READ_DURATION: Final = Signal(
    name="Reading took",
    meaning="Duration of the last reading of each table.",
    metric="exporter_table_read_duration_seconds",
    labels=TABLE,
    unit=Unit.SECONDS,
)
WITHOUT_DETAIL: Final = Signal(
    name="Without detail",
    meaning=(
        "Partitions that are not healthy, or changed, and have no series of their own, because there are more of them "
        "than export.detail_limit allows: tables of partitions on these boards lack them. Counts are complete."
    ),
    metric="exporter_partitions_without_detail",
    labels=CLUSTER,
)
SERIES: Final = Signal(
    name="Series",
    meaning="Samples in one scrape. Near the sample_limit of Prometheus' configuration the whole scrape fails.",
    metric="exporter_series",
    labels=(),
)
LISTENER_UP: Final = Signal(
    name="Listeners that respond",
    meaning="Whether each listener of a broker or controller responded when the collector last asked it.",
    metric="listener_up",
    labels=("cluster", "role", "node", "address"),
    prefix="isrwatch_collector_",
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
