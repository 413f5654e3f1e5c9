"""The lines above the samples of a metric, in the text format and in OpenMetrics: the samples are the same in both.

OpenMetrics 1.0 names a counter without its ``_total``, has a line for the unit, and ends with ``# EOF``. Counters of a
whole cluster or of the exporter say when they were 0, too; those with more labels do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.metrics.compression import Block
from exporters.metrics.text import header, openmetrics_header

if TYPE_CHECKING:
    from exporters.metrics.metric import Metric

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_END: Final = Block((b"# EOF\n",), 0)


class Heading:
    """The lines above the samples of a metric, in both formats."""

    def __init__(self, metric: Metric) -> None:
        """Format them once."""
        self._text = Block((header(metric).encode(),), 0)
        self._openmetrics = Block((openmetrics_header(metric).encode(),), 0)

    def block(self, *, is_openmetrics: bool) -> Block:
        """Return the lines in a format."""
        return self._openmetrics if is_openmetrics else self._text


def end(*, is_openmetrics: bool) -> list[Block]:
    """Return what ends an exposition."""
    return [_END] if is_openmetrics else []
