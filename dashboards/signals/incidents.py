"""Open and closed incidents, by class."""

from __future__ import annotations

from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import INCIDENT

OPEN: Final = Signal(
    name="Open now",
    meaning="Open incidents, by class.",
    metric="cluster_open_incidents",
    labels=INCIDENT,
)
CLOSED: Final = Signal(
    name="Closed in this time range",
    meaning="Closed incidents that are final, by class.",
    metric="cluster_closed_incidents_total",
    labels=INCIDENT,
    kind=SignalType.COUNTER,
)
OPENED: Final = Signal(
    name="Open for",
    meaning="When each open incident began, in seconds since 1970.",
    metric="incident_opened_timestamp_seconds",
    labels=("cluster", "incident", "class", "severity", "suspects"),
    unit=Unit.SECONDS,
)
