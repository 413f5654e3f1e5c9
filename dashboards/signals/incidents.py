"""Open and closed incidents, by class."""

from __future__ import annotations

from typing import Final

from dashboards.signals.derived import signal

OPEN: Final = signal("kafka_replication_cluster_open_incidents", "Open now")
CLOSED: Final = signal("kafka_replication_cluster_closed_incidents_total")
OPENED: Final = signal("kafka_replication_incident_opened_timestamp_seconds", "Open for")
