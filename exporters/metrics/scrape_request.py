"""What one scrape selects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScrapeRequest:
    """What one scrape selects, and its format.

    Attributes:
        cluster: by name; None: all.
        names: of metrics; empty: all but those left out.
        left_out: names of metrics.
        is_openmetrics: whether the format is OpenMetrics, not the text format.
    """

    cluster: str | None = None
    names: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    is_openmetrics: bool = False

    def wants(self, name: str) -> bool:
        """Return whether a metric is selected."""
        return (not self.names or name in self.names) and name not in self.left_out
